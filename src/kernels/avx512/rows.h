// Few tokens: weights stream by once, four rows at a time, 128 columns (four groups, one per phase) a step.
//
// An encoding is a class, made for four rows, that gives for each step two vectors of unsigned codes per row
// with 16 codes of each group in the group's 128-bit lane (its first and second half, or its even and odd
// elements), and the 16 scales in lanes 4 * group + row. Two integer dot products per row then leave four
// words per group, three rounds of unpack-and-add turn four rows' words into 16 group sums, and one convert
// and one fused multiply- add finish 512 weights: 2.5 of these vector operations per 64 weights beside
// unpacking the codes.
//
//   struct Encoding {
//     static constexpr bool kIsInterleaved;     // even/odd elements instead of halves
//     static constexpr bool kHasGroupScales;
//     static constexpr int32_t kZero;           // of its codes; kZeroByRow: RowZero(r) says
//     Encoding(const WeightLayout& w, const int64_t (&rows)[4], float* scratch);  // OwnFloats(groups) floats
//     int64_t full_steps() const;
//     template <bool kIsTail> void Codes(int r, int64_t block, __m512i& first, __m512i& second) const;
//     template <bool kIsTail> __m512 Scales(int64_t block) const;
//     void Prefetch(int r, int64_t block) const;
//     __m512i MinusZero(__m512i minus_sum) const;  // kZeroByRow: lane 4 * group + row, times the row's zero
//   };
// A tail step has fewer than four groups: it reads nothing outside the row's bytes and its missing scales are
// 0.
#pragma once

#include "kernels/avx512/common.h"

namespace cmforge {
namespace {

constexpr int64_t kTokenTile = 4;   // tokens that share one unpacking
constexpr int32_t kZeroByRow = -1;  // as Encoding::kZero

/// Floats of scratch an encoding may use for its four rows: a scale for every group, in whole vectors of
/// groups.
constexpr int64_t OwnFloats(int64_t groups) { return (groups + 15) / 16 * 16 * 4; }

/// One step's activations, arranged for the encoding: 256 bytes that are read in order.
struct alignas(64) StepInput {
  int8_t first[64], second[64];  // lane of the group: the 16 elements that match Codes()
  float scale[16];               // lane 4 * group + row
  int32_t minus_zero[16];        // -kZero * sum
};

template <class Encoding>
CMFORGE_INLINE void ArrangeInput(const QuantizedGroup* groups, int64_t steps, StepInput* out) {
  for (int64_t b = 0; b < steps; ++b, groups += kBlockGroups, ++out) {
    const __m128i low[4] = {_mm_loadu_si128(reinterpret_cast<const __m128i*>(groups[0].q)),
                            _mm_loadu_si128(reinterpret_cast<const __m128i*>(groups[1].q)),
                            _mm_loadu_si128(reinterpret_cast<const __m128i*>(groups[2].q)),
                            _mm_loadu_si128(reinterpret_cast<const __m128i*>(groups[3].q))};
    const __m128i high[4] = {_mm_loadu_si128(reinterpret_cast<const __m128i*>(groups[0].q + 16)),
                             _mm_loadu_si128(reinterpret_cast<const __m128i*>(groups[1].q + 16)),
                             _mm_loadu_si128(reinterpret_cast<const __m128i*>(groups[2].q + 16)),
                             _mm_loadu_si128(reinterpret_cast<const __m128i*>(groups[3].q + 16))};
    const __m128i even_odd = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    for (int g = 0; g < 4; ++g) {
      __m128i first = low[g], second = high[g];
      if constexpr (Encoding::kIsInterleaved) {
        const __m128i a = _mm_shuffle_epi8(low[g], even_odd), b8 = _mm_shuffle_epi8(high[g], even_odd);
        first = _mm_unpacklo_epi64(a, b8);
        second = _mm_unpackhi_epi64(a, b8);
      }
      _mm_store_si128(reinterpret_cast<__m128i*>(out->first + 16 * g), first);
      _mm_store_si128(reinterpret_cast<__m128i*>(out->second + 16 * g), second);
      _mm_store_ps(out->scale + 4 * g, _mm_set1_ps(groups[g].scale));
      constexpr int32_t kZero = Encoding::kZero == kZeroByRow ? 1 : Encoding::kZero;
      const int32_t minus_zero = groups[g].minus_zero[static_cast<int>(ZeroPoint::k8)] / 8 * kZero;
      _mm_store_si128(reinterpret_cast<__m128i*>(out->minus_zero + 4 * g), _mm_set1_epi32(minus_zero));
    }
  }
}

template <class Encoding, int kTokens, bool kIsTail>
CMFORGE_INLINE void Step(const Encoding& rows, int64_t block, const StepInput* const (&x)[kTokens],
                         __m512 (&sums)[kTokens]) {
  __m512i first[4], second[4];
  for (int r = 0; r < 4; ++r) rows.template Codes<kIsTail>(r, block, first[r], second[r]);
  __m512 weight_scales = _mm512_setzero_ps();
  if constexpr (Encoding::kHasGroupScales) weight_scales = rows.template Scales<kIsTail>(block);
  for (int t = 0; t < kTokens; ++t) {
    const StepInput& in = x[t][block];
    const __m512i x_first = _mm512_load_si512(in.first), x_second = _mm512_load_si512(in.second);
    __m512i dots[4];
    for (int r = 0; r < 4; ++r) {
      dots[r] = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(_mm512_setzero_si512(), first[r], x_first), second[r],
                                    x_second);
    }
    __m512i minus_zero = _mm512_load_si512(in.minus_zero);
    if constexpr (Encoding::kZero == kZeroByRow) minus_zero = rows.MinusZero(minus_zero);
    const __m512i groups = _mm512_add_epi32(SumFours(dots[0], dots[1], dots[2], dots[3]), minus_zero);
    __m512 scales = _mm512_load_ps(in.scale);
    if constexpr (Encoding::kHasGroupScales) scales = _mm512_mul_ps(weight_scales, scales);
    sums[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(groups), scales, sums[t]);
  }
}

template <class Encoding, int kTokens>
CMFORGE_INLINE void FourRows(const Encoding& rows, int64_t groups, const StepInput* const (&x)[kTokens],
                             __m128 (&sums)[kTokens]) {
  __m512 phases[kTokens];
  for (int t = 0; t < kTokens; ++t) phases[t] = _mm512_setzero_ps();
  const int64_t full = rows.full_steps();
  int64_t block = 0;
  for (; block < full; ++block) {
    for (int r = 0; r < 4; ++r) rows.Prefetch(r, block);
    Step<Encoding, kTokens, false>(rows, block, x, phases);
  }
  if (block * kBlockGroups < groups) Step<Encoding, kTokens, true>(rows, block, x, phases);
  for (int t = 0; t < kTokens; ++t) sums[t] = SumPhases(phases[t]);
}

constexpr int64_t InputSteps(int64_t groups) { return (groups + kBlockGroups - 1) / kBlockGroups; }

template <class Encoding, int kTokens>
CMFORGE_INLINE void TokensOfRows(const Encoding& rows, const WeightLayout& w, int64_t row, int64_t count,
                                 __m128 row_scales, const StepInput* x, int64_t token, float* out,
                                 int64_t out_stride) {
  const int64_t steps = InputSteps(w.groups);
  const StepInput* inputs[kTokens];
  for (int t = 0; t < kTokens; ++t) inputs[t] = x + (token + t) * steps;
  __m128 sums[kTokens];
  FourRows<Encoding, kTokens>(rows, w.groups, inputs, sums);
  for (int t = 0; t < kTokens; ++t) {
    if constexpr (!Encoding::kHasGroupScales) sums[t] = _mm_mul_ps(sums[t], row_scales);
    _mm_mask_storeu_ps(out + (token + t) * out_stride + row, static_cast<__mmask8>((1 << count) - 1),
                       sums[t]);
  }
}

template <class Encoding>
void RowsProduct(const WeightLayout& w, int64_t row_begin, int64_t row_end, const TokenRows& x, float* out,
                 int64_t out_stride, std::byte* scratch) {
  auto* input = reinterpret_cast<StepInput*>(scratch);
  const int64_t steps = InputSteps(w.groups);
  for (int64_t i = 0; i < x.count; ++i) {
    ArrangeInput<Encoding>(x.groups + x.Row(i) * x.groups_stride, steps, input + i * steps);
  }
  auto* own = reinterpret_cast<float*>(input + x.count * steps);
  for (int64_t row = row_begin; row < row_end; row += 4) {
    const int64_t count = row_end - row < 4 ? row_end - row : 4;
    int64_t four[4];
    for (int r = 0; r < 4; ++r) four[r] = row + (r < count ? r : count - 1);
    const Encoding rows(w, four, own);
    __m128 row_scales = _mm_setzero_ps();
    if constexpr (!Encoding::kHasGroupScales) {
      const __m128i halves =
          _mm_maskz_loadu_epi16(static_cast<__mmask8>((1 << count) - 1), w.scales + 2 * row);
      row_scales = _mm_cvtph_ps(halves);
    }
    int64_t token = 0;
    for (; token + kTokenTile <= x.count; token += kTokenTile) {
      TokensOfRows<Encoding, kTokenTile>(rows, w, row, count, row_scales, input, token, out, out_stride);
    }
    switch (x.count - token) {
      case 3:
        TokensOfRows<Encoding, 3>(rows, w, row, count, row_scales, input, token, out, out_stride);
        break;
      case 2:
        TokensOfRows<Encoding, 2>(rows, w, row, count, row_scales, input, token, out, out_stride);
        break;
      case 1:
        TokensOfRows<Encoding, 1>(rows, w, row, count, row_scales, input, token, out, out_stride);
        break;
      default:
        break;
    }
  }
}

}  // namespace
}  // namespace cmforge
