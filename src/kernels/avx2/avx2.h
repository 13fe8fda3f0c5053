// The AVX2 functions that the table names, and the tree of partial sums that they share.
#pragma once

#include <immintrin.h>

#include "kernels/table.h"

namespace cmforge::avx2 {

void FloatProduct(const WeightLayout& w, int64_t row_begin, int64_t row_end, const TokenRows& x, float* out,
                  int64_t out_stride, std::byte* scratch);
int64_t FloatScratchBytes(const WeightLayout& w);
void QuantizeRow(const float* x, const std::byte* columns, int64_t cols, int64_t groups, QuantizedGroup* out);

namespace {

/// The tree of table.h: partial sums 0-7 and 8-15.
inline float Tree(__m256 low, __m256 high) {
  const __m256 eight = _mm256_add_ps(low, high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

}  // namespace
}  // namespace cmforge::avx2
