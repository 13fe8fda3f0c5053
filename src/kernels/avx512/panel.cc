// The matrix product on unpacked panels: 32 rows by a tile of up to six tokens in registers.
#include "kernels/avx512/panel.h"

namespace cmforge::avx512 {
namespace {

// Six tokens by two vectors of rows: 12 integer and 12 float accumulators, two vectors of codes, and a
// broadcast activation, of 32 registers. A group has 96 dot products for 64 loads.

/// One panel and one tile.
struct TileInput {
  const PanelGroup* codes;
  const PanelScales* scales;
  const TileGroup* x;
  int64_t groups;
};

/// Partial sum p of 32 rows and every token.
template <int kCount, bool kHasGroupScales>
CMFORGE_INLINE void Partial(const TileInput& in, int64_t p, __m512 (&sums)[kCount][2]) {
  const int64_t begin = PartialBegin(in.groups, p), end = PartialBegin(in.groups, p + 1);
  for (int t = 0; t < kCount; ++t) sums[t][0] = sums[t][1] = _mm512_setzero_ps();
  for (int64_t g = begin; g < end; ++g) {
    const PanelGroup& codes = in.codes[g];
    const TileGroup& x = in.x[g];
    __m512i dots[kCount][2];
    for (int t = 0; t < kCount; ++t) dots[t][0] = dots[t][1] = _mm512_set1_epi32(x.minus_zero[t]);
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k) {
      const __m512i low = _mm512_load_si512(codes.codes[0][k]), high = _mm512_load_si512(codes.codes[1][k]);
#pragma GCC unroll 6
      for (int t = 0; t < kCount; ++t) {
        int32_t word;
        __builtin_memcpy(&word, x.q[t] + 4 * k, 4);
        const __m512i four = _mm512_set1_epi32(word);
        dots[t][0] = _mm512_dpbusd_epi32(dots[t][0], low, four);
        dots[t][1] = _mm512_dpbusd_epi32(dots[t][1], high, four);
      }
    }
#pragma GCC unroll 6
    for (int t = 0; t < kCount; ++t) {
      const __m512 x_scale = _mm512_set1_ps(x.scale[t]);
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const __m512 scale = kHasGroupScales
                                 ? _mm512_mul_ps(_mm512_load_ps(in.scales[g].scale + 16 * half), x_scale)
                                 : x_scale;
        sums[t][half] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[t][half]), scale, sums[t][half]);
      }
    }
  }
}

template <int kCount>
CMFORGE_INLINE void Add(const __m512 (&a)[kCount][2], const __m512 (&b)[kCount][2],
                        __m512 (&sums)[kCount][2]) {
  for (int t = 0; t < kCount; ++t) {
    for (int half = 0; half < 2; ++half) sums[t][half] = _mm512_add_ps(a[t][half], b[t][half]);
  }
}

/// Partial sums p, p + 4, p + 8 and p + 12, joined as the tree of table.h joins them.
template <int kCount, bool kHasGroupScales>
CMFORGE_INLINE void Quarter(const TileInput& in, int64_t p, __m512 (&sums)[kCount][2]) {
  __m512 a[kCount][2], b[kCount][2];
  Partial<kCount, kHasGroupScales>(in, p, a);
  Partial<kCount, kHasGroupScales>(in, p + 8, sums);
  Add(a, sums, a);
  Partial<kCount, kHasGroupScales>(in, p + 4, b);
  Partial<kCount, kHasGroupScales>(in, p + 12, sums);
  Add(b, sums, sums);
  Add(a, sums, sums);
}

template <int kCount, bool kHasGroupScales>
void Tile(const TileInput& in, const float* row_scales, int64_t row_count, float* out, int64_t out_stride) {
  __m512 quarters[4][kCount][2];
  for (int64_t p = 0; p < 4; ++p) Quarter<kCount, kHasGroupScales>(in, p, quarters[p]);
  for (int t = 0; t < kCount; ++t) {
    for (int half = 0; half < 2; ++half) {
      __m512 y = _mm512_add_ps(_mm512_add_ps(quarters[0][t][half], quarters[2][t][half]),
                               _mm512_add_ps(quarters[1][t][half], quarters[3][t][half]));
      if constexpr (!kHasGroupScales) y = _mm512_mul_ps(y, _mm512_load_ps(row_scales + 16 * half));
      _mm512_mask_storeu_ps(out + t * out_stride + 16 * half, LowLanes(row_count - 16 * half), y);
    }
  }
}

template <int kCount>
void TileOf(const Panels& panels, int64_t row_count, const TileGroup* x, float* out, int64_t out_stride) {
  for (int64_t p = 0; p < panels.count; ++p) {
    const int64_t begin = p * panels.groups;
    TileInput in = {panels.codes + begin, nullptr, x, panels.groups};
    const int64_t count = row_count - p * kPanelRows;
    if (panels.scales != nullptr) {
      in.scales = panels.scales + begin;
      Tile<kCount, true>(in, nullptr, count, out + p * kPanelRows, out_stride);
    } else {
      Tile<kCount, false>(in, panels.row_scales + p * kPanelRows, count, out + p * kPanelRows, out_stride);
    }
  }
}

}  // namespace

void PanelProduct(const Panels& panels, int64_t row_count, const TileGroup* tiles, int64_t tokens, float* out,
                  int64_t out_stride) {
  for (int64_t tile = 0; tile < TilesOf(tokens); ++tile) {
    const int64_t token = TileBegin(tokens, tile);
    const TileGroup* x = tiles + tile * panels.groups;
    float* at = out + token * out_stride;
    switch (TileBegin(tokens, tile + 1) - token) {
      case 1:
        TileOf<1>(panels, row_count, x, at, out_stride);
        break;
      case 2:
        TileOf<2>(panels, row_count, x, at, out_stride);
        break;
      case 3:
        TileOf<3>(panels, row_count, x, at, out_stride);
        break;
      case 4:
        TileOf<4>(panels, row_count, x, at, out_stride);
        break;
      case 5:
        TileOf<5>(panels, row_count, x, at, out_stride);
        break;
      default:
        TileOf<kTileTokens>(panels, row_count, x, at, out_stride);
        break;
    }
  }
}

}  // namespace cmforge::avx512
