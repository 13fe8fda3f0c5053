// One row of a layer norm.
#pragma once

#include <cstdint>

namespace cmforge::coreml {

/// to[i] = (x[i] - mean) / sqrt(variance + epsilon), all in f64: mean and population variance are sums of sixteen
/// partial sums, partial p takes i = p mod 16. `to` may be x.
void NormalizeRow(const float* x, int64_t count, double epsilon, float* to);

}  // namespace cmforge::coreml
