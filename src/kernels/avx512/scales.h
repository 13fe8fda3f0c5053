// Group scales of four rows, brought into the order of the integer kernels: for each step of four groups,
// lane 4 * group + row.
#pragma once

#include "kernels/avx512/integer.h"
#include "kernels/ladder.h"

namespace cmforge {
namespace {

struct Bytes64 {
  uint8_t at[64];
};

/// 16 groups' scales of four rows to four steps.
CMFORGE_INLINE void StoreScales(__m512 a, __m512 b, __m512 c, __m512 d, float* out) {
  __m512i v[4] = {_mm512_castps_si512(a), _mm512_castps_si512(b), _mm512_castps_si512(c),
                  _mm512_castps_si512(d)};
  TransposeWords(v[0], v[1], v[2], v[3]);
  TransposeLanes(v[0], v[1], v[2], v[3]);
  for (int i = 0; i < 4; ++i) _mm512_store_si512(out + 16 * i, v[i]);
}

/// From an f16 plane [rows, groups] at w.scales.
CMFORGE_INLINE void PlaneScales(const WeightLayout& w, const int64_t (&rows)[4], float* out) {
  for (int64_t g = 0; g < w.groups; g += 16) {
    const __mmask16 mask = LowLanes(w.groups - g);
    __m512 s[4];
    for (int r = 0; r < 4; ++r) {
      const std::byte* at = w.scales + 2 * (rows[r] * w.groups + g);
      PrefetchLine(at + 4 * 2 * w.groups + 256);
      s[r] = _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, at));
    }
    StoreScales(s[0], s[1], s[2], s[3], out + 4 * g);
  }
}

/// MakeLadder (ladder.h) in two vectors.
template <bool kIsQ2>
CMFORGE_INLINE void VectorLadder(float first, float ratio, __m512& low, __m512& high) {
  const __m512 one = _mm512_set1_ps(1.0f), p0 = _mm512_set1_ps(ratio), p1 = _mm512_mul_ps(p0, p0),
               p2 = _mm512_mul_ps(p1, p1), p3 = _mm512_mul_ps(p2, p2), p4 = _mm512_mul_ps(p3, p3);
  const __m512 factors =
      _mm512_mul_ps(_mm512_mul_ps(_mm512_mask_mov_ps(one, 0xAAAA, p0), _mm512_mask_mov_ps(one, 0xCCCC, p1)),
                    _mm512_mul_ps(_mm512_mask_mov_ps(one, 0xF0F0, p2), _mm512_mask_mov_ps(one, 0xFF00, p3)));
  low = _mm512_mul_ps(_mm512_set1_ps(first), factors);
  high = _mm512_mul_ps(low, p4);
  if constexpr (kIsQ2) {  // rung 0 is zero, rung c is half of rung c - 1
    const __m512 half = _mm512_set1_ps(0.5f), zero = _mm512_setzero_ps();
    const __m512i l = _mm512_castps_si512(low), h = _mm512_castps_si512(high);
    high = _mm512_mul_ps(half, _mm512_castsi512_ps(_mm512_alignr_epi32(h, l, 15)));
    low = _mm512_mul_ps(half, _mm512_castsi512_ps(_mm512_alignr_epi32(l, _mm512_castps_si512(zero), 15)));
  }
}

/// From the ladder of each row: (lo, step) at w.scales and five-bit rungs at w.rungs.
template <bool kIsQ2>
CMFORGE_INLINE void LadderScales(const WeightLayout& w, const int64_t (&rows)[4], float* out) {
  float ends[8];  // 2^lo and 2^step of each row
  for (int r = 0; r < 4; ++r) {
    const __m128i halves = _mm_loadu_si32(w.scales + 4 * rows[r]);
    _mm_storel_pi(reinterpret_cast<__m64*>(ends + 2 * r), _mm_cvtph_ps(halves));
  }
  for (float& end : ends) end = Exp2(end);
  __m512 low[4], high[4];
  for (int r = 0; r < 4; ++r) VectorLadder<kIsQ2>(ends[2 * r], ends[2 * r + 1], low[r], high[r]);
  // 16 groups are ten bytes: eight codes from the bits of bytes 0-4, eight from those of bytes 5-9.
  const __m128i spread = _mm_setr_epi8(0, 1, 2, 3, 4, -1, -1, -1, 5, 6, 7, 8, 9, -1, -1, -1);
  const __m128i shifts = _mm_setr_epi8(0, 5, 10, 15, 20, 25, 30, 35, 0, 5, 10, 15, 20, 25, 30, 35);
  for (int64_t g = 0; g < w.groups; g += 16) {
    const int64_t left = w.rung_stride - g / 16 * 10;
    const auto mask = static_cast<__mmask16>(LowBytes(left < 10 ? left : 10));
    __m512 s[4];
    for (int r = 0; r < 4; ++r) {
      const std::byte* at = w.rungs + rows[r] * w.rung_stride + g / 16 * 10;
      PrefetchLine(at + 256);
      const __m128i bits = _mm_shuffle_epi8(_mm_maskz_loadu_epi8(mask, at), spread);
      const __m512i rungs = _mm512_cvtepu8_epi32(_mm_multishift_epi64_epi8(shifts, bits));
      s[r] = _mm512_maskz_permutex2var_ps(LowLanes(w.groups - g), low[r], rungs, high[r]);
    }
    StoreScales(s[0], s[1], s[2], s[3], out + 4 * g);
  }
}

/// From the f16 in front of each tile of kTile bytes; a step's first three tiles and the fourth one's scale
/// lie within 64 bytes.
template <bool kIsTail, int kTile>
CMFORGE_INLINE __m512 TileScales(const std::byte* const (&row)[4], int64_t offset, int64_t tail_bytes) {
  static_assert(3 * kTile + 2 <= 64);
  alignas(64) static constexpr Bytes64 kPlace = [] {  // lane 4 g + r: the two bytes at kTile * g
    Bytes64 place{};
    for (int i = 0; i < 32; ++i) place.at[i] = static_cast<uint8_t>(kTile * (i / 8) + i % 2);
    return place;
  }();
  const __m512i place = _mm512_load_si512(kPlace.at);
  __m256i halves = _mm256_setzero_si256();
  for (int r = 0; r < 4; ++r) {
    const __m512i bytes = LoadBytes(row[r] + offset, LowBytes(kIsTail ? tail_bytes : 3 * kTile + 2));
    halves = _mm256_mask_mov_epi16(halves, static_cast<__mmask16>(0x1111 << r),
                                   _mm512_castsi512_si256(_mm512_permutexvar_epi8(place, bytes)));
  }
  return _mm512_cvtph_ps(halves);
}

}  // namespace
}  // namespace cmforge
