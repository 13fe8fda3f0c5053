// The three smallest steps of unpacking a row, 32 weights each, with AVX2: what unpack_body.h says in plain loops.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#define CMFORGE_UNPACKS_BY_VECTORS

namespace cmforge {
namespace {

inline void UnpackNibbles(const std::byte* in, uint8_t* codes) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in)), low = _mm_set1_epi8(15);
  const __m128i even = _mm_and_si128(bytes, low), odd = _mm_and_si128(_mm_srli_epi16(bytes, 4), low);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(codes), _mm_unpacklo_epi8(even, odd));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + 16), _mm_unpackhi_epi8(even, odd));
}

inline void UnpackPairs(const std::byte* in, uint8_t* codes) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(in)), pair = _mm_set1_epi8(3);
  const __m128i v0 = _mm_and_si128(bytes, pair), v1 = _mm_and_si128(_mm_srli_epi16(bytes, 2), pair),
                v2 = _mm_and_si128(_mm_srli_epi16(bytes, 4), pair),
                v3 = _mm_and_si128(_mm_srli_epi16(bytes, 6), pair);
  const __m128i v01 = _mm_unpacklo_epi8(v0, v1), v23 = _mm_unpacklo_epi8(v2, v3), five = _mm_set1_epi8(5);
  const auto store = [&](__m128i v, uint8_t* to) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_add_epi8(_mm_add_epi8(v, v), five));
  };
  store(_mm_unpacklo_epi16(v01, v23), codes);
  store(_mm_unpackhi_epi16(v01, v23), codes + 16);
}

inline void UnpackSigns(const std::byte* in, uint8_t* codes) {
  int32_t bits;
  __builtin_memcpy(&bits, in, 4);
  const __m256i of_byte =
      _mm256_setr_epi64x(0x0000000000000000, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  const __m256i bit = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
  const __m256i spread = _mm256_shuffle_epi8(_mm256_set1_epi32(bits), of_byte);
  const __m256i is_set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit);  // -1
  const __m256i code = _mm256_sub_epi8(_mm256_sub_epi8(_mm256_set1_epi8(7), is_set), is_set);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes), code);
}

}  // namespace
}  // namespace cmforge
