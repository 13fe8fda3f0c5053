// One row of a softmax.
#pragma once

#include <cstdint>

#include "kernels/elementwise.h"

namespace cmforge::coreml {

/// to[i] = exp(x[i] - largest) / sum, with exponentials to 2 units in the last place and their sum in f64: sixteen
/// partial sums, partial p takes i = p mod 16, so that elements of -inf in front (by sixteens) or behind change no bit.
/// `to` may be x. A row without a finite largest element, or with a NaN, becomes what the formula gives.
void SoftmaxRow(const FloatKernels& kernels, const float* x, int64_t count, float* to);

}  // namespace cmforge::coreml
