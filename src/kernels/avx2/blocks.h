// Many tokens: a block of rows is unpacked once into scratch that stays in cache, then every token of the batch meets
// it. Lanes are tokens here, so a group's integer sum needs no reduction, and four codes of a row are broadcast: rows
// are unpacked as they lie. What is transposed are the activations, once for all rows.
//
// Block: up to eight tiles of 16 rows. Codes of a tile: [groups][16 rows][32] below 16; wide codes as two of these, the
// low and the high halves of the bytes, so that a group's products add up in 16 bits. Scales [unit][16 rows][8 groups
// in unit order] (rows.h). Rows of the last tile that do not exist hold anything; nothing is stored for them. Groups
// lie in the order in which they are summed (GroupOrder), codes and tokens alike, so that each is one stream.
#pragma once

#include "kernels/avx2/rows.h"

namespace cmforge {
namespace avx2 {

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

 private:
  int64_t begin_[kPartials];
};

constexpr int64_t RowGroupBytes(bool is_wide) { return is_wide ? 2 * kGroupSize : kGroupSize; }
constexpr int64_t TileCodeBytes(int64_t groups, bool is_wide) {
  return groups * kTileRows * RowGroupBytes(is_wide);
}

/// Tiles in a block: as many as fit beside the activations in L2, so that these are fetched from farther away once for
/// all of them, and so that results are written in long pieces.
constexpr int64_t BlockTilesOf(int64_t groups, bool is_wide) {
  constexpr int64_t kBudget = 256 << 10;
  const int64_t tiles = kBudget / TileCodeBytes(groups, is_wide);
  return tiles < 1 ? 1 : tiles > kMostBlockTiles ? kMostBlockTiles : tiles;
}

/// Tiles of unpacked rows.
struct Block {
  const uint8_t* codes;
  const float* scales;      // null: none per group
  const float* row_scales;  // [rows], null: none per row
  int64_t groups, rows;
  bool is_wide;
};

/// Where the scale of row 0 of a partial sum's first group is; its next one is two units on.
constexpr int64_t kUnitScales = kTileRows * kUnitGroups;
constexpr int64_t ScaleOffset(int64_t partial) {
  const int64_t group = partial % kUnitGroups;
  return kUnitScales * (partial / kUnitGroups) + group / 2 + 4 * (group % 2);
}

/// out[i * out_stride + r] for every row of the block and token of the tiles.
void BlockProduct(const Block& block, const TokenGroup* tiles, int64_t tokens, float* out,
                  int64_t out_stride);

}  // namespace avx2

namespace {

template <class Encoding, bool kIsFull>
CMFORGE_INLINE void UnpackUnit(const Encoding& row, const WeightLayout& w, const avx2::GroupOrder& order,
                               int64_t unit, uint8_t* codes, float* scales) {
  alignas(32) std::byte copy[kIsFull ? 1 : kUnitBytesMax + Encoding::kOverread];
  const std::byte* at = kIsFull ? row.At(unit) : LastUnitAt(row, w, unit, copy);
  __m256i first[kUnitSteps], second[kUnitSteps];
  row.Codes(at, first, second);
  const int64_t groups = kIsFull ? kUnitGroups : w.groups - unit * kUnitGroups;
  const auto store = [&](int64_t group, __m128i a, __m128i b) {
    uint8_t* to = codes + order.At(unit * kUnitGroups + group) *
                              (avx2::kTileRows * avx2::RowGroupBytes(Encoding::kIsWide));
    if constexpr (Encoding::kIsWide) {
      const __m256i bytes = _mm256_xor_si256(Lanes(a, b), _mm256_set1_epi8(static_cast<char>(0x80)));
      const __m256i low = _mm256_set1_epi8(15);
      _mm256_store_si256(reinterpret_cast<__m256i*>(to), _mm256_and_si256(bytes, low));
      _mm256_store_si256(reinterpret_cast<__m256i*>(to + kGroupSize),
                         _mm256_and_si256(_mm256_srli_epi16(bytes, 4), low));
    } else {
      const __m128i shift = _mm_set1_epi8(8 - Encoding::kZero);
      _mm_store_si128(reinterpret_cast<__m128i*>(to), _mm_add_epi8(a, shift));
      _mm_store_si128(reinterpret_cast<__m128i*>(to + 16), _mm_add_epi8(b, shift));
    }
  };
  for (int64_t s = 0; s < kUnitSteps; ++s) {
    if (!kIsFull && 2 * s >= groups) break;
    store(2 * s, _mm256_castsi256_si128(first[s]), _mm256_castsi256_si128(second[s]));
    if (!kIsFull && 2 * s + 1 >= groups) break;
    store(2 * s + 1, _mm256_extracti128_si256(first[s], 1), _mm256_extracti128_si256(second[s], 1));
  }
  if constexpr (Encoding::kHasGroupScales) _mm256_store_ps(scales, row.template Scales<kIsFull>(at, unit));
}

/// Unpacks `count` rows, at most 16. Two rows advance together, so that whole cache lines are written in one go.
template <class Encoding>
void UnpackTile(const WeightLayout& w, int64_t begin, int64_t count, uint8_t* codes, float* scales) {
  constexpr int64_t kTogether = 2;
  const int64_t units = UnitsOf(w.groups);
  const avx2::GroupOrder order(w.groups);
  Encoding rows[kTogether] = {Encoding(w), Encoding(w)};
  for (int64_t first = 0; first < count; first += kTogether) {
    const int64_t together = count - first < kTogether ? count - first : kTogether;
    int64_t full_units = FullUnits<Encoding>(w);
    for (int64_t i = 0; i < together; ++i) {
      rows[i].Begin(begin + first + i, 1);
      rows[i].SetRow(begin + first + i);
      if (Encoding::kOverread > 0 && full_units > 0 && w.end - rows[i].At(full_units) < Encoding::kOverread)
        --full_units;
    }
    for (int64_t unit = 0; unit < units; ++unit) {
      for (int64_t i = 0; i < together; ++i) {
        uint8_t* to = codes + avx2::RowGroupBytes(Encoding::kIsWide) * (first + i);
        float* scales_to = scales + unit * avx2::kUnitScales + kUnitGroups * (first + i);
        if (unit < full_units) {
          UnpackUnit<Encoding, true>(rows[i], w, order, unit, to, scales_to);
        } else {
          UnpackUnit<Encoding, false>(rows[i], w, order, unit, to, scales_to);
        }
      }
    }
  }
}

constexpr int64_t BlockScratchBytes(int64_t groups, bool is_wide) {
  return avx2::BlockTilesOf(groups, is_wide) * (avx2::TileCodeBytes(groups, is_wide) +
                                                UnitsOf(groups) * avx2::kUnitScales * int64_t{sizeof(float)});
}

template <class Encoding>
void BlocksProduct(const WeightLayout& w, int64_t row_begin, int64_t row_end, const TokenRows& x, float* out,
                   int64_t out_stride, std::byte* scratch) {
  using avx2::kTileRows;
  constexpr bool kIsWide = Encoding::kIsWide;
  const int64_t block_tiles = avx2::BlockTilesOf(w.groups, kIsWide), block_rows = kTileRows * block_tiles;
  const int64_t tile_bytes = avx2::TileCodeBytes(w.groups, kIsWide),
                tile_scales = UnitsOf(w.groups) * avx2::kUnitScales;
  auto* codes = reinterpret_cast<uint8_t*>(scratch);
  auto* scales = reinterpret_cast<float*>(codes + block_tiles * tile_bytes);
  float row_scales[kTileRows * avx2::kMostBlockTiles] = {};
  avx2::Block block = {codes,
                       Encoding::kHasGroupScales ? scales : nullptr,
                       Encoding::kHasGroupScales ? nullptr : row_scales,
                       w.groups,
                       0,
                       kIsWide};
  for (int64_t row = row_begin; row < row_end; row += block_rows) {
    block.rows = row_end - row < block_rows ? row_end - row : block_rows;
    for (int64_t begin = 0; begin < block.rows; begin += kTileRows) {
      const int64_t tile = begin / kTileRows, left = block.rows - begin;
      UnpackTile<Encoding>(w, row + begin, left < kTileRows ? left : kTileRows, codes + tile * tile_bytes,
                           scales + tile * tile_scales);
    }
    if constexpr (!Encoding::kHasGroupScales) {
      for (int64_t r = 0; r < block.rows; ++r) row_scales[r] = HalfAt(w.scales + 2 * (row + r));
    }
    avx2::BlockProduct(block, reinterpret_cast<const avx2::TokenGroup*>(x.arranged), x.count, out + row,
                       out_stride);
  }
}

}  // namespace
}  // namespace cmforge
