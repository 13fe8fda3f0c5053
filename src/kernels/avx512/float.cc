// Float products in 512-bit vectors.
#include "kernels/avx512/integer.h"

namespace cmforge {
namespace {

using Vec16 = __m512;

CMFORGE_INLINE Vec16 Zero() { return _mm512_setzero_ps(); }
CMFORGE_INLINE Vec16 Fma(Vec16 a, Vec16 b, Vec16 sum) { return _mm512_fmadd_ps(a, b, sum); }
CMFORGE_INLINE Vec16 LoadF32(const void* p) { return _mm512_loadu_ps(p); }
CMFORGE_INLINE Vec16 LoadF16(const void* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
}
CMFORGE_INLINE Vec16 LoadBf16(const void* p) {
  const __m512i words = _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
}
CMFORGE_INLINE void Prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

CMFORGE_INLINE void StoreTrees(const Vec16 (&sums)[4], int64_t rows, float* out) {
  const auto four = [](__m512 v) {
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    return _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  };
  __m128 p0 = four(sums[0]), p1 = four(sums[1]), p2 = four(sums[2]), p3 = four(sums[3]);
  _MM_TRANSPOSE4_PS(p0, p1, p2, p3);
  const __m128 y = _mm_add_ps(_mm_add_ps(p0, p2), _mm_add_ps(p1, p3));
  _mm_mask_storeu_ps(out, static_cast<__mmask8>((1 << rows) - 1), y);
}

// Four rows by six tokens are 24 accumulators, with four weights and one activation beside them.
constexpr int kTileRows = 4, kMaxTokens = 6;

}  // namespace
}  // namespace cmforge

#include "kernels/float_body.h"

namespace cmforge {

int64_t avx512::FloatScratchBytes(const WeightLayout& w) { return cmforge::FloatScratchBytes(w); }

CMFORGE_PRODUCT(avx512::FloatProduct) {
  cmforge::FloatProduct(w, row_begin, row_end, x, out, out_stride, scratch);
}

}  // namespace cmforge
