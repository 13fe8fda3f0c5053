// The product of unpacked rows and tokens: a few rows by one or two vectors of eight tokens in registers.
#include "kernels/avx2/blocks.h"

namespace cmforge::avx2 {
namespace {

// Four rows by two vectors: eight accumulators of words, two vectors of activations and a broadcast of codes, of 16
// registers; the float sums, used once a group, may lie in memory. Of wide codes half as many rows, two accumulators
// each. A word adds up 16 products below 16 * 128, so it cannot overflow.
template <bool kIsWide>
constexpr int kRowsOf = kIsWide ? 2 : 4;

constexpr int64_t kVector = 8;

/// Sums of one tile of rows and one of tokens: of heights 0 .. 3 of the tree, and of all groups.
struct alignas(64) Sums {
  float at[kTreeHeight + 1][kTileRows][kTileTokens];
};

/// One partial sum's groups, of one tile of rows and one of tokens.
struct Input {
  const uint8_t* codes;
  const float* scales;  // of the first group
  const TokenGroup* x;
  int64_t groups;
};

/// Adds up the groups for row `row` and the following ones, and joins the sum with earlier ones (kOrder).
template <int kVectors, bool kIsWide, bool kHasGroupScales>
CMFORGE_INLINE void Rows(const Input& in, int64_t row, int turn, Sums& out) {
  constexpr int kRows = kRowsOf<kIsWide>, kPlanes = kIsWide ? 2 : 1;
  constexpr int64_t kRowBytes = RowGroupBytes(kIsWide);
  const __m256i ones = _mm256_set1_epi16(1), sixteens = _mm256_set1_epi16(16);
  __m256 sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) sums[r][v] = _mm256_setzero_ps();
  }
  const uint8_t* codes = in.codes + kRowBytes * row;
  for (int64_t g = 0; g < in.groups; ++g, codes += kTileRows * kRowBytes) {
    const TokenGroup& x = in.x[g];
    __m256i words[kRows][kPlanes][kVectors];
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k) {
      __m256i four_x[kVectors];
      for (int v = 0; v < kVectors; ++v) four_x[v] = Load32(x.q[k][kVector * v]);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
        for (int p = 0; p < kPlanes; ++p) {
          const __m256i four =
              _mm256_set1_epi32(LoadAs<int32_t>(codes + kRowBytes * r + kGroupSize * p + 4 * k));
#pragma GCC unroll 2
          for (int v = 0; v < kVectors; ++v) {
            const __m256i product = _mm256_maddubs_epi16(four, four_x[v]);
            words[r][p][v] = k == 0 ? product : _mm256_add_epi16(words[r][p][v], product);
            InOrder(words[r][p][v]);
          }
        }
      }
    }
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      const __m256 x_scale = _mm256_load_ps(x.scale + kVector * v);
      const __m256i minus_zero = Load32(x.minus_zero + kVector * v);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        __m256i dots = _mm256_add_epi32(_mm256_madd_epi16(words[r][0][v], ones), minus_zero);
        if constexpr (kIsWide) dots = _mm256_add_epi32(dots, _mm256_madd_epi16(words[r][1][v], sixteens));
        __m256 scale = x_scale;
        if constexpr (kHasGroupScales) {
          const float own = in.scales[2 * kUnitScales * g + kUnitGroups * (row + r)];
          scale = _mm256_mul_ps(_mm256_set1_ps(own), x_scale);
        }
        sums[r][v] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots), scale, sums[r][v]);
      }
    }
  }
  int height = 0;
  for (; (turn >> height & 1) != 0; ++height) {
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v)
        sums[r][v] = _mm256_add_ps(_mm256_load_ps(out.at[height][row + r] + kVector * v), sums[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) _mm256_store_ps(out.at[height][row + r] + kVector * v, sums[r][v]);
  }
}

/// Row j of each of 8 vectors to vector j.
CMFORGE_INLINE void Transpose(__m256 (&v)[8]) {
  __m256 pairs[8], fours[8];
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = _mm256_unpacklo_ps(v[i], v[i + 1]);
    pairs[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    for (int h = 0; h < 2; ++h) {
      fours[i + 2 * h] = _mm256_shuffle_ps(pairs[i + h], pairs[i + 2 + h], 0x44);
      fours[i + 2 * h + 1] = _mm256_shuffle_ps(pairs[i + h], pairs[i + 2 + h], 0xEE);
    }
  }
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_permute2f128_ps(fours[i], fours[4 + i], 0x20);
    v[4 + i] = _mm256_permute2f128_ps(fours[i], fours[4 + i], 0x31);
  }
}

/// Sums [row][token], times the rows' scales where there are some, to `rows` floats of each token.
CMFORGE_INLINE void StoreTile(const Sums& sums, const float* row_scales, int64_t rows, int64_t tokens,
                              float* out, int64_t out_stride) {
  for (int64_t row = 0; row < rows; row += kVector) {
    const int64_t left = rows - row;
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(left)), lane);
    for (int64_t token = 0; token < tokens; token += kVector) {
      __m256 y[8];
      for (int r = 0; r < 8; ++r) {
        y[r] = _mm256_load_ps(sums.at[kTreeHeight][row + r] + token);
        if (row_scales != nullptr) y[r] = _mm256_mul_ps(y[r], _mm256_set1_ps(row_scales[row + r]));
      }
      Transpose(y);
      for (int64_t t = 0; t < 8 && token + t < tokens; ++t) {
        float* to = out + (token + t) * out_stride + row;
        if (left >= kVector) {
          _mm256_storeu_ps(to, y[t]);
        } else {
          _mm256_maskstore_ps(to, mask, y[t]);
        }
      }
    }
  }
}

/// All rows of the block, one tile of tokens. Each partial sum's tokens meet all rows of a tile while they are in L1.
template <int kVectors, bool kIsWide, bool kHasGroupScales>
void TokenTile(const Block& block, const TokenGroup* tokens, int64_t count, float* out, int64_t out_stride) {
  Sums sums;
  for (int64_t begin = 0; begin < block.rows; begin += kTileRows) {
    const int64_t tile = begin / kTileRows, left = block.rows - begin,
                  rows = left < kTileRows ? left : kTileRows;
    for (int64_t t = 0; t < count; ++t) __builtin_prefetch(out + t * out_stride + begin, 1);
    const uint8_t* codes = block.codes + tile * TileCodeBytes(block.groups, kIsWide);
    const float* scales =
        kHasGroupScales ? block.scales + tile * UnitsOf(block.groups) * kUnitScales : nullptr;
    const TokenGroup* x = tokens;
    for (int turn = 0; turn < kPartials; ++turn) {
      const int64_t p = kOrder[turn], own = (block.groups - p + kPartials - 1) / kPartials;
      const Input in = {codes, kHasGroupScales ? scales + ScaleOffset(p) : nullptr, x, own};
      for (int64_t row = 0; row < rows; row += kRowsOf<kIsWide>)
        Rows<kVectors, kIsWide, kHasGroupScales>(in, row, turn, sums);
      codes += own * kTileRows * RowGroupBytes(kIsWide);
      x += own;
    }
    StoreTile(sums, kHasGroupScales ? nullptr : block.row_scales + begin, rows, count, out + begin,
              out_stride);
  }
}

template <bool kIsWide, bool kHasGroupScales>
void AllTokens(const Block& block, const TokenGroup* x, int64_t tokens, float* out, int64_t out_stride) {
  for (int64_t t = 0; t < tokens; t += kTileTokens, x += block.groups) {
    const int64_t left = tokens - t, count = left < kTileTokens ? left : kTileTokens;
    if (count > kVector) {
      TokenTile<2, kIsWide, kHasGroupScales>(block, x, count, out + t * out_stride, out_stride);
    } else {
      TokenTile<1, kIsWide, kHasGroupScales>(block, x, count, out + t * out_stride, out_stride);
    }
  }
}

}  // namespace

void BlockProduct(const Block& block, const TokenGroup* tiles, int64_t tokens, float* out,
                  int64_t out_stride) {
  if (!block.is_wide) {
    AllTokens<false, true>(block, tiles, tokens, out, out_stride);
  } else if (block.scales != nullptr) {
    AllTokens<true, true>(block, tiles, tokens, out, out_stride);
  } else {
    AllTokens<true, false>(block, tiles, tokens, out, out_stride);
  }
}

}  // namespace cmforge::avx2
