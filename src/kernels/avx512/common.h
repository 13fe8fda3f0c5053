// What the AVX-512 kernels share. Everything here has internal linkage and uses no standard containers or
// algorithms, so that no function compiled for this instruction set can serve the rest of the program.
#pragma once

#include <immintrin.h>

#include "kernels/table.h"

#ifndef CMFORGE_INLINE
#define CMFORGE_INLINE inline __attribute__((always_inline))
#endif

namespace cmforge {
namespace {

/// The low n bytes of a vector, n clamped to [0, 64].
CMFORGE_INLINE __mmask64 LowBytes(int64_t n) {
  return n >= 64 ? ~__mmask64{0} : n <= 0 ? 0 : (__mmask64{1} << n) - 1;
}
CMFORGE_INLINE __mmask16 LowLanes(int64_t n) { return static_cast<__mmask16>(LowBytes(n)); }

CMFORGE_INLINE __m512i LoadBytes(const void* p) { return _mm512_loadu_si512(p); }
CMFORGE_INLINE __m512i LoadBytes(const void* p, __mmask64 mask) { return _mm512_maskz_loadu_epi8(mask, p); }

/// Four vectors whose 128-bit lanes are a 4x4 matrix: transposed.
CMFORGE_INLINE void TransposeLanes(__m512i& a, __m512i& b, __m512i& c, __m512i& d) {
  const __m512i ab_low = _mm512_shuffle_i32x4(a, b, 0x44), ab_high = _mm512_shuffle_i32x4(a, b, 0xEE);
  const __m512i cd_low = _mm512_shuffle_i32x4(c, d, 0x44), cd_high = _mm512_shuffle_i32x4(c, d, 0xEE);
  a = _mm512_shuffle_i32x4(ab_low, cd_low, 0x88);
  b = _mm512_shuffle_i32x4(ab_low, cd_low, 0xDD);
  c = _mm512_shuffle_i32x4(ab_high, cd_high, 0x88);
  d = _mm512_shuffle_i32x4(ab_high, cd_high, 0xDD);
}

/// In each 128-bit lane the four vectors' words are a 4x4 matrix: transposed.
CMFORGE_INLINE void TransposeWords(__m512i& a, __m512i& b, __m512i& c, __m512i& d) {
  const __m512i ab_low = _mm512_unpacklo_epi32(a, b), ab_high = _mm512_unpackhi_epi32(a, b);
  const __m512i cd_low = _mm512_unpacklo_epi32(c, d), cd_high = _mm512_unpackhi_epi32(c, d);
  a = _mm512_unpacklo_epi64(ab_low, cd_low);
  b = _mm512_unpackhi_epi64(ab_low, cd_low);
  c = _mm512_unpacklo_epi64(ab_high, cd_high);
  d = _mm512_unpackhi_epi64(ab_high, cd_high);
}

/// Lane 4i + r: the sum of words 4i .. 4i + 3 of the r-th vector.
CMFORGE_INLINE __m512i SumFours(__m512i a, __m512i b, __m512i c, __m512i d) {
  const __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
  const __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
  return _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
}

CMFORGE_INLINE float HalfAt(const std::byte* at) {
  uint16_t half;
  __builtin_memcpy(&half, at, 2);
  return _cvtsh_ss(half);
}

struct Bytes64 {
  uint8_t at[64];
};

}  // namespace
}  // namespace cmforge
