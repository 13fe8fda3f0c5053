// Inner loops of matrix products, as plain loops over fixed numbers of lanes.
#include "coreml/interpreter/dot.h"

#include <algorithm>

#include "coreml/interpreter/clones.h"

namespace cmforge::coreml {
namespace {

constexpr int64_t kLanes = 16;
constexpr int64_t kRows = 4;  // rows of x that share one pass over w

inline float Tree(const float* a) {
  float b[8], c[4];
  for (int i = 0; i < 8; ++i) b[i] = a[i] + a[i + 8];
  for (int i = 0; i < 4; ++i) c[i] = b[i] + b[i + 4];
  return (c[0] + c[2]) + (c[1] + c[3]);
}

}  // namespace

CMF_CLONES void DotRows(const float* __restrict w, int64_t cols, const float* __restrict x, int64_t x_stride,
                        int64_t count, float bias, float* __restrict out, int64_t out_stride) {
  typedef float Lanes __attribute__((vector_size(64), aligned(4)));
  const int64_t whole = cols / kLanes * kLanes;
  int64_t s = 0;
  for (; s + kRows <= count; s += kRows) {
    Lanes a0{}, a1{}, a2{}, a3{};
    const float* x0 = x + s * x_stride;
    const float* x1 = x0 + x_stride;
    const float* x2 = x1 + x_stride;
    const float* x3 = x2 + x_stride;
    for (int64_t c = 0; c < whole; c += kLanes) {
      const Lanes v = *reinterpret_cast<const Lanes*>(w + c);
      a0 += v * *reinterpret_cast<const Lanes*>(x0 + c);
      a1 += v * *reinterpret_cast<const Lanes*>(x1 + c);
      a2 += v * *reinterpret_cast<const Lanes*>(x2 + c);
      a3 += v * *reinterpret_cast<const Lanes*>(x3 + c);
    }
    float sums[kRows][kLanes];
    __builtin_memcpy(sums[0], &a0, 64);
    __builtin_memcpy(sums[1], &a1, 64);
    __builtin_memcpy(sums[2], &a2, 64);
    __builtin_memcpy(sums[3], &a3, 64);
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t c = whole; c < cols; ++c) sums[r][c - whole] += w[c] * x[(s + r) * x_stride + c];
      out[(s + r) * out_stride] = Tree(sums[r]) + bias;
    }
  }
  for (; s < count; ++s) {
    Lanes a{};
    const float* row = x + s * x_stride;
    for (int64_t c = 0; c < whole; c += kLanes) {
      a += *reinterpret_cast<const Lanes*>(w + c) * *reinterpret_cast<const Lanes*>(row + c);
    }
    float sums[kLanes];
    __builtin_memcpy(sums, &a, 64);
    for (int64_t c = whole; c < cols; ++c) sums[c - whole] += w[c] * row[c];
    out[s * out_stride] = Tree(sums) + bias;
  }
}

CMF_CLONES void CombineRows(const float* __restrict x, int64_t x_stride, const float* __restrict y,
                            int64_t depth, int64_t cols, float* __restrict out) {
  constexpr int64_t kBlock = 64;
  for (int64_t n = 0; n < cols; n += kBlock) {
    const int64_t width = std::min(kBlock, cols - n);
    float sums[kBlock] = {};
    if (width == kBlock) {
      for (int64_t k = 0; k < depth; ++k) {
        const float v = x[k * x_stride];
        const float* row = y + k * cols + n;
        for (int64_t i = 0; i < kBlock; ++i) sums[i] += v * row[i];
      }
    } else {
      for (int64_t k = 0; k < depth; ++k) {
        const float v = x[k * x_stride];
        const float* row = y + k * cols + n;
        for (int64_t i = 0; i < width; ++i) sums[i] += v * row[i];
      }
    }
    for (int64_t i = 0; i < width; ++i) out[n + i] = sums[i];
  }
}

}  // namespace cmforge::coreml
