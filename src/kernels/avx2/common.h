// What the AVX2 kernels share. Everything here has internal linkage and uses no standard containers or algorithms, so
// that no function compiled for this instruction set can serve the rest of the program.
#pragma once

#include <immintrin.h>

#include "kernels/table.h"

#ifndef CMFORGE_INLINE
#define CMFORGE_INLINE inline __attribute__((always_inline))
#endif

namespace cmforge {
namespace {

CMFORGE_INLINE __m128i Load16(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
CMFORGE_INLINE __m256i Load32(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
CMFORGE_INLINE __m128i Load8(const void* p) { return _mm_loadl_epi64(static_cast<const __m128i*>(p)); }

CMFORGE_INLINE __m256i Lanes(__m128i low, __m128i high) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

template <class T>
CMFORGE_INLINE T LoadAs(const void* p) {
  T value;
  __builtin_memcpy(&value, p, sizeof value);
  return value;
}

/// Keeps the compiler to one order of additions; it would make all products first, more than there are registers.
CMFORGE_INLINE void InOrder(__m256i& v) { __asm__("" : "+x"(v)); }

CMFORGE_INLINE float HalfAt(const std::byte* at) { return _cvtsh_ss(LoadAs<uint16_t>(at)); }

CMFORGE_INLINE void PrefetchLine(const std::byte* at) {
  _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T0);
}

}  // namespace
}  // namespace cmforge
