// A row of activations to int8 with AVX2: one group of 32 is four vectors.
#include "kernels/avx2/avx2.h"

namespace cmforge::avx2 {
namespace {

inline __m256 LoadValues(const float* x, const std::byte* columns, int64_t c, int64_t cols) {
  float values[8] = {};
  uint16_t halves[8] = {};
  const int64_t count = cols - c < 0 ? 0 : cols - c > 8 ? 8 : cols - c;
  __builtin_memcpy(values, x + c, static_cast<size_t>(4 * count));
  const __m256 loaded = count == 8 ? _mm256_loadu_ps(x + c) : _mm256_loadu_ps(values);
  if (columns == nullptr || count == 0) return loaded;
  __builtin_memcpy(halves, columns + 2 * c, static_cast<size_t>(2 * count));
  return _mm256_mul_ps(loaded, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(halves))));
}

inline int32_t Max(__m256i a) {
  __m128i m = _mm_max_epu32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4E));
  return _mm_cvtsi128_si32(_mm_max_epu32(m, _mm_shuffle_epi32(m, 0xB1)));
}

inline int32_t Sum(__m256i a) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1)));
}

}  // namespace

void QuantizeRow(const float* x, const std::byte* columns, int64_t cols, int64_t groups,
                 QuantizedGroup* out) {
  const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
  for (int64_t g = 0; g < groups; ++g) {
    __m256 values[4];
    __m256i max = _mm256_setzero_si256();  // as integers, so that NaN and infinity win
    for (int i = 0; i < 4; ++i) {
      values[i] = LoadValues(x, columns, 32 * g + 8 * i, cols);
      max = _mm256_max_epu32(max, _mm256_and_si256(_mm256_castps_si256(values[i]), magnitude));
    }
    const int32_t max_bits = Max(max);
    float greatest;
    __builtin_memcpy(&greatest, &max_bits, 4);
    const bool is_finite = max_bits < 0x7F800000, is_counted = is_finite && greatest >= 0x1p-100f;
    out[g].scale = !is_finite ? __builtin_nanf("") : is_counted ? greatest / 127.0f : 0.0f;
    const __m256 inverse = _mm256_set1_ps(is_counted ? 127.0f / greatest : 0.0f);
    const __m256i keep = _mm256_set1_epi32(is_finite ? -1 : 0);
    __m256i q[4];
    for (int i = 0; i < 4; ++i)
      q[i] = _mm256_and_si256(keep, _mm256_cvtps_epi32(_mm256_mul_ps(values[i], inverse)));
    const int32_t sum = Sum(_mm256_add_epi32(_mm256_add_epi32(q[0], q[1]), _mm256_add_epi32(q[2], q[3])));
    const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out[g].q), _mm256_permutevar8x32_epi32(bytes, order));
    for (int z = 0; z < 3; ++z) out[g].minus_zero[z] = -kZeroPoints[z] * sum;
  }
}

}  // namespace cmforge::avx2
