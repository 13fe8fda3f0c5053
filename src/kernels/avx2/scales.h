// Group scales of one unit, in unit order (rows.h).
#pragma once

#include "kernels/avx2/integer.h"
#include "kernels/ladder.h"

namespace cmforge {
namespace {

/// From halves of which at(i) is group i's.
template <class At>
CMFORGE_INLINE __m256 ScalesAt(At at) {
  const auto half = [&](int i) { return LoadAs<int16_t>(at(i)); };
  return _mm256_cvtph_ps(
      _mm_setr_epi16(half(0), half(2), half(4), half(6), half(1), half(3), half(5), half(7)));
}

/// From an f16 plane whose row begins at `row`.
template <bool kIsFull>
CMFORGE_INLINE __m256 PlaneScales(const WeightLayout& w, const std::byte* row, int64_t unit) {
  const __m128i by_unit = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
  const std::byte* at = row + 2 * kUnitGroups * unit;
  __m128i halves;
  if constexpr (kIsFull) {
    halves = Load16(at);
  } else {
    const int64_t count = w.groups - kUnitGroups * unit;
    uint16_t copy[kUnitGroups] = {};
    for (int64_t i = 0; i < kUnitGroups && i < count; ++i) copy[i] = LoadAs<uint16_t>(at + 2 * i);
    halves = Load16(copy);
  }
  return _mm256_cvtph_ps(_mm_shuffle_epi8(halves, by_unit));
}

/// Exp2 (ladder.h) of four values, operation by operation.
CMFORGE_INLINE __m128 VectorExp2(__m128 x32) {
  const __m256d shift = _mm256_set1_pd(0x1.8p52);
  // max and min return their second operand for NaN, as the comparisons of the scalar form do.
  const __m256d x =
      _mm256_min_pd(_mm256_max_pd(_mm256_cvtps_pd(x32), _mm256_set1_pd(-190.0)), _mm256_set1_pd(190.0));
  const __m256d shifted = _mm256_add_pd(x, shift), r = _mm256_sub_pd(x, _mm256_sub_pd(shifted, shift));
  __m256d p = _mm256_set1_pd(kExp2Terms[0]);
  for (int i = 1; i < kExp2TermCount; ++i)
    p = _mm256_add_pd(_mm256_mul_pd(p, r), _mm256_set1_pd(kExp2Terms[i]));
  const __m256i exponent =
      _mm256_slli_epi64(_mm256_add_epi64(_mm256_castpd_si256(shifted), _mm256_set1_epi64x(1023)), 52);
  return _mm256_cvtpd_ps(_mm256_mul_pd(p, _mm256_castsi256_pd(exponent)));
}

/// The ladders of q4tp and q2tp rows: (lo, step) at w.scales, five-bit rungs at w.rungs. A rung's value is first times
/// the products of powers that MakeLadder (ladder.h) forms; those of bits 0, 1 and of bits 2, 3 are looked up among
/// four each.
template <bool kIsQ2>
class Ladders {
 public:
  explicit Ladders(const WeightLayout& w) : w_(w) {}

  /// Prepares up to kRowsAtOnce rows.
  CMFORGE_INLINE void Begin(int64_t row, int64_t rows) {
    begin_ = row;
    for (int64_t i = 0; i < rows; i += 2) {
      const std::byte* at = w_.scales + 4 * (row + i);
      const __m128i halves = i + 1 < rows ? Load8(at) : _mm_cvtsi32_si128(LoadAs<int32_t>(at));
      _mm_storeu_ps(ends_ + 2 * i, VectorExp2(_mm_cvtph_ps(halves)));
    }
  }

  CMFORGE_INLINE void SetRow(int64_t row) {
    rungs_ = w_.rungs + row * w_.rung_stride;
    const float* ends = ends_ + 2 * (row - begin_);
    const __m256 one = _mm256_set1_ps(1.0f), p0 = _mm256_set1_ps(ends[1]), p1 = _mm256_mul_ps(p0, p0),
                 p2 = _mm256_mul_ps(p1, p1), p3 = _mm256_mul_ps(p2, p2), p4 = _mm256_mul_ps(p3, p3);
    first_ = _mm256_set1_ps(ends[0]);
    low_ = _mm256_mul_ps(_mm256_blend_ps(one, p0, 0xAA), _mm256_blend_ps(one, p1, 0xCC));
    middle_ = _mm256_mul_ps(_mm256_blend_ps(one, p2, 0xAA), _mm256_blend_ps(one, p3, 0xCC));
    high_ = _mm256_blend_ps(one, p4, 0xAA);
  }

  template <bool kIsFull>
  CMFORGE_INLINE __m256 Scales(int64_t unit) const {
    // Eight groups are five bytes: bytes 0 to 3 and 1 to 4 are loaded.
    const std::byte* at = rungs_ + 5 * unit;
    __m128i bytes;
    if constexpr (kIsFull) {
      bytes = _mm_insert_epi32(_mm_cvtsi32_si128(LoadAs<int32_t>(at)), LoadAs<int32_t>(at + 1), 1);
    } else {
      std::byte copy[5] = {};
      for (int64_t i = 0; i < 5 && 5 * unit + i < w_.rung_stride; ++i) copy[i] = at[i];
      bytes = _mm_insert_epi32(_mm_cvtsi32_si128(LoadAs<int32_t>(copy)), LoadAs<int32_t>(copy + 1), 1);
    }
    // Each lane the two bytes that hold its rung.
    const __m256i place = _mm256_setr_epi8(0, 1, -1, -1, 1, 2, -1, -1, 2, 3, -1, -1, 3, 7, -1, -1,  //
                                           0, 1, -1, -1, 1, 2, -1, -1, 3, 7, -1, -1, 7, -1, -1, -1);
    const __m256i shifts = _mm256_setr_epi32(0, 2, 4, 6, 5, 7, 1, 3);
    const __m256i words = _mm256_shuffle_epi8(_mm256_broadcastq_epi64(bytes), place);
    return Values(_mm256_srlv_epi32(words, shifts));
  }

  CMFORGE_INLINE __m256 LiveScales(const int32_t* groups) const {
    const auto rung = [&](int i) {
      const int64_t bit = int64_t{5} * groups[i];
      int window = static_cast<int>(rungs_[bit / 8]);
      if (bit % 8 > 3) window |= static_cast<int>(rungs_[bit / 8 + 1]) << 8;
      return window >> (bit % 8);
    };
    return Values(_mm256_setr_epi32(rung(0), rung(2), rung(4), rung(6), rung(1), rung(3), rung(5), rung(7)));
  }

 private:
  /// Of the low five bits; the others may be anything.
  CMFORGE_INLINE __m256 Values(__m256i rungs) const {
    __m256i code = rungs;
    if constexpr (kIsQ2) {  // rung 0 is zero, rung c is half of rung c - 1
      rungs = _mm256_and_si256(rungs, _mm256_set1_epi32(31));
      code = _mm256_sub_epi32(rungs, _mm256_set1_epi32(1));
    }
    const __m256 low = _mm256_permutevar_ps(low_, code),
                 middle = _mm256_permutevar_ps(middle_, _mm256_srli_epi32(code, 2)),
                 high = _mm256_permutevar_ps(high_, _mm256_srli_epi32(code, 4));
    __m256 value = _mm256_mul_ps(_mm256_mul_ps(first_, _mm256_mul_ps(low, middle)), high);
    if constexpr (kIsQ2) {
      value = _mm256_mul_ps(value, _mm256_set1_ps(0.5f));
      const __m256i is_zero = _mm256_cmpeq_epi32(rungs, _mm256_setzero_si256());
      value = _mm256_andnot_ps(_mm256_castsi256_ps(is_zero), value);
    }
    return value;
  }

  const WeightLayout& w_;
  int64_t begin_ = 0;
  const std::byte* rungs_ = nullptr;
  __m256 first_, low_, middle_, high_;
  float ends_[2 * kRowsAtOnce];  // 2^lo and 2^step of each row
};

}  // namespace
}  // namespace cmforge
