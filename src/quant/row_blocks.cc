// Finding and reporting values that cannot be stored; the reasons that encodings share.
#include "quant/row_blocks.h"

#include <cmath>

namespace cmforge {

void BadValues::Add(int64_t index, float bad) {
  ++count;
  non_finite += std::isfinite(bad) ? 0 : 1;
  if (first < 0 || index < first) {
    first = index;
    value = bad;
  }
}

void BadValues::Merge(const BadValues& other) {
  count += other.count;
  non_finite += other.non_finite;
  if (other.first >= 0 && (first < 0 || other.first < first)) {
    first = other.first;
    value = other.value;
  }
}

void FindBadValues(const float* values, int64_t count, int64_t first_index, float limit, BadValues& bad) {
  int32_t any = 0;
  for (int64_t i = 0; i < count; ++i) any |= std::fabs(values[i]) <= limit ? 0 : 1;
  if (any == 0) return;
  for (int64_t i = 0; i < count; ++i) {
    if (!(std::fabs(values[i]) <= limit)) bad.Add(first_index + i, values[i]);
  }
}

Result<void> ReportBadValues(const BadValues& bad, float limit, int64_t cols) {
  if (bad.count == 0) return {};
  const int64_t width = std::max<int64_t>(cols, 1);
  const std::string place = fmt::format("row {} column {}", bad.first / width, bad.first % width);
  if (bad.non_finite > 0) {
    return Fail(ErrorKind::kCorrupt,
                fmt::format("{} values are NaN or infinite and {} beyond {}, the first is {} at {}",
                            bad.non_finite, bad.count - bad.non_finite, limit, bad.value, place));
  }
  return Fail(ErrorKind::kUsage,
              fmt::format("{} values are beyond {}, more than this encoding holds, the first is {} at {}: "
                          "store this tensor as f32 or bf16",
                          bad.count, limit, bad.value, place));
}

std::string ReasonNot2d(std::span<const int64_t> shape) {
  if (shape.size() != 2) return fmt::format("shape {} is not 2-D", ShapeText(shape));
  if (shape[0] == 0 || shape[1] == 0) return fmt::format("shape {} has no elements", ShapeText(shape));
  return {};
}

std::string ReasonNotGroupsOf32(std::span<const int64_t> shape) {
  if (std::string reason = ReasonNot2d(shape); !reason.empty()) return reason;
  if (shape[1] % 32 != 0) return fmt::format("columns {} are not a multiple of 32", shape[1]);
  return {};
}

}  // namespace cmforge
