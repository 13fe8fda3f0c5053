// The planes of an encoding (spec 3.2), cut one after another.
#include "quant/slice.h"

#include <algorithm>
#include <cstring>

#include "base/bytes.h"

namespace cmforge {
namespace {

constexpr int64_t kGroup = 32;

enum class Plane : uint8_t {
  kCodes,    // [rows, groups of `bytes`]
  kRows,     // [rows, `bytes`]
  kColumns,  // [groups of `bytes`]
  kRungs,    // [rows], five bits a group, lowest bits first, rows padded to bytes
};

struct PlaneLayout {
  Plane plane;
  int64_t bytes;
};

struct EncodingLayout {
  PlaneLayout planes[3];
  int count;
  uint8_t zero;  // fills the first plane, the codes, of a row of zeros
};

EncodingLayout LayoutOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return {{{Plane::kCodes, 128}}, 1, 0};
    case DType::kF16:
    case DType::kBF16:
      return {{{Plane::kCodes, 64}}, 1, 0};
    case DType::kQ8Row:
      return {{{Plane::kCodes, 32}, {Plane::kRows, 2}}, 2, 0};
    case DType::kQ8TwoField:
      return {{{Plane::kCodes, 32}, {Plane::kRows, 2}, {Plane::kColumns, 64}}, 3, 0};
    case DType::kQ4Block:
      return {{{Plane::kCodes, 16}, {Plane::kCodes, 2}}, 2, 0x88};
    case DType::kQ4Tiled:
      return {{{Plane::kCodes, 18}}, 1, 0};  // scales of 0
    case DType::kQ4tp:
      return {{{Plane::kCodes, 16}, {Plane::kRows, 4}, {Plane::kRungs, 0}}, 3, 0x88};
    case DType::kQ1:
      return {{{Plane::kCodes, 6}}, 1, 0};  // scales of 0
    default:
      return {};
  }
}

std::vector<int32_t> GroupsOrAll(std::span<const int32_t> groups, int64_t count) {
  std::vector<int32_t> all(groups.begin(), groups.end());
  for (int64_t g = 0; groups.empty() && g < count; ++g) all.push_back(static_cast<int32_t>(g));
  return all;
}

int RungAt(const std::byte* rungs, int64_t group) {
  const int64_t bit = 5 * group;
  int window = std::to_integer<int>(rungs[bit / 8]);
  if (bit % 8 > 3) window |= std::to_integer<int>(rungs[bit / 8 + 1]) << 8;
  return window >> (bit % 8) & 31;
}

void PutRung(std::byte* rungs, int64_t group, int rung) {
  const int64_t bit = 5 * group;
  const int shifted = rung << (bit % 8);
  rungs[bit / 8] |= static_cast<std::byte>(shifted & 0xFF);
  if (shifted > 0xFF) rungs[bit / 8 + 1] |= static_cast<std::byte>(shifted >> 8);
}

}  // namespace

bool CanSlice(DType dtype, std::span<const int64_t> shape, const MatrixSlice& slice) {
  return LayoutOf(dtype).count > 0 && shape.size() == 2 && shape[1] % kGroup == 0 &&
         (slice.row_groups.empty() || shape[0] % kGroup == 0);
}

Shape SlicedShape(std::span<const int64_t> shape, const MatrixSlice& slice) {
  const auto cut = [](std::span<const int32_t> groups, int64_t size) {
    return groups.empty() ? size : static_cast<int64_t>(groups.size()) * kGroup;
  };
  return {cut(slice.row_groups, shape[0]), cut(slice.column_groups, shape[1])};
}

void SliceMatrix(const TensorView& matrix, const MatrixSlice& slice, std::span<std::byte> out) {
  const EncodingLayout layout = LayoutOf(matrix.dtype);
  const int64_t rows = matrix.shape[0], groups = matrix.shape[1] / kGroup;
  const auto columns = GroupsOrAll(slice.column_groups, groups);
  const auto kept = static_cast<int64_t>(columns.size());
  std::vector<int64_t> kept_rows;
  for (int64_t row = 0; slice.row_groups.empty() && row < rows; ++row) kept_rows.push_back(row);
  for (const int32_t g : slice.row_groups) {
    for (int64_t i = 0; i < kGroup; ++i) kept_rows.push_back(g * kGroup + i);
  }
  const std::byte* from = matrix.bytes.data();
  std::byte* to = out.data();
  const auto copy_groups = [&](const std::byte* row, int64_t bytes) {
    for (const int32_t g : columns) {
      std::memcpy(to, row + g * bytes, static_cast<size_t>(bytes));
      to += bytes;
    }
  };
  for (int p = 0; p < layout.count; ++p) {
    const auto [plane, bytes] = layout.planes[p];
    if (plane == Plane::kColumns) {
      copy_groups(from, bytes);
      from += groups * bytes;
      continue;
    }
    const int64_t rung_bytes = (groups * 5 + 7) / 8, kept_rung_bytes = (kept * 5 + 7) / 8;
    const int64_t stride = plane == Plane::kCodes  ? groups * bytes
                           : plane == Plane::kRows ? bytes
                                                   : rung_bytes;
    for (const int64_t row : kept_rows) {
      const std::byte* at = from + row * stride;
      if (plane == Plane::kRows) {
        std::memcpy(to, at, static_cast<size_t>(bytes));
        to += bytes;
      } else if (plane == Plane::kRungs) {
        std::memset(to, 0, static_cast<size_t>(kept_rung_bytes));
        for (int64_t i = 0; i < kept; ++i) PutRung(to, i, RungAt(at, columns[static_cast<size_t>(i)]));
        to += kept_rung_bytes;
      } else if (p == 0 && std::binary_search(slice.zero_rows.begin(), slice.zero_rows.end(), row)) {
        std::memset(to, layout.zero, static_cast<size_t>(kept * bytes));
        to += kept * bytes;
      } else {
        copy_groups(at, bytes);
      }
    }
    from += rows * stride;
  }
}

}  // namespace cmforge
