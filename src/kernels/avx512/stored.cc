// Products of stored matrices with AVX-512. A table of f16 is held as the bytes of its entries as f32: three planes, since
// the lowest byte of a half is zero. One vpermb looks up a plane for 64 codes of up to six bits (two vpermt2b and a blend
// for eight bits), and interleaving bytes, then words, makes floats: no conversion and no way through memory.
// Per 64 weights and row that is five shuffles (ten with 8 bits), eight interleavings and four fused multiply-adds.
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

/// The code that must lie at a place so that interleaving within lanes leaves ascending vectors: a 4x4 transposition of
/// groups of four.
CMFORGE_INLINE constexpr int CodeAt(int place) { return place / 4 % 4 * 16 + place / 16 * 4 + place % 4; }

template <int kBits>
class PaletteTable {
 public:
  CMFORGE_INLINE void Set(const std::byte* halves, const std::byte* scale) {
    const __m512 by = _mm512_set1_ps(scale != nullptr ? HalfAt(scale) : 1.0f);
    for (int at = 0; at < kEntries; at += kPlane) {
      __m512i entries[kPlane / 16];
#pragma GCC unroll 4
      for (int i = 0; i < kPlane / 16; ++i) {
        const __mmask16 mask = LowLanes(kEntries - 16 * i);
        __m512 v = _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, halves + 2 * (at + 16 * i)));
        if (scale != nullptr)
          v = _mm512_cvtph_ps(_mm512_cvtps_ph(_mm512_mul_ps(by, v), _MM_FROUND_TO_NEAREST_INT));
        entries[i] = _mm512_castps_si512(v);
      }
#pragma GCC unroll 3
      for (int plane = 0; plane < kPlanes; ++plane)
        _mm512_store_si512(planes_[plane] + at, PlaneOf(entries, plane + 1));
    }
  }

  template <class Use>
  CMFORGE_INLINE void Look(const std::byte* at, Use&& use) const {
    const uint8_t* planes = Planes();
    __m512i plane[kPlanes];
    if constexpr (kBits == 8) {
      const __m512i order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
      const __m512i codes = _mm512_permutexvar_epi32(order, LoadBytes(at));
      const __mmask64 is_upper = _mm512_movepi8_mask(codes);
#pragma GCC unroll 3
      for (int i = 0; i < kPlanes; ++i) {
        const uint8_t* from = planes + i * kPlaneBytes;
        plane[i] = _mm512_mask_blend_epi8(
            is_upper, _mm512_permutex2var_epi8(LoadBytes(from), codes, LoadBytes(from + 64)),
            _mm512_permutex2var_epi8(LoadBytes(from + 128), codes, LoadBytes(from + 192)));
      }
    } else {
      // Eight codes are kBits bytes: four codes to each half of a 64-bit lane, then each code to the low bits of a byte.
      // What is above them is ignored, since tables of fewer than 64 entries repeat.
      const __m512i bytes = _mm512_permutexvar_epi8(Spread(), LoadCodes(at));
      const __m512i codes = _mm512_multishift_epi64_epi8(Shifts(), bytes);
#pragma GCC unroll 3
      for (int i = 0; i < kPlanes; ++i)
        plane[i] = _mm512_permutexvar_epi8(codes, LoadBytes(planes + i * kPlaneBytes));
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

 private:
  static constexpr int kEntries = 1 << kBits;
  static constexpr int kPlane = kEntries < 16   ? 16
                                : kEntries < 64 ? kEntries
                                                : 64;  // entries handled at a time
  static constexpr int kPlanes = 3, kPlaneBytes = kEntries < 64 ? 64 : kEntries;

  /// Where the planes are, in a way that keeps them there: those of four rows would fill the registers, and sums would
  /// lie in memory instead.
  [[nodiscard]] CMFORGE_INLINE const uint8_t* Planes() const {
    const uint8_t* at = planes_[0];
    __asm__ volatile("" : "+r"(at));
    return at;
  }

  /// Byte `byte` of each entry, repeated to 64.
  static CMFORGE_INLINE __m512i PlaneOf(const __m512i* entries, int byte) {
    const __m512i lane = _mm512_and_si512(
        ByteNumbers(), _mm512_set1_epi8(static_cast<char>((kEntries < 32 ? kEntries : 32) - 1)));
    const __m512i index =
        _mm512_or_si512(_mm512_slli_epi16(lane, 2), _mm512_set1_epi8(static_cast<char>(byte)));
    if constexpr (kPlane == 16) {
      return _mm512_permutexvar_epi8(index, entries[0]);
    } else {
      return _mm512_mask_blend_epi8(__mmask64{0xFFFFFFFF} << 32,
                                    _mm512_permutex2var_epi8(entries[0], index, entries[1]),
                                    _mm512_permutex2var_epi8(entries[2], index, entries[3]));
    }
  }

  static CMFORGE_INLINE __m512i LoadCodes(const std::byte* at) {
    if constexpr (kBits == 4)  // half a line, which never crosses one where a whole vector would
      return _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
    return LoadBytes(at, LowBytes(8 * kBits));
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

  alignas(64) uint8_t planes_[kPlanes][kPlaneBytes];
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
