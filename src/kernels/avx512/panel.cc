// The matrix product on unpacked panels: 32 rows by up to six tokens in registers.
#include "kernels/avx512/panel.h"

namespace cmforge::avx512 {
namespace {

// Six tokens by two vectors of rows: 12 integer and 12 float accumulators, two vectors of codes, and a
// broadcast activation, of 32 registers. A group has 96 dot products for 64 loads.
constexpr int kTokens = 6;

/// One panel and the tokens of a tile.
template <int kCount>
struct TileInput {
  const PanelGroup* codes;
  const PanelScales* scales;
  int zero;
  int64_t groups;
  const QuantizedGroup* x[kCount];
  const QuantizedGroup* next;  // the next tile's first token, or null
  int64_t next_stride;
};

/// Partial sum p of 32 rows and every token.
template <int kCount, bool kHasGroupScales>
CMFORGE_INLINE void Partial(const TileInput<kCount>& in, int64_t p, __m512 (&sums)[kCount][2]) {
  const int64_t begin = PartialBegin(in.groups, p);
  const PanelGroup* codes = in.codes + begin;
  const PanelScales* scales = kHasGroupScales ? in.scales + begin : nullptr;
  for (int t = 0; t < kCount; ++t) sums[t][0] = sums[t][1] = _mm512_setzero_ps();
  for (int64_t g = p; g < in.groups; g += kPartials, ++codes, ++scales) {
    __m512i dots[kCount][2];
    for (int t = 0; t < kCount; ++t)
      dots[t][0] = dots[t][1] = _mm512_set1_epi32(in.x[t][g].minus_zero[in.zero]);
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k) {
      const __m512i low = _mm512_load_si512(codes->codes[0][k]), high = _mm512_load_si512(codes->codes[1][k]);
#pragma GCC unroll 6
      for (int t = 0; t < kCount; ++t) {
        int32_t word;
        __builtin_memcpy(&word, in.x[t][g].q + 4 * k, 4);
        const __m512i four = _mm512_set1_epi32(word);
        dots[t][0] = _mm512_dpbusd_epi32(dots[t][0], low, four);
        dots[t][1] = _mm512_dpbusd_epi32(dots[t][1], high, four);
      }
    }
    if (in.next != nullptr) {
      for (int t = 0; t < kCount; ++t) {
        _mm_prefetch(reinterpret_cast<const char*>(in.next + t * in.next_stride + g), _MM_HINT_T0);
      }
    }
#pragma GCC unroll 6
    for (int t = 0; t < kCount; ++t) {
      const __m512 x_scale = _mm512_set1_ps(in.x[t][g].scale);
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const __m512 scale =
            kHasGroupScales ? _mm512_mul_ps(_mm512_load_ps(scales->scale + 16 * half), x_scale) : x_scale;
        sums[t][half] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[t][half]), scale, sums[t][half]);
      }
    }
  }
}

template <int kCount, bool kHasGroupScales>
void Tile(const TileInput<kCount>& in, const float* row_scales, int64_t row_count, float* out,
          int64_t out_stride) {
  // Partial sums are made in the order in which the tree of table.h joins neighbours, so that at most four
  // wait.
  static constexpr int8_t kOrder[kPartials] = {0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15};
  __m512 waiting[4][kCount][2];
  __m512 sums[kCount][2];
  for (int64_t i = 0; i < kPartials; ++i) {
    Partial<kCount, kHasGroupScales>(in, kOrder[i], sums);
    int depth = __builtin_popcountll(static_cast<uint64_t>(i));
    for (int64_t made = i; (made & 1) != 0; made >>= 1) {
      --depth;
      for (int t = 0; t < kCount; ++t) {
        for (int half = 0; half < 2; ++half)
          sums[t][half] = _mm512_add_ps(waiting[depth][t][half], sums[t][half]);
      }
    }
    if (i == kPartials - 1) break;
    for (int t = 0; t < kCount; ++t) {
      for (int half = 0; half < 2; ++half) waiting[depth][t][half] = sums[t][half];
    }
  }
  for (int t = 0; t < kCount; ++t) {
    for (int half = 0; half < 2; ++half) {
      __m512 y = sums[t][half];
      if constexpr (!kHasGroupScales) y = _mm512_mul_ps(y, _mm512_load_ps(row_scales + 16 * half));
      _mm512_mask_storeu_ps(out + t * out_stride + 16 * half, LowLanes(row_count - 16 * half), y);
    }
  }
}

template <int kCount>
void TileOf(const Panels& panels, int64_t row_count, const TokenRows& x, int64_t token, float* out,
            int64_t out_stride) {
  TileInput<kCount> in;
  for (int t = 0; t < kCount; ++t) in.x[t] = x.groups + x.Row(token + t) * x.groups_stride;
  in.zero = static_cast<int>(panels.zero);
  in.groups = panels.groups;
  in.next_stride = x.groups_stride;
  // The next tile's activations come from L3 or beyond: ask for them while the last panel meets this one.
  const bool has_next = token + 2 * kCount <= x.count && x.index == nullptr;
  for (int64_t p = 0; p < panels.count; ++p) {
    in.codes = panels.codes + p * panels.groups;
    in.next = has_next && p == panels.count - 1 ? in.x[0] + kCount * x.groups_stride : nullptr;
    float* at = out + token * out_stride + p * kPanelRows;
    const int64_t count = row_count - p * kPanelRows;
    if (panels.scales != nullptr) {
      in.scales = panels.scales + p * panels.groups;
      Tile<kCount, true>(in, nullptr, count, at, out_stride);
    } else {
      Tile<kCount, false>(in, panels.row_scales + p * kPanelRows, count, at, out_stride);
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
