// Float products with AVX2 and FMA.
#include <immintrin.h>

#include "kernels/avx2/avx2.h"

namespace cmforge {
namespace {

struct Vec16 {
  __m256 low, high;
};

inline Vec16 Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline Vec16 Fma(Vec16 a, Vec16 b, Vec16 sum) {
  return {_mm256_fmadd_ps(a.low, b.low, sum.low), _mm256_fmadd_ps(a.high, b.high, sum.high)};
}
inline Vec16 LoadF32(const void* p) {
  const auto* f = static_cast<const float*>(p);
  return {_mm256_loadu_ps(f), _mm256_loadu_ps(f + 8)};
}
inline Vec16 LoadF16(const void* p) {
  const auto* h = static_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(h)), _mm256_cvtph_ps(_mm_loadu_si128(h + 1))};
}
inline Vec16 LoadBf16(const void* p) {
  const auto* h = static_cast<const __m128i*>(p);
  const auto widen = [](__m128i x) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
  };
  return {widen(_mm_loadu_si128(h)), widen(_mm_loadu_si128(h + 1))};
}
inline void StoreTrees(const Vec16 (&sums)[4], int64_t rows, float* out) {
  for (int64_t r = 0; r < rows; ++r) out[r] = avx2::Tree(sums[r].low, sums[r].high);
}
inline void Prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

// Two rows by three tokens are twelve accumulators of sixteen registers.
constexpr int kTileRows = 2, kMaxTokens = 3;

}  // namespace
}  // namespace cmforge

#include "kernels/float_body.h"

namespace cmforge::avx2 {

void FloatProduct(const WeightLayout& w, int64_t row_begin, int64_t row_end, const TokenRows& x, float* out,
                  int64_t out_stride, std::byte* scratch) {
  cmforge::FloatProduct(w, row_begin, row_end, x, out, out_stride, scratch);
}
int64_t FloatScratchBytes(const WeightLayout& w) { return cmforge::FloatScratchBytes(w); }

}  // namespace cmforge::avx2
