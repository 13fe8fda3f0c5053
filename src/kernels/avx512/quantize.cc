// A row of activations to int8, four groups at a time, so that what is done once a group is done by vectors.
#include "kernels/avx512/integer.h"

namespace cmforge::avx512 {
namespace {

template <bool kIsPlain>
CMFORGE_INLINE __m512 LoadValues(const float* x, const std::byte* columns, int64_t c, int64_t cols) {
  if constexpr (kIsPlain) return _mm512_loadu_ps(x + c);
  const __mmask16 mask = LowLanes(cols - c);
  const __m512 values = _mm512_maskz_loadu_ps(mask, x + c);
  if (columns == nullptr) return values;
  return _mm512_maskz_mul_ps(mask, values, _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, columns + 2 * c)));
}

/// Word r: the greatest lane of the r-th vector, unsigned.
CMFORGE_INLINE __m128i MaxOfEach(__m512i a, __m512i b, __m512i c, __m512i d) {
  const __m512i ab = _mm512_max_epu32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
  const __m512i cd = _mm512_max_epu32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
  const __m512i max = _mm512_max_epu32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
  const __m256i half = _mm256_max_epu32(_mm512_castsi512_si256(max), _mm512_extracti32x8_epi32(max, 1));
  return _mm_max_epu32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

/// The sums of four groups' bytes, two groups in each vector as _mm512_packs_epi32 and _mm512_packs_epi16 leave them:
/// of every four words, two belong to the first.
CMFORGE_INLINE __m128i SumOfEach(__m512i ab, __m512i cd) {
  const __m512i ones = _mm512_set1_epi8(1), zero = _mm512_setzero_si512();
  ab = _mm512_dpbusd_epi32(zero, ones, ab);
  cd = _mm512_dpbusd_epi32(zero, ones, cd);
  // (a, c) and (b, d), twice each; then (a, b, c, d).
  const __m512i sums = _mm512_add_epi32(_mm512_shuffle_epi32(ab, _MM_PERM_CDAB), ab),
                other = _mm512_add_epi32(_mm512_shuffle_epi32(cd, _MM_PERM_CDAB), cd);
  const __m512i all = _mm512_castps_si512(
      _mm512_shuffle_ps(_mm512_castsi512_ps(sums), _mm512_castsi512_ps(other), _MM_SHUFFLE(2, 0, 2, 0)));
  const __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti32x8_epi32(all, 1));
  return _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

/// Four groups, from column c. Plain: all of them exist, and nothing is multiplied first.
template <bool kIsPlain>
CMFORGE_INLINE void QuantizeFour(const float* x, const std::byte* columns, int64_t c, int64_t cols,
                                 QuantizedGroup* out) {
  const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
  __m512 low[4], high[4];
  __m512i max[4];
  for (int i = 0; i < 4; ++i) {
    low[i] = LoadValues<kIsPlain>(x, columns, c + 32 * i, cols);
    high[i] = LoadValues<kIsPlain>(x, columns, c + 32 * i + 16, cols);
    // As integers, so that NaN and infinity win.
    max[i] = _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(low[i]), magnitude),
                              _mm512_and_si512(_mm512_castps_si512(high[i]), magnitude));
  }
  const __m128i max_bits = MaxOfEach(max[0], max[1], max[2], max[3]);
  const __m128 greatest = _mm_castsi128_ps(max_bits), steps = _mm_set1_ps(127.0f);
  const __mmask8 is_finite = _mm_cmplt_epu32_mask(max_bits, _mm_set1_epi32(0x7F800000));
  const __mmask8 is_counted = is_finite & _mm_cmp_ps_mask(greatest, _mm_set1_ps(0x1p-100f), _CMP_GE_OQ);
  __m128 scales = _mm_maskz_div_ps(is_counted, greatest, steps);
  scales = _mm_mask_mov_ps(_mm_set1_ps(__builtin_nanf("")), is_finite, scales);
  const __m512 inverses = _mm512_castps128_ps512(_mm_maskz_div_ps(is_counted, steps, greatest));
  __m512i words[4];
  for (int i = 0; i < 4; ++i) {
    const __m512 inverse = _mm512_permutexvar_ps(_mm512_set1_epi32(i), inverses);
    const __mmask16 keep = (is_finite >> i & 1) != 0 ? 0xFFFF : 0;
    words[i] = _mm512_packs_epi32(_mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(low[i], inverse)),
                                  _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(high[i], inverse)));
  }
  const __m512i pairs[2] = {_mm512_packs_epi16(words[0], words[1]), _mm512_packs_epi16(words[2], words[3])};
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  for (int i = 0; i < 2; ++i) {
    const __m512i bytes = _mm512_permutexvar_epi32(order, pairs[i]);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out[2 * i].q), _mm512_castsi512_si256(bytes));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out[2 * i + 1].q), _mm512_extracti64x4_epi64(bytes, 1));
  }
  const __m128i sum = SumOfEach(pairs[0], pairs[1]);
  // Each group's (scale, -8 sum, -127 sum, -128 sum): a 4x4 transposition.
  const __m128i eight = _mm_slli_epi32(sum, 3), most = _mm_slli_epi32(sum, 7), zero = _mm_setzero_si128();
  const __m128i minus_128 = _mm_sub_epi32(zero, most);
  __m128 tails[4] = {scales, _mm_castsi128_ps(_mm_sub_epi32(zero, eight)),
                     _mm_castsi128_ps(_mm_add_epi32(minus_128, sum)), _mm_castsi128_ps(minus_128)};
  _MM_TRANSPOSE4_PS(tails[0], tails[1], tails[2], tails[3]);
  for (int i = 0; i < 4; ++i) _mm_storeu_ps(&out[i].scale, tails[i]);
}

}  // namespace

void QuantizeRow(const float* x, const std::byte* columns, int64_t cols, int64_t groups,
                 QuantizedGroup* out) {
  for (int64_t g = 0; g < groups; g += kGroupPad) {
    if (columns == nullptr && 32 * (g + kGroupPad) <= cols) {
      QuantizeFour<true>(x, nullptr, 32 * g, cols, out + g);
    } else {
      QuantizeFour<false>(x, columns, 32 * g, cols, out + g);
    }
  }
}

}  // namespace cmforge::avx512
