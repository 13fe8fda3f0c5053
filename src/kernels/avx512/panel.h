// Many tokens: 32 rows are unpacked once into a panel that stays in cache, then every token of the batch
// meets it. Lanes are rows here, so a group's integer sum needs no reduction: eight dot products, one
// convert, one multiply and one fused multiply-add per 16 rows, group and token.
//
// Panel of 32 rows: for each group [2 halves of 16 rows][8][16 rows][4 codes], and apart from it the scales
// [group][32 rows]; all groups of partial sum 0 first, then those of 1 and so on, so that each is one stream.
#pragma once

#include "kernels/avx512/rows.h"

namespace cmforge {
namespace avx512 {

constexpr int64_t kPanelRows = 32;

struct alignas(64) PanelGroup {
  uint8_t codes[2][8][64];
};
struct alignas(64) PanelScales {
  float scale[kPanelRows];
};

/// Where the groups of partial sum p begin in a panel of `groups` groups.
constexpr int64_t PartialBegin(int64_t groups, int64_t p) {
  const int64_t more = groups % kPartials;
  return groups / kPartials * p + (p < more ? p : more);
}

/// Tokens that meet a panel in registers together.
constexpr int64_t kTileTokens = 6;

/// A group of each token of a tile. Tiles lie one after another, each in the order of a panel's groups, so that a
/// tile is one stream too.
struct alignas(64) TileGroup {
  int8_t q[kTileTokens][kGroupSize];
  float scale[kTileTokens];
  int32_t minus_zero[kTileTokens];
};

/// Tiles are balanced (14 tokens: 5 + 5 + 4), so that none is much smaller than the others.
constexpr int64_t TilesOf(int64_t tokens) { return (tokens + kTileTokens - 1) / kTileTokens; }
constexpr int64_t TileBegin(int64_t tokens, int64_t tile) {
  const int64_t tiles = TilesOf(tokens), more = tokens % tiles;
  return tokens / tiles * tile + (tile < more ? tile : more);
}

/// `count` panels that lie one after another.
struct Panels {
  const PanelGroup* codes;    // [count][groups]
  const PanelScales* scales;  // [count][groups], null: none per group
  const float* row_scales;    // [count][32], null: none per row
  int64_t groups, count;
};

/// out[i * out_stride + r] for r < row_count (at most 32 * panels.count) and every token of `tiles`.
void PanelProduct(const Panels& panels, int64_t row_count, const TileGroup* tiles, int64_t tokens, float* out,
                  int64_t out_stride);

}  // namespace avx512

namespace {

using avx512::kPanelRows;
using avx512::PanelGroup;
using avx512::PanelScales;

/// Word g of each of 16 vectors to vector g.
CMFORGE_INLINE void Transpose16(__m512i (&rows)[16]) {
  for (int q = 0; q < 4; ++q) TransposeWords(rows[4 * q], rows[4 * q + 1], rows[4 * q + 2], rows[4 * q + 3]);
  for (int j = 0; j < 4; ++j) TransposeLanes(rows[j], rows[4 + j], rows[8 + j], rows[12 + j]);
}

/// Codes of 16 rows, one unit.
struct alignas(64) UnitCodes {
  uint8_t codes[kUnitSteps][2][16][64];  // [step][first, second][row]
};

template <class Encoding, bool kIsFull>
CMFORGE_INLINE void PackUnit(Encoding& rows, const WeightLayout& w, int64_t row, int64_t count, int64_t unit,
                             int half, PanelGroup* codes, PanelScales* scales) {
  const int32_t zero = kZeroPoints[static_cast<int>(w.zero)];
  UnitCodes made;
  __m512i made_scales[16];
  for (int64_t r = 0; r < 16; ++r) {
    rows.SetRow(row + (r < count ? r : count - 1));
    alignas(64) std::byte copy[kIsFull ? 1 : kUnitBytesMax];
    const std::byte* at = kIsFull ? rows.At(unit) : PartialUnitAt(rows, w, unit, copy);
    __m512i first[kUnitSteps], second[kUnitSteps];
    rows.Codes(at, first, second);
    int32_t own_zero = Encoding::kZero;
    if constexpr (Encoding::kZero == kZeroByRow) own_zero = rows.row_zero();
    const __m512i shift = _mm512_set1_epi8(static_cast<char>(zero - own_zero));
    for (int s = 0; s < kUnitSteps; ++s) {
      __m512i a = first[s], b = second[s];
      if constexpr (Encoding::kIsInterleaved) {
        a = _mm512_unpacklo_epi8(first[s], second[s]);
        b = _mm512_unpackhi_epi8(first[s], second[s]);
      }
      _mm512_store_si512(made.codes[s][0][r], _mm512_add_epi8(a, shift));
      _mm512_store_si512(made.codes[s][1][r], _mm512_add_epi8(b, shift));
    }
    if constexpr (Encoding::kHasGroupScales) made_scales[r] = _mm512_castps_si512(rows.Scales(at, unit));
  }
  const int64_t groups = kIsFull ? kUnitGroups : w.groups - unit * kUnitGroups;
  for (int64_t s = 0; s < kUnitSteps; ++s) {
    for (int64_t second = 0; second < 2; ++second) {
      __m512i words[16];
      for (int r = 0; r < 16; ++r) words[r] = _mm512_load_si512(made.codes[s][second][r]);
      Transpose16(words);  // vector 4 i + j: word j of the step's group i
      for (int64_t i = 0; i < kStepGroups && 4 * s + i < groups; ++i) {
        PanelGroup& group = codes[avx512::PartialBegin(w.groups, 4 * s + i) + unit];
        for (int64_t j = 0; j < 4; ++j)
          _mm512_store_si512(group.codes[half][4 * second + j], words[4 * i + j]);
      }
    }
  }
  if constexpr (Encoding::kHasGroupScales) {
    Transpose16(made_scales);
    for (int64_t g = 0; g < groups; ++g) {
      float* at = scales[avx512::PartialBegin(w.groups, g) + unit].scale + 16 * half;
      _mm512_store_si512(at, made_scales[4 * (g % 4) + g / 4]);
    }
  }
}

constexpr int64_t PanelBytes(int64_t groups) {
  return groups * static_cast<int64_t>(sizeof(PanelGroup) + sizeof(PanelScales));
}

/// Panels made at a time: as many as fit beside the activations in L2, so that these are fetched from farther
/// away once for all of them.
constexpr int64_t PanelsAtOnce(int64_t groups) {
  constexpr int64_t kBudget = 448 << 10;
  const int64_t count = kBudget / PanelBytes(groups);
  return count < 1 ? 1 : count > 4 ? 4 : count;
}

constexpr int64_t PanelScratchBytes(int64_t groups) { return PanelsAtOnce(groups) * PanelBytes(groups); }

/// Unpacks up to 32 rows; what lies past `count` in their half repeats the last row.
template <class Encoding>
void PackPanel(const WeightLayout& w, int64_t row, int64_t count, PanelGroup* codes, PanelScales* scales) {
  const int64_t units = UnitsOf(w.groups), full_units = w.cols / kUnitColumns;
  Encoding rows(w);
  rows.Begin(row, count);
  for (int half = 0; half < 2 && 16 * half < count; ++half) {
    const int64_t first = row + 16 * half, left = count - 16 * half;
    for (int64_t unit = 0; unit < full_units; ++unit) {
      PackUnit<Encoding, true>(rows, w, first, left, unit, half, codes, scales);
    }
    if (full_units < units) PackUnit<Encoding, false>(rows, w, first, left, full_units, half, codes, scales);
  }
}

template <class Encoding>
void PanelsProduct(const WeightLayout& w, int64_t row_begin, int64_t row_end, const TokenRows& x, float* out,
                   int64_t out_stride, std::byte* scratch) {
  const int64_t at_once = PanelsAtOnce(w.groups);
  auto* codes = reinterpret_cast<PanelGroup*>(scratch);
  auto* scales = reinterpret_cast<PanelScales*>(codes + at_once * w.groups);
  for (int64_t row = row_begin; row < row_end; row += at_once * kPanelRows) {
    const int64_t left = row_end - row, rows = left < at_once * kPanelRows ? left : at_once * kPanelRows;
    const int64_t panels = (rows + kPanelRows - 1) / kPanelRows;
    for (int64_t p = 0; p < panels; ++p) {
      const int64_t begin = p * kPanelRows, count = rows - begin < kPanelRows ? rows - begin : kPanelRows;
      PackPanel<Encoding>(w, row + begin, count, codes + p * w.groups, scales + p * w.groups);
    }
    alignas(64) float row_scales[4 * kPanelRows] = {};
    if constexpr (!Encoding::kHasGroupScales) {
      for (int64_t r = 0; r < rows; ++r) row_scales[r] = HalfAt(w.scales + 2 * (row + r));
    }
    const avx512::Panels made = {codes, Encoding::kHasGroupScales ? scales : nullptr,
                                 Encoding::kHasGroupScales ? nullptr : row_scales, w.groups, panels};
    avx512::PanelProduct(made, rows, reinterpret_cast<const avx512::TileGroup*>(x.arranged), x.count,
                         out + row, out_stride);
  }
}

}  // namespace
}  // namespace cmforge
