// Part of a matrix in its own encoding: whole groups of 32 rows and of 32 columns, copied bit by bit, so that nothing
// is rounded anew.
#pragma once

#include <cstdint>
#include <span>

#include "model/tensor_source.h"

namespace cmforge {

/// Groups of 32, ascending.
struct MatrixSlice {
  std::span<const int32_t> row_groups, column_groups;  // empty: all
  std::span<const int64_t> zero_rows;  // rows of the whole matrix, ascending, that become zeros
};

/// Whether a matrix can be cut so: its groups lie at fixed places (not vbit, not the overlays of q1s and q1t), and the
/// dimensions to be cut are multiples of 32.
[[nodiscard]] bool CanSlice(DType dtype, std::span<const int64_t> shape, const MatrixSlice& slice);
[[nodiscard]] Shape SlicedShape(std::span<const int64_t> shape, const MatrixSlice& slice);

/// Writes the payload of the slice. `matrix`: a checked payload that CanSlice; `out`: the encoding's payload_size of
/// SlicedShape.
void SliceMatrix(const TensorView& matrix, const MatrixSlice& slice, std::span<std::byte> out);

}  // namespace cmforge
