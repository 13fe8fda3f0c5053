// Group scales of one unit, in unit order (rows.h).
#pragma once

#include "kernels/avx512/integer.h"
#include "kernels/ladder.h"

namespace cmforge {
namespace {

/// From an f16 plane [rows, groups] at w.scales.
CMFORGE_INLINE __m512 PlaneScales(const WeightLayout& w, const std::byte* row, int64_t unit) {
  const __mmask16 mask = LowLanes(w.groups - unit * kUnitGroups);
  const __m256i by_unit = _mm256_setr_epi16(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m256i halves = _mm256_maskz_loadu_epi16(mask, row + 2 * unit * kUnitGroups);
  return _mm512_cvtph_ps(_mm256_permutexvar_epi16(by_unit, halves));
}

/// The group in a lane of unit order.
constexpr int GroupOfLane(int lane) { return 4 * (lane % 4) + lane / 4; }

/// From the f16 in front of each tile of kTile bytes.
template <int kTile>
CMFORGE_INLINE __m512 TileScales(const std::byte* at) {
  constexpr int kUnit = 16 * kTile;
  if constexpr (kUnit <= 128) {  // two vectors cover the unit
    static constexpr int kSecond = kUnit - 64;
    alignas(64) static constexpr Bytes64 kPlace = [] {
      Bytes64 place{};
      for (int i = 0; i < 32; ++i) {
        const int byte = kTile * GroupOfLane(i / 2) + i % 2;
        place.at[i] = static_cast<uint8_t>(byte < 64 ? byte : 64 + byte - kSecond);
      }
      return place;
    }();
    const __m512i halves =
        _mm512_permutex2var_epi8(LoadBytes(at), _mm512_load_si512(kPlace.at), LoadBytes(at + kSecond));
    return _mm512_cvtph_ps(_mm512_castsi512_si256(halves));
  } else {  // two cover half of it
    static constexpr int kSecond = kUnit / 2 - 64 < 64 ? kUnit / 2 - 64 : 64;
    static_assert(7 * kTile + 2 <= kSecond + 64);
    alignas(64) static constexpr Bytes64 kPlace = [] {
      Bytes64 place{};
      for (int i = 0; i < 16; ++i) {  // groups 0, 4, 1, 5, 2, 6, 3, 7 of the half
        const int byte = kTile * (4 * (i / 2 % 2) + i / 4) + i % 2;
        place.at[i] = static_cast<uint8_t>(byte < 64 ? byte : 64 + byte - kSecond);
      }
      return place;
    }();
    const __m512i place = _mm512_load_si512(kPlace.at);
    const __m512i low = _mm512_permutex2var_epi8(LoadBytes(at), place, LoadBytes(at + kSecond));
    const std::byte* half = at + kUnit / 2;
    const __m512i high = _mm512_permutex2var_epi8(LoadBytes(half), place, LoadBytes(half + kSecond));
    // Lane i, s = 0 .. 3 of four halves: the first two from `low`, the others from `high`.
    const __m128i pairs_low = _mm512_castsi512_si128(low), pairs_high = _mm512_castsi512_si128(high);
    return _mm512_cvtph_ps(_mm256_setr_m128i(_mm_unpacklo_epi32(pairs_low, pairs_high),
                                             _mm_unpackhi_epi32(pairs_low, pairs_high)));
  }
}

/// Exp2 (ladder.h) of eight values, operation by operation.
CMFORGE_INLINE __m256 VectorExp2(__m256 x32) {
  const __m512d limit = _mm512_set1_pd(190.0), shift = _mm512_set1_pd(0x1.8p52);
  // max and min return their second operand for NaN, as the comparisons of the scalar form do.
  const __m512d x = _mm512_min_pd(_mm512_max_pd(_mm512_cvtps_pd(x32), _mm512_set1_pd(-190.0)), limit);
  const __m512d shifted = _mm512_add_pd(x, shift), r = _mm512_sub_pd(x, _mm512_sub_pd(shifted, shift));
  __m512d p = _mm512_set1_pd(kExp2Terms[0]);
  for (int i = 1; i < kExp2TermCount; ++i)
    p = _mm512_add_pd(_mm512_mul_pd(p, r), _mm512_set1_pd(kExp2Terms[i]));
  const __m512i exponent =
      _mm512_slli_epi64(_mm512_add_epi64(_mm512_castpd_si512(shifted), _mm512_set1_epi64(1023)), 52);
  return _mm512_cvtpd_ps(_mm512_mul_pd(p, _mm512_castsi512_pd(exponent)));
}

// Bytes of rungs and rows of ends that are asked for ahead: a row has too few of them for the processor to foresee.
constexpr int64_t kRungsAhead = 512, kEndsAhead = 32;

/// The ladders of q4tp and q2tp rows: (lo, step) at w.scales, five-bit rungs at w.rungs.
template <bool kIsQ2>
class Ladders {
 public:
  explicit Ladders(const WeightLayout& w) : w_(w) {}

  /// Asks for what the first rows read.
  CMFORGE_INLINE void Start(int64_t row) const {
    Prefetch(w_.scales + 4 * row, 4 * kEndsAhead);
    Prefetch(w_.rungs + row * w_.rung_stride, kRungsAhead);
  }

  /// Prepares up to kRowsAtOnce rows: the factors that MakeLadder (ladder.h) multiplies, four rows side by side.
  CMFORGE_INLINE void Begin(int64_t row, int64_t rows) {
    static_assert(kRowsAtOnce == 4);
    begin_ = row;
    const std::byte* at = w_.scales + 4 * row;
    Prefetch(at + 4 * kEndsAhead, 4 * kRowsAtOnce);
    const __m128i halves = _mm_maskz_loadu_epi16(static_cast<__mmask8>(LowBytes(2 * rows)), at);
    const __m512 ends = _mm512_castps256_ps512(VectorExp2(_mm256_cvtph_ps(halves)));
    const __m512i first = _mm512_setr_epi32(0, 0, 0, 0, 2, 2, 2, 2, 4, 4, 4, 4, 6, 6, 6, 6),
                  ratio = _mm512_setr_epi32(1, 1, 1, 1, 3, 3, 3, 3, 5, 5, 5, 5, 7, 7, 7, 7);
    const __m512 one = _mm512_set1_ps(1.0f), p0 = _mm512_permutexvar_ps(ratio, ends),
                 p1 = _mm512_mul_ps(p0, p0), p2 = _mm512_mul_ps(p1, p1), p3 = _mm512_mul_ps(p2, p2),
                 p4 = _mm512_mul_ps(p3, p3);
    const auto products = [&](__m512 low, __m512 high) {
      return _mm512_mul_ps(_mm512_mask_mov_ps(one, 0xAAAA, low), _mm512_mask_mov_ps(one, 0xCCCC, high));
    };
    _mm512_store_ps(bits01_, products(p0, p1));
    _mm512_store_ps(bits23_, products(p2, p3));
    _mm512_store_ps(ends_, _mm512_mask_permutexvar_ps(p4, 0x5555, first, ends));
  }

  CMFORGE_INLINE void SetRow(int64_t row) {
    rungs_ = w_.rungs + row * w_.rung_stride;
    Prefetch(rungs_ + kRungsAhead, w_.rung_stride);
    const int64_t at = 4 * (row - begin_);
    const __m512i by_four = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    const __m512 bits01 = _mm512_broadcast_f32x4(_mm_load_ps(bits01_ + at)),
                 bits23 = _mm512_broadcast_f32x4(_mm_load_ps(bits23_ + at));
    low_ = _mm512_mul_ps(_mm512_set1_ps(ends_[at]),
                         _mm512_mul_ps(bits01, _mm512_permutevar_ps(bits23, by_four)));
    high_ = _mm512_mul_ps(low_, _mm512_set1_ps(ends_[at + 1]));
    if constexpr (kIsQ2) {  // rung 0 is zero, rung c is half of rung c - 1
      const __m512 half = _mm512_set1_ps(0.5f);
      const __m512i low = _mm512_castps_si512(low_), high = _mm512_castps_si512(high_);
      high_ = _mm512_mul_ps(half, _mm512_castsi512_ps(_mm512_alignr_epi32(high, low, 15)));
      low_ = _mm512_mul_ps(half, _mm512_castsi512_ps(_mm512_alignr_epi32(low, _mm512_setzero_si512(), 15)));
    }
  }

  CMFORGE_INLINE __m512 Scales(int64_t unit) const {
    // 16 groups are ten bytes, read with the six before: codes precede rungs in the payload and in a gathered copy.
    constexpr int kBefore = 6;
    alignas(64) static constexpr Bytes64 kPlace = [] {  // a word's rung lies in two bytes at most
      Bytes64 place{};
      for (int lane = 0; lane < 16; ++lane) {
        const int byte = 5 * GroupOfLane(lane) / 8;
        for (int i = 0; i < 4; ++i)
          place.at[4 * lane + i] = static_cast<uint8_t>(i < 2 && byte + i < 10 ? kBefore + byte + i : 0x80);
      }
      return place;
    }();
    const __m512i shifts = _mm512_setr_epi32(0, 4, 0, 4, 5, 1, 5, 1, 2, 6, 2, 6, 7, 3, 7, 3);
    const std::byte* at = rungs_ + 10 * unit - kBefore;
    const int64_t left = w_.rung_stride - 10 * unit;
    const __m128i bytes = left >= 10 ? _mm_loadu_si128(reinterpret_cast<const __m128i*>(at))
                                     : _mm_maskz_loadu_epi8(LowLanes(kBefore + left), at);
    const __m512i pairs = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(bytes), _mm512_load_si512(kPlace.at));
    return Values(_mm512_srlv_epi32(pairs, shifts));  // only the low five bits count
  }

  /// The values of rungs 0 to 31.
  CMFORGE_INLINE __m512 Values(__m512i rungs) const { return _mm512_permutex2var_ps(low_, rungs, high_); }

 private:
  const WeightLayout& w_;
  int64_t begin_ = 0;
  const std::byte* rungs_ = nullptr;
  __m512 low_, high_;
  // Of each row: the products of bits 0 and 1 of a rung and of bits 2 and 3; 2^lo and the factor of bit 4.
  alignas(64) float bits01_[4 * kRowsAtOnce], bits23_[4 * kRowsAtOnce], ends_[4 * kRowsAtOnce];
};

}  // namespace
}  // namespace cmforge
