// Products of stored matrices with AVX-512. Codes of up to four bits find floats: one vpmultishiftqb spreads sixteen codes
// and one vpermps looks them up. A larger table is held as the bytes of its entries as floats: three planes, since the
// lowest byte of a half is zero. One vpermb looks up a plane for 64 codes of six bits (two vpermt2b and a blend for eight
// bits), and interleaving bytes, then words, makes floats: no conversion and no way through memory.
#include "kernels/stored.h"

#include "kernels/avx512/common.h"

namespace cmforge {
namespace {

using Vec16 = __m512;

CMFORGE_INLINE Vec16 Broadcast(float x) { return _mm512_set1_ps(x); }
CMFORGE_INLINE Vec16 Zero() { return _mm512_setzero_ps(); }
CMFORGE_INLINE Vec16 Fma(Vec16 a, Vec16 b, Vec16 sum) { return _mm512_fmadd_ps(a, b, sum); }
CMFORGE_INLINE Vec16 LoadF32(const float* p) { return _mm512_loadu_ps(p); }
CMFORGE_INLINE void StoreF32(float* p, Vec16 v) { _mm512_storeu_ps(p, v); }
CMFORGE_INLINE float HalfToFloat(const std::byte* p) { return HalfAt(p); }
CMFORGE_INLINE Vec16 LoadF16(const std::byte* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
CMFORGE_INLINE float Tree(Vec16 v) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

CMFORGE_INLINE void Prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

template <int kBits>
CMFORGE_INLINE Vec16 LoadIntegers(const std::byte* p, bool is_signed) {
  __m128i codes;
  if constexpr (kBits == 8) {
    codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  } else {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)), mask = _mm_set1_epi8(15);
    codes = _mm_unpacklo_epi8(_mm_and_si128(bytes, mask), _mm_and_si128(_mm_srli_epi16(bytes, 4), mask));
    if (is_signed) codes = _mm_sub_epi8(_mm_xor_si128(codes, _mm_set1_epi8(8)), _mm_set1_epi8(8));
  }
  return _mm512_cvtepi32_ps(is_signed ? _mm512_cvtepi8_epi32(codes) : _mm512_cvtepu8_epi32(codes));
}
CMFORGE_INLINE Vec16 Scale(Vec16 code, float offset, float scale) {
  const __m512 v = _mm512_mul_ps(_mm512_set1_ps(scale), _mm512_sub_ps(code, _mm512_set1_ps(offset)));
  return _mm512_cvtph_ps(_mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

/// 0 to 63.
CMFORGE_INLINE __m512i ByteNumbers() {
  return _mm512_set_epi8(63, 62, 61, 60, 59, 58, 57, 56, 55, 54, 53, 52, 51, 50, 49, 48, 47, 46, 45, 44, 43,
                         42, 41, 40, 39, 38, 37, 36, 35, 34, 33, 32, 31, 30, 29, 28, 27, 26, 25, 24, 23, 22,
                         21, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
}

/// The entries of a table of halves, times a scale where there is one.
CMFORGE_INLINE __m512 SixteenEntries(const std::byte* halves, const std::byte* scale) {
  const __m512 v = LoadF16(halves);
  if (scale == nullptr) return v;
  return _mm512_cvtph_ps(
      _mm512_cvtps_ph(_mm512_mul_ps(_mm512_set1_ps(HalfAt(scale)), v), _MM_FROUND_TO_NEAREST_INT));
}

/// Where a table is, in a way that keeps it there: those of four rows would fill the registers, and sums would lie in
/// memory instead.
template <class T>
[[nodiscard]] CMFORGE_INLINE const T* InMemory(const T* at) {
  __asm__ volatile("" : "+r"(at));
  return at;
}

/// The code that must lie at a place so that interleaving within lanes leaves ascending vectors: a 4x4 transposition of
/// groups of four.
CMFORGE_INLINE constexpr int CodeAt(int place) { return place / 4 % 4 * 16 + place / 16 * 4 + place % 4; }

/// Codes of up to four bits.
template <int kBits>
class PaletteTable {
 public:
  CMFORGE_INLINE void Set(const std::byte* halves, const std::byte* scale) {
    alignas(32) std::byte repeated[32];  // what is above the bits of a code is ignored
    for (int i = 0; i < 16; i += kEntries) __builtin_memcpy(repeated + 2 * i, halves, 2 * kEntries);
    _mm512_store_ps(entries_, SixteenEntries(repeated, scale));
  }

  using Held = __m512i;
  [[nodiscard]] CMFORGE_INLINE Held Hold() const { return LoadBytes(InMemory(entries_)); }

  template <class Use>
  static CMFORGE_INLINE void Look(Held entries, const std::byte* at, Use&& use) {
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      // The eight bytes that end with sixteen codes, or the first eight.
      const int from = 2 * kBits * (k + 1) < 8 ? 0 : 2 * kBits * (k + 1) - 8;
      int64_t word;
      __builtin_memcpy(&word, at + from, sizeof word);
      const __m512i codes =
          _mm512_multishift_epi64_epi8(Shifts(16 * kBits * k - 8 * from), _mm512_set1_epi64(word));
      use(k, _mm512_castsi512_ps(_mm512_permutexvar_epi32(codes, entries)));
    }
  }
  template <class Use>
  CMFORGE_INLINE void Look(const std::byte* at, Use&& use) const {
    Look(Hold(), at, use);
  }

 private:
  static constexpr int kEntries = 1 << kBits;

  /// Lane i's lowest byte begins with its code, where the first code begins at bit `first`.
  static CMFORGE_INLINE __m512i Shifts(int first) {
    Bytes64 b{};
    for (int i = 0; i < 16; ++i) b.at[4 * i] = static_cast<uint8_t>((first + i * kBits) % 64);
    return LoadBytes(b.at);
  }

  alignas(64) float entries_[16];
};

/// Codes of six or eight bits.
template <int kBits>
requires(kBits > 4) class PaletteTable<kBits> {
  static constexpr int kEntries = 1 << kBits, kPlanes = 3, kParts = kEntries / 64;

 public:
  CMFORGE_INLINE void Set(const std::byte* halves, const std::byte* scale) {
    for (int at = 0; at < kEntries; at += 64) {
      __m512i entries[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i)
        entries[i] = _mm512_castps_si512(SixteenEntries(halves + 2 * (at + 16 * i), scale));
#pragma GCC unroll 3
      for (int plane = 0; plane < kPlanes; ++plane)
        _mm512_store_si512(planes_[plane] + at, PlaneOf(entries, plane + 1));
    }
  }

  struct Held {
    __m512i planes[kPlanes][kParts];
  };
  [[nodiscard]] CMFORGE_INLINE Held Hold() const {
    const uint8_t* planes = InMemory(planes_[0]);
    Held held;
#pragma GCC unroll 3
    for (int plane = 0; plane < kPlanes; ++plane) {
#pragma GCC unroll 4
      for (int part = 0; part < kParts; ++part)
        held.planes[plane][part] = LoadBytes(planes + plane * kEntries + 64 * part);
    }
    return held;
  }

  template <class Use>
  static CMFORGE_INLINE void Look(const Held& held, const std::byte* at, Use&& use) {
    __m512i plane[kPlanes];
    if constexpr (kBits == 8) {
      const __m512i order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
      const __m512i codes = _mm512_permutexvar_epi32(order, LoadBytes(at));
      const __mmask64 is_upper = _mm512_movepi8_mask(codes);
#pragma GCC unroll 3
      for (int i = 0; i < kPlanes; ++i) {
        const __m512i(&part)[kParts] = held.planes[i];
        plane[i] = _mm512_mask_blend_epi8(is_upper, _mm512_permutex2var_epi8(part[0], codes, part[1]),
                                          _mm512_permutex2var_epi8(part[2], codes, part[3]));
      }
    } else {
      // Eight codes are six bytes: four codes to each half of a 64-bit lane, then each code to the low bits of a byte.
      const __m512i bytes = _mm512_permutexvar_epi8(Spread(), LoadBytes(at, LowBytes(8 * kBits)));
      const __m512i codes = _mm512_multishift_epi64_epi8(Shifts(), bytes);
#pragma GCC unroll 3
      for (int i = 0; i < kPlanes; ++i) plane[i] = _mm512_permutexvar_epi8(codes, held.planes[i][0]);
    }
    const __m512i zero = _mm512_setzero_si512();
    const __m512i low0 = _mm512_unpacklo_epi8(zero, plane[0]), low1 = _mm512_unpackhi_epi8(zero, plane[0]);
    const __m512i high0 = _mm512_unpacklo_epi8(plane[1], plane[2]),
                  high1 = _mm512_unpackhi_epi8(plane[1], plane[2]);
    use(0, _mm512_castsi512_ps(_mm512_unpacklo_epi16(low0, high0)));
    use(1, _mm512_castsi512_ps(_mm512_unpackhi_epi16(low0, high0)));
    use(2, _mm512_castsi512_ps(_mm512_unpacklo_epi16(low1, high1)));
    use(3, _mm512_castsi512_ps(_mm512_unpackhi_epi16(low1, high1)));
  }
  template <class Use>
  CMFORGE_INLINE void Look(const std::byte* at, Use&& use) const {
    Look(Hold(), at, use);
  }

 private:
  /// Byte `byte` of each of 64 entries.
  static CMFORGE_INLINE __m512i PlaneOf(const __m512i* entries, int byte) {
    const __m512i lane = _mm512_and_si512(ByteNumbers(), _mm512_set1_epi8(31));
    const __m512i index =
        _mm512_or_si512(_mm512_slli_epi16(lane, 2), _mm512_set1_epi8(static_cast<char>(byte)));
    return _mm512_mask_blend_epi8(__mmask64{0xFFFFFFFF} << 32,
                                  _mm512_permutex2var_epi8(entries[0], index, entries[1]),
                                  _mm512_permutex2var_epi8(entries[2], index, entries[3]));
  }

  static CMFORGE_INLINE __m512i Spread() {
    Bytes64 b{};
    for (int lane = 0; lane < 8; ++lane) {
      for (int i = 0; i < 8; ++i) {
        // The first bytes of both groups of four, then theirs.
        const int bit = CodeAt(8 * lane + i / 4 * 4) * kBits;
        b.at[8 * lane + i] = static_cast<uint8_t>(bit / 8 + (i % 4 < (kBits + 1) / 2 ? i % 4 : 0));
      }
    }
    return LoadBytes(b.at);
  }
  static CMFORGE_INLINE __m512i Shifts() {
    Bytes64 b{};
    for (int i = 0; i < 64; ++i) {
      const int bit = CodeAt(i / 4 * 4) * kBits;
      b.at[i] = static_cast<uint8_t>(i % 8 / 4 * 32 + bit % 8 + i % 4 * kBits);
    }
    return LoadBytes(b.at);
  }

  alignas(64) uint8_t planes_[kPlanes][kEntries];
};

// Four rows by six tokens are 24 accumulators, with four weights and one activation beside them.
constexpr int kTileRows = 4, kTileTokens = 6;

/// The trees of four vectors, which share their last steps.
CMFORGE_INLINE __m128 Trees4(const Vec16* sums) {
  const auto four = [](__m512 v) {
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    return _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  };
  __m128 p0 = four(sums[0]), p1 = four(sums[1]), p2 = four(sums[2]), p3 = four(sums[3]);
  _MM_TRANSPOSE4_PS(p0, p1, p2, p3);
  return _mm_add_ps(_mm_add_ps(p0, p2), _mm_add_ps(p1, p3));
}

/// The trees of sixteen: every step halves the vectors, two shuffles and an addition for each that is left.
CMFORGE_INLINE Vec16 Trees16(const Vec16* sums) {
  // Steps leave results in the order 0 8 4 12 of lanes and 0 2 1 3 within.
  const auto in = [&](int place) {
    return sums[(place & 8) / 8 * 4 + (place & 4) / 4 * 8 + (place & 2) / 2 + (place & 1) * 2];
  };
  Vec16 a[8], b[4], c[2];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    a[i] = _mm512_add_ps(_mm512_shuffle_f32x4(in(i), in(i + 8), 0x44),
                         _mm512_shuffle_f32x4(in(i), in(i + 8), 0xEE));
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    b[i] =
        _mm512_add_ps(_mm512_shuffle_f32x4(a[i], a[i + 4], 0x88), _mm512_shuffle_f32x4(a[i], a[i + 4], 0xDD));
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    c[i] = _mm512_add_ps(_mm512_shuffle_ps(b[i], b[i + 2], 0x44), _mm512_shuffle_ps(b[i], b[i + 2], 0xEE));
  }
  return _mm512_add_ps(_mm512_shuffle_ps(c[0], c[1], 0x88), _mm512_shuffle_ps(c[0], c[1], 0xDD));
}

template <int kTokens>
CMFORGE_INLINE void TileTrees(const Vec16 (&sums)[kTokens][kTileRows], float (&out)[kTokens][kTileRows]) {
  if constexpr (kTokens >= 4) _mm512_storeu_ps(out[0], Trees16(sums[0]));
#pragma GCC unroll 4
  for (int t = kTokens >= 4 ? 4 : 0; t < kTokens; ++t) _mm_storeu_ps(out[t], Trees4(sums[t]));
}

}  // namespace
}  // namespace cmforge

#include "kernels/stored_body.h"

namespace cmforge {

extern const StoredKernels kStoredAvx512;
const StoredKernels kStoredAvx512 = StoredTable(Isa::kAvx512);

}  // namespace cmforge
