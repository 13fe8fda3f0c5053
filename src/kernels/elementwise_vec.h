// The few vector operations that the float kernels are written in. Included once by each instruction set's
// file after it has chosen one of CMFORGE_VEC_AVX512, CMFORGE_VEC_AVX2, CMFORGE_VEC_NEON or none (portable),
// so everything here has internal linkage.
#pragma once

#include <cstdint>
#include <cstring>
#if defined(CMFORGE_VEC_AVX512) || defined(CMFORGE_VEC_AVX2)
#include <immintrin.h>
#elif defined(CMFORGE_VEC_NEON)
#include <arm_neon.h>
#endif

#include "base/half.h"

#define CMFORGE_INLINE inline __attribute__((always_inline))

namespace cmforge {
namespace {

#if defined(CMFORGE_VEC_AVX512)
constexpr int kLanes = 16;
#elif defined(CMFORGE_VEC_AVX2)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

typedef float VecF __attribute__((vector_size(4 * kLanes)));
typedef int32_t VecI __attribute__((vector_size(4 * kLanes)));
typedef float VecFUnaligned __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));

CMFORGE_INLINE VecF Load(const float* p) { return *reinterpret_cast<const VecFUnaligned*>(p); }
CMFORGE_INLINE void Store(float* p, VecF x) { *reinterpret_cast<VecFUnaligned*>(p) = x; }
CMFORGE_INLINE VecF Set(float x) { return x - VecF{}; }

#if defined(CMFORGE_VEC_AVX512)
CMFORGE_INLINE VecF Fma(VecF a, VecF b, VecF c) {
  return (VecF)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}
CMFORGE_INLINE VecF Max(VecF a, VecF b) { return (VecF)_mm512_max_ps((__m512)a, (__m512)b); }
CMFORGE_INLINE VecF Min(VecF a, VecF b) { return (VecF)_mm512_min_ps((__m512)a, (__m512)b); }
CMFORGE_INLINE VecF LoadF16(const uint16_t* p) {
  return (VecF)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
CMFORGE_INLINE VecF LoadI8(const int8_t* p) {
  return (VecF)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
CMFORGE_INLINE void StoreF16(uint16_t* p, VecF x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT));
}
CMFORGE_INLINE VecF RoundF16(VecF x) {
  return (VecF)_mm512_cvtph_ps(_mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT));
}
#elif defined(CMFORGE_VEC_AVX2)
CMFORGE_INLINE VecF Fma(VecF a, VecF b, VecF c) {
  return (VecF)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}
CMFORGE_INLINE VecF Max(VecF a, VecF b) { return (VecF)_mm256_max_ps((__m256)a, (__m256)b); }
CMFORGE_INLINE VecF Min(VecF a, VecF b) { return (VecF)_mm256_min_ps((__m256)a, (__m256)b); }
CMFORGE_INLINE VecF LoadF16(const uint16_t* p) {
  return (VecF)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
CMFORGE_INLINE VecF LoadI8(const int8_t* p) {
  return (VecF)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
CMFORGE_INLINE void StoreF16(uint16_t* p, VecF x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT));
}
CMFORGE_INLINE VecF RoundF16(VecF x) {
  return (VecF)_mm256_cvtph_ps(_mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT));
}
#elif defined(CMFORGE_VEC_NEON)
CMFORGE_INLINE VecF Fma(VecF a, VecF b, VecF c) {
  return (VecF)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}
CMFORGE_INLINE VecF Max(VecF a, VecF b) { return a > b ? a : b; }
CMFORGE_INLINE VecF Min(VecF a, VecF b) { return a < b ? a : b; }
CMFORGE_INLINE VecF LoadF16(const uint16_t* p) {
  return (VecF)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}
CMFORGE_INLINE VecF LoadI8(const int8_t* p) {
  return VecF{static_cast<float>(p[0]), static_cast<float>(p[1]), static_cast<float>(p[2]),
              static_cast<float>(p[3])};
}
CMFORGE_INLINE void StoreF16(uint16_t* p, VecF x) {
  vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)x)));
}
CMFORGE_INLINE VecF RoundF16(VecF x) { return (VecF)vcvt_f32_f16(vcvt_f16_f32((float32x4_t)x)); }
#else
CMFORGE_INLINE VecF Fma(VecF a, VecF b, VecF c) {
  return VecF{__builtin_fmaf(a[0], b[0], c[0]), __builtin_fmaf(a[1], b[1], c[1]),
              __builtin_fmaf(a[2], b[2], c[2]), __builtin_fmaf(a[3], b[3], c[3])};
}
CMFORGE_INLINE VecF Max(VecF a, VecF b) { return a > b ? a : b; }
CMFORGE_INLINE VecF Min(VecF a, VecF b) { return a < b ? a : b; }
CMFORGE_INLINE VecF LoadF16(const uint16_t* p) {
  return VecF{F16ToF32(p[0]), F16ToF32(p[1]), F16ToF32(p[2]), F16ToF32(p[3])};
}
CMFORGE_INLINE VecF LoadI8(const int8_t* p) {
  return VecF{static_cast<float>(p[0]), static_cast<float>(p[1]), static_cast<float>(p[2]),
              static_cast<float>(p[3])};
}
CMFORGE_INLINE void StoreF16(uint16_t* p, VecF x) {
  for (int i = 0; i < kLanes; ++i) p[i] = F32ToF16(x[i]);
}
CMFORGE_INLINE VecF RoundF16(VecF x) {
  return VecF{RoundToF16(x[0]), RoundToF16(x[1]), RoundToF16(x[2]), RoundToF16(x[3])};
}
#endif

/// The largest lane.
CMFORGE_INLINE float MaxOf(VecF x) {
#if defined(CMFORGE_VEC_AVX512)
  return _mm512_reduce_max_ps((__m512)x);
#elif defined(CMFORGE_VEC_AVX2)
  __m128 half = _mm_max_ps(_mm256_castps256_ps128((__m256)x), _mm256_extractf128_ps((__m256)x, 1));
  half = _mm_max_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
#else
  float max = x[0];
  for (int j = 1; j < kLanes; ++j) max = x[j] > max ? x[j] : max;
  return max;
#endif
}

/// The sum of 16 numbers by halves: j and j + 8, then j and j + 4, j and j + 2, the last two.
CMFORGE_INLINE float SumOf(const VecF (&part)[16 / kLanes]) {
#if defined(CMFORGE_VEC_AVX512) || defined(CMFORGE_VEC_AVX2)
#if defined(CMFORGE_VEC_AVX512)
  const __m256 eight = _mm512_castps512_ps256((__m512)part[0]) + _mm512_extractf32x8_ps((__m512)part[0], 1);
#else
  const auto eight = (__m256)(part[0] + part[1]);
#endif
  __m128 half = _mm256_castps256_ps128(eight) + _mm256_extractf128_ps(eight, 1);
  half = half + _mm_movehl_ps(half, half);
  return half[0] + half[1];
#else
  const VecF half = (part[0] + part[2]) + (part[1] + part[3]);
  return (half[0] + half[2]) + (half[1] + half[3]);
#endif
}

/// By lane: whether first <= origin + lane <= last.
CMFORGE_INLINE VecI Between(int64_t origin, int64_t first, int64_t last) {
  VecI lane;
  for (int j = 0; j < kLanes; ++j) lane[j] = j;
  const auto clamped = [](int64_t x) { return static_cast<int32_t>(x < -1 ? -1 : x > kLanes ? kLanes : x); };
  return (lane >= clamped(first - origin)) & (lane <= clamped(last - origin));
}

/// e^x within 2 units in the last place; 0 below -87, the value at 88 above it; Exp(0) is exactly 1.
CMFORGE_INLINE VecF Exp(VecF x) {
  const VecF low = Set(-87.0f);
  const VecF clamped = Min(Max(x, low), Set(88.0f));
  // Adding 1.5 * 2^23 rounds to an integer, which then stands in the low mantissa bits.
  const VecF magic = Set(12582912.0f);
  const VecF shifted = Fma(clamped, Set(1.44269504088896341f), magic);
  const VecF n = shifted - magic;
  VecF r = Fma(n, Set(-0.693359375f), clamped);
  r = Fma(n, Set(2.12194440e-4f), r);
  VecF p = Set(1.9875691500e-4f);
  p = Fma(p, r, Set(1.3981999507e-3f));
  p = Fma(p, r, Set(8.3334519073e-3f));
  p = Fma(p, r, Set(4.1665795894e-2f));
  p = Fma(p, r, Set(1.6666665459e-1f));
  p = Fma(p, r, Set(5.0000001201e-1f));
  p = Fma(p, r * r, r) + Set(1.0f);
  // p is near 1 and the result no denormal number, so the exponent can simply be added.
  const VecF result =
      reinterpret_cast<VecF>(reinterpret_cast<VecI>(p) + (reinterpret_cast<VecI>(shifted) << 23));
  return x < low ? VecF{} : result;
}

CMFORGE_INLINE VecF Sigmoid(VecF x) { return Set(1.0f) / (Set(1.0f) + Exp(-x)); }
CMFORGE_INLINE VecF Tanh(VecF x) { return Set(1.0f) - Set(2.0f) / (Exp(x + x) + Set(1.0f)); }
CMFORGE_INLINE VecF GeluTanh(VecF x) {
  // 0.5 x (1 + tanh(u)) = x sigmoid(2u), u = sqrt(2 / pi) (x + 0.044715 x^3)
  const VecF inner = Fma(x * x * x, Set(0.044715f), x);
  return x * Sigmoid(inner * Set(1.5957691216057308f));
}

/// out[i] = op(x[i]) or op(x[i], y[i]) for whole vectors, and the tail through a padded copy of itself.
template <class Op>
CMFORGE_INLINE void Map(const float* x, int64_t n, float* out, Op op) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) Store(out + i, op(Load(x + i)));
  if (i < n) {
    float a[kLanes] = {};
    const auto rest = static_cast<size_t>(n - i) * sizeof(float);
    std::memcpy(a, x + i, rest);
    Store(a, op(Load(a)));
    std::memcpy(out + i, a, rest);
  }
}
template <class Op>
CMFORGE_INLINE void Map(const float* x, const float* y, int64_t n, float* out, Op op) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) Store(out + i, op(Load(x + i), Load(y + i)));
  if (i < n) {
    float a[kLanes] = {}, b[kLanes] = {};
    const auto rest = static_cast<size_t>(n - i) * sizeof(float);
    std::memcpy(a, x + i, rest);
    std::memcpy(b, y + i, rest);
    Store(a, op(Load(a), Load(b)));
    std::memcpy(out + i, a, rest);
  }
}

}  // namespace
}  // namespace cmforge
