// Products of stored matrices with AVX2, FMA and F16C: codes become 32-bit indices by variable shifts, tables of up to
// 16 entries are permuted in registers, larger ones gathered from L1.
#include "kernels/stored.h"

#include <type_traits>

#include "kernels/avx2/avx2.h"

namespace cmforge {
namespace {

struct Vec16 {
  __m256 low, high;
};

inline Vec16 Broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Vec16 Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline Vec16 Fma(Vec16 a, Vec16 b, Vec16 sum) {
  return {_mm256_fmadd_ps(a.low, b.low, sum.low), _mm256_fmadd_ps(a.high, b.high, sum.high)};
}
inline Vec16 LoadF32(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void StoreF32(float* p, Vec16 v) {
  _mm256_storeu_ps(p, v.low);
  _mm256_storeu_ps(p + 8, v.high);
}
inline float HalfToFloat(const std::byte* p) {
  uint16_t half;
  __builtin_memcpy(&half, p, 2);
  return _cvtsh_ss(half);
}
inline Vec16 LoadF16(const std::byte* p) {
  const auto* h = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(h)), _mm256_cvtph_ps(_mm_loadu_si128(h + 1))};
}
inline float Tree(Vec16 v) { return avx2::Tree(v.low, v.high); }

inline __m128i LoadWord(const std::byte* p) { return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)); }

inline void Prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

template <int kBits>
inline Vec16 LoadIntegers(const std::byte* p, bool is_signed) {
  __m128i low, high;  // a byte each
  if constexpr (kBits == 8) {
    low = LoadWord(p);
    high = LoadWord(p + 8);
  } else {
    const __m128i bytes = LoadWord(p), mask = _mm_set1_epi8(15);
    __m128i codes =
        _mm_unpacklo_epi8(_mm_and_si128(bytes, mask), _mm_and_si128(_mm_srli_epi16(bytes, 4), mask));
    if (is_signed) codes = _mm_sub_epi8(_mm_xor_si128(codes, _mm_set1_epi8(8)), _mm_set1_epi8(8));
    low = codes;
    high = _mm_srli_si128(codes, 8);
  }
  const auto widen = [&](__m128i codes) {
    return _mm256_cvtepi32_ps(is_signed ? _mm256_cvtepi8_epi32(codes) : _mm256_cvtepu8_epi32(codes));
  };
  return {widen(low), widen(high)};
}
inline Vec16 Scale(Vec16 code, float offset, float scale) {
  const auto scaled = [&](__m256 v) {
    v = _mm256_mul_ps(_mm256_set1_ps(scale), _mm256_sub_ps(v, _mm256_set1_ps(offset)));
    return _mm256_cvtph_ps(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  };
  return {scaled(code.low), scaled(code.high)};
}

template <int kBits>
class PaletteTable {
 public:
  void Set(const std::byte* halves, const std::byte* scale) {
    constexpr int kEntries = 1 << kBits;
    for (int i = 0; i < (kEntries < 8 ? 8 : kEntries);
         ++i) {  // small tables repeat: high bits of an index are ignored
      float v = HalfToFloat(halves + 2 * (i % kEntries));
      if (scale != nullptr) v = _cvtsh_ss(_cvtss_sh(v * HalfToFloat(scale), _MM_FROUND_TO_NEAREST_INT));
      values_[i] = v;
    }
  }
  void Look(const std::byte* codes, Vec16 (&out)[4]) const {
    for (int k = 0; k < 4; ++k) out[k] = {Eight(codes + 2 * k * kBits), Eight(codes + (2 * k + 1) * kBits)};
  }

 private:
  /// Eight codes fill kBits bytes.
  __m256 Eight(const std::byte* p) const {
    __m256i index;
    if constexpr (kBits == 8) {
      index = _mm256_cvtepu8_epi32(LoadWord(p));
    } else {
      uint64_t word = 0;
      if constexpr (kBits == 3 ||
                    kBits == 6) {  // in two loads: a copy of such a size would go through memory
        std::conditional_t<kBits == 3, uint16_t, uint32_t> low_part;
        std::conditional_t<kBits == 3, uint8_t, uint16_t> high_part;
        __builtin_memcpy(&low_part, p, sizeof low_part);
        __builtin_memcpy(&high_part, p + sizeof low_part, sizeof high_part);
        word = low_part | static_cast<uint64_t>(high_part) << (8 * sizeof low_part);
      } else {
        __builtin_memcpy(&word, p, kBits);
      }
      constexpr int kHalf =
          kBits > 4 ? 4 * kBits : 0;  // 48 bits do not fit a lane: four codes from each half
      const __m128i low = _mm_set1_epi32(static_cast<int>(static_cast<uint32_t>(word)));
      const __m128i high = _mm_set1_epi32(static_cast<int>(static_cast<uint32_t>(word >> kHalf)));
      const __m256i shifts =
          kHalf > 0
              ? _mm256_setr_epi32(0, kBits, 2 * kBits, 3 * kBits, 0, kBits, 2 * kBits, 3 * kBits)
              : _mm256_setr_epi32(0, kBits, 2 * kBits, 3 * kBits, 4 * kBits, 5 * kBits, 6 * kBits, 7 * kBits);
      index = _mm256_srlv_epi32(_mm256_set_m128i(high, low), shifts);
    }
    if constexpr (kBits <= 3) return _mm256_permutevar8x32_ps(_mm256_load_ps(values_), index);
    if constexpr (kBits == 4) {
      const __m256 low = _mm256_permutevar8x32_ps(_mm256_load_ps(values_), index);
      const __m256 high = _mm256_permutevar8x32_ps(_mm256_load_ps(values_ + 8), index);
      return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)));
    }
    index = _mm256_and_si256(index, _mm256_set1_epi32((1 << kBits) - 1));
    return _mm256_i32gather_ps(values_, index, 4);
  }

  alignas(32) float values_[kBits < 3 ? 8 : 1 << kBits];
};

// Two rows by three tokens are twelve accumulators of sixteen registers.
constexpr int kTileRows = 2, kTileTokens = 3;

template <int kTokens>
inline void TileTrees(const Vec16 (&sums)[kTokens][kTileRows], float (&out)[kTokens][kTileRows]) {
  for (int t = 0; t < kTokens; ++t) {
    for (int r = 0; r < kTileRows; ++r) out[t][r] = Tree(sums[t][r]);
  }
}

}  // namespace
}  // namespace cmforge

#include "kernels/stored_body.h"

namespace cmforge {

extern const StoredKernels kStoredAvx2;
const StoredKernels kStoredAvx2 = StoredTable(Isa::kAvx2);

}  // namespace cmforge
