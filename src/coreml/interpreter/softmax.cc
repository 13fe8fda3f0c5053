// Softmax in four passes over a row that is in cache.
#include "coreml/interpreter/softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "coreml/interpreter/clones.h"

namespace cmforge::coreml {
namespace {

constexpr int64_t kLanes = 16;
typedef float Lanes __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t Flags __attribute__((vector_size(64)));

/// The largest element; `has_nan` when there is a NaN.
CMF_CLONES float Largest(const float* x, int64_t count, bool* has_nan) {
  float most[kLanes];
  for (float& m : most) m = -std::numeric_limits<float>::infinity();
  Lanes m;
  __builtin_memcpy(&m, most, 64);
  Flags nan{};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Lanes v = *reinterpret_cast<const Lanes*>(x + i);
    m = v > m ? v : m;
    nan |= v != v;
  }
  __builtin_memcpy(most, &m, 64);
  int32_t flags[kLanes];
  __builtin_memcpy(flags, &nan, 64);
  float largest = most[0];
  bool found = false;
  for (int64_t k = 0; k < kLanes; ++k) {
    largest = std::max(largest, most[k]);
    found = found || flags[k] != 0;
  }
  for (; i < count; ++i) {
    largest = std::max(largest, x[i]);
    found = found || x[i] != x[i];
  }
  *has_nan = found;
  return largest;
}

CMF_CLONES void Subtract(const float* x, float y, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = x[i] - y;
}

CMF_CLONES void Multiply(float* x, float y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) x[i] *= y;
}

CMF_CLONES double Sum(const float* x, int64_t count) {
  double partial[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t k = 0; k < kLanes; ++k) partial[k] += static_cast<double>(x[i + k]);
  }
  for (; i < count; ++i) partial[i % kLanes] += static_cast<double>(x[i]);
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t k = 0; k < width; ++k) partial[k] += partial[k + width];
  }
  return partial[0];
}

}  // namespace

void SoftmaxRow(const FloatKernels& kernels, const float* x, int64_t count, float* to) {
  bool has_nan = false;
  const float largest = Largest(x, count, &has_nan);
  if (has_nan || !std::isfinite(largest)) {  // rare, and not what the fast exponential is for
    for (int64_t i = 0; i < count; ++i) to[i] = std::exp(x[i] - largest);
  } else {
    Subtract(x, largest, count, to);
    kernels.exp(to, count, to);
  }
  Multiply(to, static_cast<float>(1.0 / Sum(to, count)), count);
}

}  // namespace cmforge::coreml
