// RMS and L2 norms of one row; included once by each instruction set's file.
#pragma once

#include <cmath>

#include "kernels/elementwise_vec.h"

namespace cmforge {
namespace {

typedef double VecD8 __attribute__((vector_size(64)));
typedef float VecF8 __attribute__((vector_size(32), aligned(4), may_alias));

/// Sum of squares in f64 with eight interleaved partial sums: the same order for every vector width.
CMFORGE_INLINE double SumOfSquares(const float* x, int64_t n) {
  VecD8 part = {};
  const auto add = [&](const float* at) {
    const VecD8 value = __builtin_convertvector(*reinterpret_cast<const VecF8*>(at), VecD8);
    part += value * value;
  };
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) add(x + i);
  if (i < n) {
    float rest[8] = {};
    std::memcpy(rest, x + i, static_cast<size_t>(n - i) * sizeof(float));
    add(rest);
  }
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
