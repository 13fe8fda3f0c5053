// The matrix product on an unpacked panel: 32 rows by up to six tokens in registers.
#include "kernels/avx512/panel.h"

namespace cmforge::avx512 {
namespace {

// Six tokens by two vectors of rows: 12 integer and 12 float accumulators, two vectors of codes, and a
// broadcast activation, of 32 registers. A step of eight words has 96 dot products for 64 loads.
constexpr int kTokens = 6;

template <int kCount, bool kHasGroupScales>
CMFORGE_INLINE void Phase(const PanelGroup* codes, const PanelScales* scales, int zero, int64_t steps,
                          int64_t phase, const QuantizedGroup* const (&x)[kCount], const QuantizedGroup* next,
                          int64_t next_stride, __m512 (&sums)[kCount][2]) {
  codes += phase * steps;
  if constexpr (kHasGroupScales) scales += phase * steps;
  for (int t = 0; t < kCount; ++t) sums[t][0] = sums[t][1] = _mm512_setzero_ps();
  for (int64_t step = 0; step < steps; ++step) {
    const int64_t g = step * kPhases + phase;
    __m512i dots[kCount][2];
    for (int t = 0; t < kCount; ++t) dots[t][0] = dots[t][1] = _mm512_set1_epi32(x[t][g].minus_zero[zero]);
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k) {
      const __m512i low = _mm512_load_si512(codes[step].codes[0][k]),
                    high = _mm512_load_si512(codes[step].codes[1][k]);
#pragma GCC unroll 6
      for (int t = 0; t < kCount; ++t) {
        int32_t word;
        __builtin_memcpy(&word, x[t][g].q + 4 * k, 4);
        const __m512i four = _mm512_set1_epi32(word);
        dots[t][0] = _mm512_dpbusd_epi32(dots[t][0], low, four);
        dots[t][1] = _mm512_dpbusd_epi32(dots[t][1], high, four);
      }
    }
    if (next != nullptr) {
      for (int t = 0; t < kCount; ++t)
        _mm_prefetch(reinterpret_cast<const char*>(next + t * next_stride + g), _MM_HINT_T0);
    }
#pragma GCC unroll 6
    for (int t = 0; t < kCount; ++t) {
      const __m512 x_scale = _mm512_set1_ps(x[t][g].scale);
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const __m512 scale = kHasGroupScales
                                 ? _mm512_mul_ps(_mm512_load_ps(scales[step].scale + 16 * half), x_scale)
                                 : x_scale;
        sums[t][half] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[t][half]), scale, sums[t][half]);
      }
    }
  }
}

template <int kCount, bool kHasGroupScales>
void Tile(const PanelGroup* codes, const PanelScales* scales, const float* row_scales, int zero,
          int64_t steps, int64_t row_count, const QuantizedGroup* const (&x)[kCount],
          const QuantizedGroup* next, int64_t next_stride, float* out, int64_t out_stride) {
  __m512 even[kCount][2], odd[kCount][2], sums[kCount][2];
  Phase<kCount, kHasGroupScales>(codes, scales, zero, steps, 0, x, next, next_stride, even);
  Phase<kCount, kHasGroupScales>(codes, scales, zero, steps, 1, x, next, next_stride, sums);
  for (int t = 0; t < kCount; ++t) {
    for (int half = 0; half < 2; ++half) even[t][half] = _mm512_add_ps(even[t][half], sums[t][half]);
  }
  Phase<kCount, kHasGroupScales>(codes, scales, zero, steps, 2, x, next, next_stride, odd);
  Phase<kCount, kHasGroupScales>(codes, scales, zero, steps, 3, x, next, next_stride, sums);
  for (int t = 0; t < kCount; ++t) {
    for (int half = 0; half < 2; ++half) {
      __m512 y = _mm512_add_ps(even[t][half], _mm512_add_ps(odd[t][half], sums[t][half]));
      if constexpr (!kHasGroupScales) y = _mm512_mul_ps(y, _mm512_load_ps(row_scales + 16 * half));
      _mm512_mask_storeu_ps(out + t * out_stride + 16 * half, LowLanes(row_count - 16 * half), y);
    }
  }
}

template <int kCount>
void TileOf(const Panels& panels, int64_t row_count, const TokenRows& x, int64_t token, float* out,
            int64_t out_stride) {
  const QuantizedGroup* rows[kCount];
  for (int t = 0; t < kCount; ++t) rows[t] = x.groups + x.Row(token + t) * x.groups_stride;
  // The next tile's activations come from L3 or beyond: ask for them while the last panel meets this one.
  const bool has_next = token + 2 * kCount <= x.count && x.index == nullptr;
  const int zero = static_cast<int>(panels.zero);
  for (int64_t p = 0; p < panels.count; ++p) {
    const int64_t groups = panels.steps * kPhases;
    const QuantizedGroup* next =
        has_next && p == panels.count - 1 ? rows[0] + kCount * x.groups_stride : nullptr;
    float* at = out + token * out_stride + p * kPanelRows;
    const PanelGroup* codes = panels.codes + p * groups;
    const int64_t count = row_count - p * kPanelRows;
    if (panels.scales != nullptr) {
      Tile<kCount, true>(codes, panels.scales + p * groups, nullptr, zero, panels.steps, count, rows, next,
                         x.groups_stride, at, out_stride);
    } else {
      Tile<kCount, false>(codes, nullptr, panels.row_scales + p * kPanelRows, zero, panels.steps, count, rows,
                          next, x.groups_stride, at, out_stride);
    }
  }
}

}  // namespace

void PanelProduct(const Panels& panels, int64_t row_count, const TokenRows& x, float* out,
                  int64_t out_stride) {
  int64_t token = 0;
  // Tiles of six, the last ones balanced (14 = 5 + 5 + 4), so that no tile is much smaller than the others.
  for (int64_t tiles = (x.count + kTokens - 1) / kTokens; tiles > 0; --tiles) {
    const int64_t count = (x.count - token + tiles - 1) / tiles;
    switch (count) {
      case 1:
        TileOf<1>(panels, row_count, x, token, out, out_stride);
        break;
      case 2:
        TileOf<2>(panels, row_count, x, token, out, out_stride);
        break;
      case 3:
        TileOf<3>(panels, row_count, x, token, out, out_stride);
        break;
      case 4:
        TileOf<4>(panels, row_count, x, token, out, out_stride);
        break;
      case 5:
        TileOf<5>(panels, row_count, x, token, out, out_stride);
        break;
      default:
        TileOf<kTokens>(panels, row_count, x, token, out, out_stride);
        break;
    }
    token += count;
  }
}

}  // namespace cmforge::avx512
