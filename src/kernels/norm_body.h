// RMS and L2 norms of one row; included once by each instruction set's file.
#pragma once

#include <cmath>

#include "kernels/elementwise_vec.h"

namespace cmforge {
namespace {

/// Sum of squares in f64 with eight interleaved partial sums: the same order for every vector width.
CMFORGE_INLINE double SumOfSquares(const float* x, int64_t n) {
  double part[8] = {};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (int j = 0; j < 8; ++j) {
      const auto value = static_cast<double>(x[i + j]);
      part[j] += value * value;
    }
  }
  for (int j = 0; i < n; ++i, ++j) part[j] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return ((part[0] + part[4]) + (part[2] + part[6])) + ((part[1] + part[5]) + (part[3] + part[7]));
}

void RmsNorm(const float* x, const float* weight, double eps, int64_t n, float* y) {
  const auto factor = static_cast<float>(1.0 / std::sqrt(SumOfSquares(x, n) / static_cast<double>(n) + eps));
  if (weight == nullptr) {
    Map(x, n, y, [=](VecF v) { return v * Set(factor); });
  } else {
    Map(x, weight, n, y, [=](VecF v, VecF w) { return v * Set(factor) * w; });
  }
}

void L2Norm(const float* x, double eps, float scale, int64_t n, float* y) {
  const auto factor = static_cast<float>(static_cast<double>(scale) / std::sqrt(SumOfSquares(x, n) + eps));
  Map(x, n, y, [=](VecF v) { return v * Set(factor); });
}

}  // namespace
}  // namespace cmforge
