// Sums by sixteen lanes, so that they are vector code.
#include "coreml/interpreter/norm_row.h"

#include <cmath>

#include "coreml/interpreter/clones.h"

namespace cmforge::coreml {

CMF_CLONES void NormalizeRow(const float* x, int64_t count, double epsilon, float* to) {
  constexpr int64_t kLanes = 16;
  typedef double Lanes __attribute__((vector_size(8 * kLanes)));
  typedef float Floats __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));
  const int64_t whole = count / kLanes * kLanes;
  const auto tree = [](const Lanes& lanes) {
    double sums[kLanes];
    __builtin_memcpy(sums, &lanes, sizeof(sums));
    for (int64_t width = kLanes / 2; width > 0; width /= 2) {
      for (int64_t k = 0; k < width; ++k) sums[k] += sums[k + width];
    }
    return sums[0];
  };
  Lanes sum{};
  for (int64_t i = 0; i < whole; i += kLanes)
    sum += __builtin_convertvector(*reinterpret_cast<const Floats*>(x + i), Lanes);
  for (int64_t i = whole; i < count; ++i) sum[i - whole] += static_cast<double>(x[i]);
  const double mean = tree(sum) / static_cast<double>(count);
  Lanes squares{};
  for (int64_t i = 0; i < whole; i += kLanes) {
    const Lanes d = __builtin_convertvector(*reinterpret_cast<const Floats*>(x + i), Lanes) - mean;
    squares += d * d;
  }
  for (int64_t i = whole; i < count; ++i) {
    const double d = static_cast<double>(x[i]) - mean;
    squares[i - whole] += d * d;
  }
  const double inverse = 1.0 / std::sqrt(tree(squares) / static_cast<double>(count) + epsilon);
  for (int64_t i = 0; i < count; ++i)
    to[i] = static_cast<float>((static_cast<double>(x[i]) - mean) * inverse);
}

}  // namespace cmforge::coreml
