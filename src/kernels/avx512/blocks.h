// Many tokens: a block of rows is unpacked once into scratch that stays in cache, then every token of the batch meets
// it. Lanes are tokens here, so a group's integer sum needs no reduction, and a weight is broadcast: rows are unpacked
// as they lie, a store for each vector of codes, with nothing transposed. What is transposed are the activations, once
// for all rows.
//
// Block: up to eight tiles of 16 rows. Codes of a tile: [groups][16 rows][32], scales [unit][16 rows][16 groups in unit
// order] (rows.h). Rows of the last tile that do not exist hold anything; nothing is stored for them. Groups lie in
// the order in which they are summed (GroupOrder), codes and tokens alike, so that each is one stream.
#pragma once

#include "kernels/avx512/rows.h"

namespace cmforge {
namespace avx512 {

constexpr int64_t kTileRows = 16, kMostBlockTiles = 8;
constexpr int64_t kTileTokens = 16;

/// A group of each of 16 tokens; zeros where there are fewer. Tiles of tokens lie one after another, [groups] each.
struct alignas(64) TokenGroup {
  int8_t q[kGroupSize / 4][kTileTokens][4];  // in the order of the encoding's codes
  float scale[kTileTokens];
  int32_t minus_zero[kTileTokens];
};

constexpr int64_t TokenTilesOf(int64_t tokens) { return (tokens + kTileTokens - 1) / kTileTokens; }

// Partial sums in the order in which the tree of table.h joins neighbours: always two of the same height.
constexpr int kTreeHeight = 4;
constexpr int kOrder[kPartials] = {0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15};

/// Sums of one tile of rows and one of tokens: of heights 0 .. 3 of the tree, and of all groups.
struct alignas(64) Sums {
  float at[kTreeHeight + 1][kTileRows][kTileTokens];
};

/// Where groups lie: those of partial sum kOrder[0], then those of kOrder[1] and so on.
class GroupOrder {
 public:
  explicit GroupOrder(int64_t groups) {
    int64_t at = 0;
    for (const int p : kOrder) {
      begin_[p] = at;
      at += (groups - p + kPartials - 1) / kPartials;  // 0 where p is up to 15 above
    }
  }
  [[nodiscard]] CMFORGE_INLINE int64_t At(int64_t group) const {
    return begin_[group % kPartials] + group / kPartials;
  }
  /// Of the first group of a partial sum; the others follow.
  [[nodiscard]] CMFORGE_INLINE int64_t Begin(int64_t partial) const { return begin_[partial]; }

 private:
  int64_t begin_[kPartials];
};

constexpr int64_t kTileGroupBytes = kTileRows * kGroupSize;
constexpr int64_t TileCodeBytes(int64_t groups) { return groups * kTileGroupBytes; }

constexpr int64_t kFewTokens = 2 * kTileTokens;

/// Tiles in a block: as many as fit beside the activations in L2, so that these are fetched from farther away once for
/// all of them, and so that results are written in long pieces.
constexpr int64_t BlockTilesOf(int64_t groups, int64_t tokens) {
  constexpr int64_t kBudget = 448 << 10, kL1Budget = 24 << 10;
  // Few tokens: unpacking takes much of the time, and less of it in L1.
  if (tokens <= kFewTokens && TileCodeBytes(groups) <= kL1Budget) return kL1Budget / TileCodeBytes(groups);
  const int64_t tiles = kBudget / TileCodeBytes(groups);
  return tiles < 1 ? 1 : tiles > kMostBlockTiles ? kMostBlockTiles : tiles;
}

/// Bytes that will be wanted next, to be prefetched while a block is multiplied.
struct Ahead {
  const std::byte* at = nullptr;
  int64_t bytes = 0;
};

/// Tiles of unpacked rows.
struct Block {
  const uint8_t* codes;
  const float* scales;      // null: none per group
  const float* row_scales;  // [rows], null: none per row
  int64_t groups, rows;
  bool is_signed;  // codes are counted from 0, not from the layout's zero point
  Ahead ahead;
};

/// Where the scale of row 0 of a tile's group is, [groups of a partial sum][16 rows][16 partial sums].
constexpr int64_t ScaleOffset(int64_t partial) { return 4 * (partial % 4) + partial / 4; }
constexpr int64_t kUnitScales = kTileRows * kPartials;

/// out[i * out_stride + r] for every row of the block and token of the tiles. The second uses the registers and
/// products of AMX; their configuration is set and released within.
using BlockProductFn = void (*)(const Block& block, const TokenGroup* tiles, int64_t tokens, float* out,
                                int64_t out_stride);
void BlockProduct(const Block& block, const TokenGroup* tiles, int64_t tokens, float* out,
                  int64_t out_stride);
void AmxBlockProduct(const Block& block, const TokenGroup* tiles, int64_t tokens, float* out,
                     int64_t out_stride);

}  // namespace avx512

namespace {

/// Word g of each of 16 vectors to vector g.
CMFORGE_INLINE void Transpose16(__m512i (&rows)[16]) {
  for (int q = 0; q < 4; ++q) TransposeWords(rows[4 * q], rows[4 * q + 1], rows[4 * q + 2], rows[4 * q + 3]);
  for (int j = 0; j < 4; ++j) TransposeLanes(rows[j], rows[4 + j], rows[8 + j], rows[12 + j]);
  // Vector 4 i + j has become word 4 i + j: lanes of j, then words within.
}

/// Sums of 16 rows [row][token], times the rows' scales where there are some, to `rows` floats of each token.
CMFORGE_INLINE void StoreTile(const float (*sums)[avx512::kTileTokens], const float* row_scales, int64_t rows,
                              int64_t tokens, float* out, int64_t out_stride) {
  __m512i y[16];
#pragma GCC unroll 16
  for (int r = 0; r < 16; ++r) {
    __m512 sum = _mm512_load_ps(sums[r]);
    if (row_scales != nullptr) sum = _mm512_mul_ps(sum, _mm512_set1_ps(row_scales[r]));
    y[r] = _mm512_castps_si512(sum);
  }
  Transpose16(y);
  const __mmask16 mask = LowLanes(rows);
  for (int64_t t = 0; t < 16 && t < tokens; ++t) {
    _mm512_mask_storeu_epi32(out + t * out_stride, mask, y[t]);
  }
}

/// Fetches the lines that StoreTile will write.
CMFORGE_INLINE void PrefetchTile(const float* out, int64_t tokens, int64_t out_stride) {
  for (int64_t t = 0; t < 16 && t < tokens; ++t) __builtin_prefetch(out + t * out_stride, 1);
}

template <class Encoding, bool kIsFull>
CMFORGE_INLINE void UnpackUnit(const Encoding& row, const WeightLayout& w, const avx512::GroupOrder& order,
                               int64_t unit, int32_t shift, uint8_t* codes, float* scales) {
  alignas(64) std::byte copy[kIsFull ? 1 : kUnitBytesMax];
  const std::byte* at = kIsFull ? row.At(unit) : PartialUnitAt(row, w, unit, copy);
  __m512i first[kUnitSteps], second[kUnitSteps];
  CodesOf(row, at, first, second);
  const int64_t groups = kIsFull ? kUnitGroups : w.groups - unit * kUnitGroups;
  const __m512i low = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11),
                high = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  const __m512i shifts = _mm512_set1_epi8(static_cast<char>(shift));
  codes += unit * avx512::kTileGroupBytes;
#pragma GCC unroll 4
  for (int64_t s = 0; s < kUnitSteps; ++s) {
    const __m512i a = _mm512_add_epi8(first[s], shifts), b = _mm512_add_epi8(second[s], shifts);
    const __m512i pairs[2] = {_mm512_permutex2var_epi64(a, low, b), _mm512_permutex2var_epi64(a, high, b)};
#pragma GCC unroll 4
    for (int64_t i = 0; i < kStepGroups; ++i) {
      if (!kIsFull && kStepGroups * s + i >= groups) break;
      const __m512i pair = pairs[i / 2];
      uint8_t* to = codes + order.Begin(kStepGroups * s + i) * avx512::kTileGroupBytes;
      _mm256_store_si256(reinterpret_cast<__m256i*>(to),
                         i % 2 == 0 ? _mm512_castsi512_si256(pair) : _mm512_extracti64x4_epi64(pair, 1));
    }
  }
  if constexpr (Encoding::kHasGroupScales) _mm512_store_ps(scales, row.Scales(at, unit));
}

/// Unpacks `count` rows, at most 16. Codes are counted from `zero`. Four rows advance together, so that whole cache
/// lines are written in one go.
template <class Encoding>
void UnpackTile(const WeightLayout& w, int64_t begin, int64_t count, int32_t zero, uint8_t* codes,
                float* scales) {
  constexpr int64_t kTogether = kRowsAtOnce;
  static_assert(kTogether == 4);
  const int64_t units = UnitsOf(w.groups), full_units = w.cols / kUnitColumns;
  const avx512::GroupOrder order(w.groups);
  for (int64_t first = 0; first < count; first += kTogether) {
    const int64_t together = count - first < kTogether ? count - first : kTogether;
    Encoding prepared(w);
    prepared.Begin(begin + first, together);
    Encoding rows[kTogether] = {prepared, prepared, prepared, prepared};
    int32_t shifts[kTogether];
    for (int64_t i = 0; i < together; ++i) {
      rows[i].SetRow(begin + first + i);
      shifts[i] = zero - Encoding::kZero;
      if constexpr (Encoding::kZero == kZeroByRow) shifts[i] = zero - rows[i].row_zero();
    }
    for (int64_t unit = 0; unit < units; ++unit) {
      for (int64_t i = 0; i < together; ++i) {
        uint8_t* to = codes + kGroupSize * (first + i);
        float* scales_to = scales + unit * avx512::kUnitScales + kPartials * (first + i);
        if (unit < full_units) {
          UnpackUnit<Encoding, true>(rows[i], w, order, unit, shifts[i], to, scales_to);
        } else {
          UnpackUnit<Encoding, false>(rows[i], w, order, unit, shifts[i], to, scales_to);
        }
      }
    }
  }
}

constexpr int64_t BlockScratchBytes(int64_t groups, int64_t tokens) {
  return avx512::BlockTilesOf(groups, tokens) *
         (avx512::TileCodeBytes(groups) + UnitsOf(groups) * avx512::kUnitScales * int64_t{sizeof(float)});
}

template <class Encoding>
void BlocksProduct(const WeightLayout& w, int64_t row_begin, int64_t row_end, const TokenRows& x, float* out,
                   int64_t out_stride, std::byte* scratch) {
  using avx512::kTileRows;
  const int64_t block_tiles = avx512::BlockTilesOf(w.groups, x.count), block_rows = kTileRows * block_tiles;
  const int64_t tile_bytes = avx512::TileCodeBytes(w.groups),
                tile_scales = UnitsOf(w.groups) * avx512::kUnitScales;
  auto* codes = reinterpret_cast<uint8_t*>(scratch);
  auto* scales = reinterpret_cast<float*>(codes + block_tiles * tile_bytes);
  alignas(64) float row_scales[kTileRows * avx512::kMostBlockTiles] = {};
  // AMX multiplies signed codes, which need no zero point; those of vbit do not fit (8 bits, counted from 127).
  const bool is_signed = x.has_tiles && Encoding::kZero != kZeroByRow;
  const int32_t zero = is_signed ? 0 : kZeroPoints[static_cast<int>(w.zero)];
  const avx512::BlockProductFn product = x.has_tiles ? avx512::AmxBlockProduct : avx512::BlockProduct;
  avx512::Block block = {codes,
                         Encoding::kHasGroupScales ? scales : nullptr,
                         Encoding::kHasGroupScales ? nullptr : row_scales,
                         w.groups,
                         0,
                         is_signed,
                         {}};
  for (int64_t row = row_begin; row < row_end; row += block_rows) {
    block.rows = row_end - row < block_rows ? row_end - row : block_rows;
    for (int64_t begin = 0; begin < block.rows; begin += kTileRows) {
      const int64_t tile = begin / kTileRows, left = block.rows - begin;
      UnpackTile<Encoding>(w, row + begin, left < kTileRows ? left : kTileRows, zero,
                           codes + tile * tile_bytes, scales + tile * tile_scales);
    }
    if constexpr (!Encoding::kHasGroupScales) {
      for (int64_t r = 0; r < block.rows; ++r) row_scales[r] = HalfAt(w.scales + 2 * (row + r));
    }
    const int64_t next = row + block.rows, after = next + block_rows < row_end ? next + block_rows : row_end;
    block.ahead = {w.codes + next * w.code_stride, (after - next) * w.code_stride};
    product(block, reinterpret_cast<const avx512::TokenGroup*>(x.arranged), x.count, out + row, out_stride);
  }
}

}  // namespace
}  // namespace cmforge
