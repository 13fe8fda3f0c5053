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

constexpr int64_t kRungsAhead = 512;

/// The ladders of q4tp and q2tp rows: (lo, step) at w.scales, five-bit rungs at w.rungs.
template <bool kIsQ2>
class Ladders {
 public:
  explicit Ladders(const WeightLayout& w) : w_(w) {}

  /// Prepares up to kRowsAtOnce rows.
  CMFORGE_INLINE void Begin(int64_t row, int64_t rows) {
    begin_ = row;
    Prefetch(w_.scales + 4 * (row + kRowsAtOnce), 4 * kRowsAtOnce);
    for (int64_t i = 0; i < rows; i += 4) {
      const __mmask8 mask = static_cast<__mmask8>(LowBytes(2 * (rows - i)));
      const __m128i halves = _mm_maskz_loadu_epi16(mask, w_.scales + 4 * (row + i));
      _mm256_storeu_ps(ends_ + 2 * i, VectorExp2(_mm256_cvtph_ps(halves)));
    }
  }

  /// MakeLadder (ladder.h) in two vectors.
  CMFORGE_INLINE void SetRow(int64_t row) {
    rungs_ = w_.rungs + row * w_.rung_stride;
    // A row's few bytes are too far from the last row's, in time, for the processor to foresee them.
    Prefetch(rungs_ + kRungsAhead, w_.rung_stride);
    const float* ends = ends_ + 2 * (row - begin_);
    const __m512 one = _mm512_set1_ps(1.0f), p0 = _mm512_set1_ps(ends[1]), p1 = _mm512_mul_ps(p0, p0),
                 p2 = _mm512_mul_ps(p1, p1), p3 = _mm512_mul_ps(p2, p2), p4 = _mm512_mul_ps(p3, p3);
    const __m512 low_bits =
        _mm512_mul_ps(_mm512_mask_mov_ps(one, 0xAAAA, p0), _mm512_mask_mov_ps(one, 0xCCCC, p1));
    const __m512 high_bits =
        _mm512_mul_ps(_mm512_mask_mov_ps(one, 0xF0F0, p2), _mm512_mask_mov_ps(one, 0xFF00, p3));
    low_ = _mm512_mul_ps(_mm512_set1_ps(ends[0]), _mm512_mul_ps(low_bits, high_bits));
    high_ = _mm512_mul_ps(low_, p4);
    if constexpr (kIsQ2) {  // rung 0 is zero, rung c is half of rung c - 1
      const __m512 half = _mm512_set1_ps(0.5f);
      const __m512i low = _mm512_castps_si512(low_), high = _mm512_castps_si512(high_);
      high_ = _mm512_mul_ps(half, _mm512_castsi512_ps(_mm512_alignr_epi32(high, low, 15)));
      low_ = _mm512_mul_ps(half, _mm512_castsi512_ps(_mm512_alignr_epi32(low, _mm512_setzero_si512(), 15)));
    }
  }

  CMFORGE_INLINE __m512 Scales(int64_t unit) const {
    // 16 groups are ten bytes: eight codes from the bits of bytes 0-4, eight from those of bytes 5-9.
    const __m128i by_unit = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m128i spread = _mm_setr_epi8(0, 1, 2, 3, 4, -1, -1, -1, 5, 6, 7, 8, 9, -1, -1, -1);
    const __m128i shifts = _mm_setr_epi8(0, 5, 10, 15, 20, 25, 30, 35, 0, 5, 10, 15, 20, 25, 30, 35);
    const int64_t left = w_.rung_stride - 10 * unit;
    const auto mask = static_cast<__mmask16>(LowBytes(left < 10 ? left : 10));
    const __m128i bits = _mm_shuffle_epi8(_mm_maskz_loadu_epi8(mask, rungs_ + 10 * unit), spread);
    const __m512i rungs =
        _mm512_cvtepu8_epi32(_mm_shuffle_epi8(_mm_multishift_epi64_epi8(shifts, bits), by_unit));
    return Values(rungs);
  }

  /// The values of rungs 0 to 31.
  CMFORGE_INLINE __m512 Values(__m512i rungs) const { return _mm512_permutex2var_ps(low_, rungs, high_); }

 private:
  const WeightLayout& w_;
  int64_t begin_ = 0;
  const std::byte* rungs_ = nullptr;
  __m512 low_, high_;
  float ends_[2 * kRowsAtOnce];  // 2^lo and 2^step of each row
};

}  // namespace
}  // namespace cmforge
