// The two inner loops of every matrix product. Each result depends on its own operands alone: not on how many
// rows are computed together, and (contraction is off) not on the instruction set.
#pragma once

#include <cstdint>

namespace cmforge::coreml {

/// out[s * out_stride] = bias + sum over c of w[c] * x[s * x_stride + c], for s in [0, count).
/// Sixteen partial sums, partial p takes c = p mod 16 in ascending order; then a tree.
void DotRows(const float* w, int64_t cols, const float* x, int64_t x_stride, int64_t count, float bias,
             float* out, int64_t out_stride);

/// out[n] = sum over k ascending of x[k * x_stride] * y[k * cols + n], for n in [0, cols).
void CombineRows(const float* x, int64_t x_stride, const float* y, int64_t depth, int64_t cols, float* out);

}  // namespace cmforge::coreml
