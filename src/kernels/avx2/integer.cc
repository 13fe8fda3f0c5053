// Integer products with AVX2, and the table. A group's 32 products go through one multiply-add of bytes:
// codes below 16 as they are; wide codes as |code| times the activation with the code's sign, since two
// products of an unsigned byte and a signed one may not fit 16 bits.
namespace cmforge {
namespace {
constexpr int kDotTokens = 4;
}  // namespace
}  // namespace cmforge

#include "kernels/avx2/avx2.h"
#include "kernels/avx2/unpack.h"
#include "kernels/integer_body.h"

namespace cmforge {
namespace {

template <bool kIsSmall>
inline __m256i GroupDot(__m256i codes, const int8_t* q) {
  const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(q)), ones = _mm256_set1_epi16(1);
  if constexpr (kIsSmall) return _mm256_madd_epi16(_mm256_maddubs_epi16(codes, x), ones);
  return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(x, codes)), ones);
}

/// Lane g: the sum of the g-th vector's lanes.
inline __m256i SumsOfEach(const __m256i (&v)[8]) {
  const __m256i a = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
  const __m256i b = _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7]));
  return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
}

template <int kTokens, bool kIsSmall, bool kHasScales>
inline void Dot(const UnpackedRow& row, const ArrangedToken (&x)[kTokens], float (&y)[kTokens]) {
  __m256 partials[kTokens][2];
  for (int t = 0; t < kTokens; ++t) partials[t][0] = partials[t][1] = _mm256_setzero_ps();
  for (int64_t g = 0; g < row.groups; g += kPartials) {
    for (int half = 0; half < 2; ++half) {
      const int64_t first = g + 8 * half;
      __m256i codes[8];
      for (int i = 0; i < 8; ++i) {
        codes[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row.codes + (first + i) * kGroupSize));
        if constexpr (!kIsSmall)
          codes[i] = _mm256_xor_si256(codes[i], _mm256_set1_epi8(static_cast<char>(0x80)));
      }
      for (int t = 0; t < kTokens; ++t) {
        __m256i dots[8];
        for (int i = 0; i < 8; ++i) dots[i] = GroupDot<kIsSmall>(codes[i], x[t].q + (first + i) * kGroupSize);
        const __m256i corrections =
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x[t].corrections + first));
        const __m256 sums = _mm256_cvtepi32_ps(_mm256_add_epi32(SumsOfEach(dots), corrections));
        __m256 scales = _mm256_loadu_ps(x[t].scales + first);
        if constexpr (kHasScales) scales = _mm256_mul_ps(_mm256_loadu_ps(row.scales + first), scales);
        partials[t][half] = _mm256_fmadd_ps(sums, scales, partials[t][half]);
      }
    }
  }
  for (int t = 0; t < kTokens; ++t) y[t] = avx2::Tree(partials[t][0], partials[t][1]);
}

template <int kTokens>
void DotRow(const UnpackedRow& row, const ArrangedToken (&x)[kTokens], float (&y)[kTokens]) {
  if (row.scales == nullptr) return Dot<kTokens, false, false>(row, x, y);
  if (row.is_small) return Dot<kTokens, true, true>(row, x, y);
  return Dot<kTokens, false, true>(row, x, y);
}

int64_t ScratchBytes(const WeightLayout& w, int64_t, bool is_exact) {
  return is_exact ? avx2::FloatScratchBytes(w) : IntegerScratchBytes(w);
}

}  // namespace

const KernelTable kAvx2Table = {
    .isa = Isa::kAvx2,
    .quantize = avx2::QuantizeRow,
    .integer = {nullptr, nullptr, nullptr, IntegerProduct, IntegerProduct, nullptr, nullptr, nullptr,
                IntegerProduct, IntegerProduct, IntegerProduct, IntegerProduct, IntegerProduct,
                IntegerProduct, IntegerProduct, IntegerProduct, IntegerProduct},
    .exact = avx2::FloatProduct,
    .live = LiveProduct,
    .arranged_bytes = ArrangedBytes,
    .arrange = Arrange,
    .scratch_bytes = ScratchBytes,
    .row_grain = RowGrain,
};

}  // namespace cmforge
