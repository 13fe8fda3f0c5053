// Where a slice of one axis lies: Python's rules for begin, end and stride, shared by type inference and
// execution.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

namespace cmforge::mil {

struct SliceOfAxis {
  int64_t begin = 0;
  int64_t extent = 0;
};

struct SliceMasks {
  bool begin = false, end = false, squeeze = false;
};

/// Elements begin, begin + stride, ... before `end` of an axis of `dim` >= 0 elements. Negative numbers count
/// from the end, numbers outside are clamped; a squeezed axis takes element `begin` alone and has nothing
/// when that is outside. `stride` is not 0.
[[nodiscard]] inline std::optional<SliceOfAxis> SliceAxis(int64_t dim, int64_t begin, int64_t end,
                                                          int64_t stride, SliceMasks masks) {
  if (begin < 0) begin += dim;  // both bounded by 32-bit contents or by a dimension: no overflow
  if (masks.squeeze) {
    if (begin < 0 || begin >= dim) return std::nullopt;
    return SliceOfAxis{begin, 1};
  }
  if (end < 0) end += dim;
  const int64_t low = stride > 0 ? 0 : -1, high = stride > 0 ? dim : dim - 1;
  begin = masks.begin ? (stride > 0 ? 0 : dim - 1) : std::clamp(begin, low, high);
  end = masks.end ? (stride > 0 ? dim : -1) : std::clamp(end, low, high);
  const int64_t span = stride > 0 ? end - begin : begin - end;
  const int64_t step = stride > 0 ? stride : -stride;
  return SliceOfAxis{begin, span <= 0 ? 0 : (span - 1) / step + 1};
}

}  // namespace cmforge::mil
