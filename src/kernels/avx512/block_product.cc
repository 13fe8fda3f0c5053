// The product of unpacked rows and tokens by VNNI: up to six rows by two vectors of 16 tokens in registers.
#include "kernels/avx512/blocks.h"

namespace cmforge::avx512 {
namespace {

// Six rows by two vectors: 12 integer and 12 float accumulators, two vectors of activations and a broadcast weight, of
// 32 registers. Four dot products of a row are 4 x 128 operations for a load of four bytes.
constexpr int64_t kMostRows = 6;

/// One partial sum's groups, of one tile of rows and one or two tiles of tokens.
struct Input {
  const uint8_t* codes;
  const float* scales;  // of the first group
  const TokenGroup* x[2];
  int64_t groups;
};

/// Adds up the groups for row `row` and the following ones, and joins the sum with earlier ones (kOrder).
template <int kRows, int kVectors, bool kHasGroupScales>
CMFORGE_INLINE void Rows(const Input& in, int64_t row, int turn, Sums (&out)[kVectors]) {
  __m512 sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) sums[r][v] = _mm512_setzero_ps();
  }
  const uint8_t* codes = in.codes + kGroupSize * row;
  for (int64_t g = 0; g < in.groups; ++g, codes += kTileGroupBytes) {
    __m512i dots[kRows][kVectors];
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v) dots[r][v] = _mm512_load_si512(in.x[v][g].minus_zero);
    }
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k) {
      __m512i x[kVectors];
      for (int v = 0; v < kVectors; ++v) x[v] = _mm512_load_si512(in.x[v][g].q[k]);
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        int32_t word;
        __builtin_memcpy(&word, codes + kGroupSize * r + 4 * k, 4);
        const __m512i four = _mm512_set1_epi32(word);
        for (int v = 0; v < kVectors; ++v) dots[r][v] = _mm512_dpbusd_epi32(dots[r][v], four, x[v]);
      }
    }
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      const __m512 x_scale = _mm512_load_ps(in.x[v][g].scale);
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        __m512 scale = x_scale;
        if constexpr (kHasGroupScales) {
          const float own = in.scales[kUnitScales * g + kPartials * (row + r)];
          scale = _mm512_mul_ps(_mm512_set1_ps(own), x_scale);
        }
        sums[r][v] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[r][v]), scale, sums[r][v]);
      }
    }
  }
  int height = 0;
  for (; (turn >> height & 1) != 0; ++height) {
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v)
        sums[r][v] = _mm512_add_ps(_mm512_load_ps(out[v].at[height][row + r]), sums[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) _mm512_store_ps(out[v].at[height][row + r], sums[r][v]);
  }
}

/// The whole sums of `count` rows. Each partial sum's tokens meet all rows while they are in L1.
template <int kVectors, bool kHasGroupScales>
CMFORGE_INLINE void Tile(const uint8_t* codes, const float* scales, const TokenGroup* x, int64_t groups,
                         int64_t count, Sums (&sums)[kVectors]) {
  // As even as can be, so that no part has much fewer sums under way than the others; rows past the last are there.
  const int64_t parts = (count + kMostRows - 1) / kMostRows;
  for (int turn = 0; turn < kPartials; ++turn) {
    const int64_t p = kOrder[turn], own = (groups - p + kPartials - 1) / kPartials;
    const Input in = {codes, kHasGroupScales ? scales + ScaleOffset(p) : nullptr, {x, x + groups}, own};
    for (int64_t part = 0, row = 0; part < parts; ++part) {
      const int64_t rows = (count - row + parts - part - 1) / (parts - part);
      if (rows <= 4) {
        Rows<4, kVectors, kHasGroupScales>(in, row, turn, sums);
      } else if (rows == 5) {
        Rows<5, kVectors, kHasGroupScales>(in, row, turn, sums);
      } else {
        Rows<6, kVectors, kHasGroupScales>(in, row, turn, sums);
      }
      row += rows;
    }
    codes += own * kTileGroupBytes;
    x += own;
  }
}

/// All tiles of the block, one or two tiles of tokens. `ahead` is prefetched meanwhile.
template <int kVectors, bool kHasGroupScales>
void TokenTiles(const Block& block, const TokenGroup* x, Ahead ahead, int64_t tokens, float* out,
                int64_t out_stride) {
  const int64_t units = (block.groups + kPartials - 1) / kPartials;
  int64_t prefetched = 0;
  for (int64_t begin = 0; begin < block.rows; begin += kTileRows) {
    const int64_t tile = begin / kTileRows, left = block.rows - begin,
                  count = left < kTileRows ? left : kTileRows;
    const int64_t prefetch_end = ahead.bytes * (begin + count) / block.rows;
    for (; prefetched < prefetch_end; prefetched += 64) PrefetchLine(ahead.at + prefetched);
    for (int64_t v = 0; v < kVectors; ++v)
      PrefetchTile(out + v * kTileTokens * out_stride + begin, tokens - v * kTileTokens, out_stride);
    Sums sums[kVectors];
    Tile<kVectors, kHasGroupScales>(block.codes + tile * TileCodeBytes(block.groups),
                                    kHasGroupScales ? block.scales + tile * units * kUnitScales : nullptr, x,
                                    block.groups, count, sums);
    for (int64_t v = 0; v < kVectors; ++v) {
      StoreTile(sums[v].at[kTreeHeight], kHasGroupScales ? nullptr : block.row_scales + begin, count,
                tokens - v * kTileTokens, out + v * kTileTokens * out_stride + begin, out_stride);
    }
  }
}

template <bool kHasGroupScales>
void AllTokens(const Block& block, const TokenGroup* x, int64_t tokens, float* out, int64_t out_stride) {
  for (int64_t t = 0; t < tokens; t += 2 * kTileTokens, x += 2 * block.groups) {
    const int64_t left = tokens - t, count = left < 2 * kTileTokens ? left : 2 * kTileTokens;
    const int64_t from = block.ahead.bytes * t / tokens, to = block.ahead.bytes * (t + count) / tokens;
    const Ahead ahead = {block.ahead.at + from, to - from};
    if (count > kTileTokens) {
      TokenTiles<2, kHasGroupScales>(block, x, ahead, count, out + t * out_stride, out_stride);
    } else {
      TokenTiles<1, kHasGroupScales>(block, x, ahead, count, out + t * out_stride, out_stride);
    }
  }
}

}  // namespace

void BlockProduct(const Block& block, const TokenGroup* tiles, int64_t tokens, float* out,
                  int64_t out_stride) {
  if (block.scales != nullptr) {
    AllTokens<true>(block, tiles, tokens, out, out_stride);
  } else {
    AllTokens<false>(block, tiles, tokens, out, out_stride);
  }
}

}  // namespace cmforge::avx512
