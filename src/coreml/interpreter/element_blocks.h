// Elementwise arithmetic on blocks of floats that are in cache: what chains of operations are made of. The same
// numbers as the operations by themselves (kernels_elementwise.cc).
#pragma once

#include <cstdint>
#include <string_view>

namespace cmforge::coreml {

/// out[i] = op(a[i * a_step], b[i * b_step]); a step is 1 or 0. `out` may be a or b.
using BinaryBlock = void (*)(const float* a, int64_t a_step, const float* b, int64_t b_step, int64_t count,
                             float* out);
/// Null when chains do not have the operation.
[[nodiscard]] BinaryBlock FindBinaryBlock(std::string_view op);

using FloatFunction = float (*)(float x);
/// Operations of one input without parameters.
[[nodiscard]] FloatFunction FindFloatFunction(std::string_view op);

/// A function's results for all 65536 halves, rounded to halves: what it gives for rounded inputs, at the price of a
/// load. Made when first asked for, then shared by all. Any thread.
[[nodiscard]] const uint16_t* HalfTableOf(FloatFunction fn);
/// out[i] = table[x[i]] of numbers that are halves; `out` may be x.
void LookUpHalves(const uint16_t* table, const float* x, int64_t count, float* out);

}  // namespace cmforge::coreml
