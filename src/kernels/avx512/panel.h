// Many tokens: 32 rows are unpacked once into a panel that stays in cache, then every token of the batch
// meets it. Lanes are rows here, so a group's integer sum needs no reduction: eight dot products, one
// convert, one multiply and one fused multiply-add per 16 rows, group and token.
//
// Panel of 32 rows: for each group [2 halves of 16 rows][8][16 rows][4 codes], and apart from it the scales
// [group][32 rows]; all groups of phase 0 first, then those of phase 1 and so on, so that a phase is one
// stream.
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

/// `count` panels that lie one after another, of 4 * steps groups each.
struct Panels {
  const PanelGroup* codes;    // [count][4 * steps]
  const PanelScales* scales;  // [count][4 * steps], null: none per group
  const float* row_scales;    // [count][32], null: none per row
  ZeroPoint zero;
  int64_t steps, count;
};

/// out[i * out_stride + r] for r < row_count (at most 32 * panels.count) and every token.
void PanelProduct(const Panels& panels, int64_t row_count, const TokenRows& x, float* out,
                  int64_t out_stride);

}  // namespace avx512

namespace {

using avx512::kPanelRows;
using avx512::PanelGroup;
using avx512::PanelScales;

/// 16 rows' codes of four groups (lane = group = phase, four words of it) to one vector a group and word.
CMFORGE_INLINE void StorePanelCodes(__m512i (&rows)[16], PanelGroup* groups, int64_t steps, int half,
                                    int first_word) {
  for (int q = 0; q < 4; ++q) TransposeWords(rows[4 * q], rows[4 * q + 1], rows[4 * q + 2], rows[4 * q + 3]);
  for (int j = 0; j < 4; ++j) {
    TransposeLanes(rows[j], rows[4 + j], rows[8 + j], rows[12 + j]);
    for (int i = 0; i < 4; ++i)
      _mm512_store_si512(groups[i * steps].codes[half][first_word + j], rows[4 * i + j]);
  }
}

template <class Encoding, bool kIsTail>
CMFORGE_INLINE void PackStep(const Encoding* quads, int64_t block, int64_t steps, int half, PanelGroup* codes,
                             PanelScales* scales, int32_t zero) {
  __m512i first[16], second[16];
  for (int row = 0; row < 16; ++row) {
    __m512i a, b;
    quads[row / 4].template Codes<kIsTail>(row % 4, block, a, b);
    if constexpr (Encoding::kIsInterleaved) {
      first[row] = _mm512_unpacklo_epi8(a, b);
      second[row] = _mm512_unpackhi_epi8(a, b);
    } else {
      first[row] = a;
      second[row] = b;
    }
    int32_t own_zero = Encoding::kZero;
    if constexpr (Encoding::kZero == kZeroByRow) own_zero = quads[row / 4].RowZero(row % 4);
    const __m512i shift = _mm512_set1_epi8(static_cast<char>(zero - own_zero));
    first[row] = _mm512_add_epi8(first[row], shift);
    second[row] = _mm512_add_epi8(second[row], shift);
  }
  StorePanelCodes(first, codes + block, steps, half, 0);
  StorePanelCodes(second, codes + block, steps, half, 4);
  if constexpr (Encoding::kHasGroupScales) {
    __m512i s[4];
    for (int q = 0; q < 4; ++q) s[q] = _mm512_castps_si512(quads[q].template Scales<kIsTail>(block));
    TransposeLanes(s[0], s[1], s[2], s[3]);
    for (int i = 0; i < 4; ++i) _mm512_store_si512(scales[block + i * steps].scale + 16 * half, s[i]);
  }
}

/// Panels made at a time: as many as fit beside the activations in L2, so that these are fetched from farther
/// away once for all of them.
constexpr int64_t PanelsAtOnce(int64_t groups) {
  constexpr int64_t kBudget = 448 << 10;
  const int64_t bytes =
      InputSteps(groups) * kPhases * static_cast<int64_t>(sizeof(PanelGroup) + sizeof(PanelScales));
  const int64_t count = kBudget / bytes;
  return count < 1 ? 1 : count > 4 ? 4 : count;
}

constexpr int64_t PanelScratchBytes(int64_t groups) {
  const int64_t panel =
      InputSteps(groups) * kPhases * static_cast<int64_t>(sizeof(PanelGroup) + sizeof(PanelScales));
  return PanelsAtOnce(groups) * panel + 4 * 4 * OwnFloats(groups);
}

/// Unpacks up to 32 rows; what lies past `count` repeats the last row.
template <class Encoding>
void PackPanel(const WeightLayout& w, int64_t row, int64_t count, PanelGroup* codes, PanelScales* scales,
               float* own) {
  const int64_t steps = InputSteps(w.groups);
  const int32_t zero = kZeroPoints[static_cast<int>(w.zero)];
  for (int half = 0; half < 2; ++half) {
    const auto quad = [&](int64_t q) {
      int64_t four[4];
      for (int64_t r = 0; r < 4; ++r) {
        const int64_t at = 16 * half + 4 * q + r;
        four[r] = row + (at < count ? at : count - 1);
      }
      return Encoding(w, four, own + q * OwnFloats(w.groups));
    };
    const Encoding quads[4] = {quad(0), quad(1), quad(2), quad(3)};
    const int64_t full = quads[0].full_steps();
    for (int64_t step = 0; step < full; ++step) {
      PackStep<Encoding, false>(quads, step, steps, half, codes, scales, zero);
    }
    if (full < steps) PackStep<Encoding, true>(quads, full, steps, half, codes, scales, zero);
  }
}

template <class Encoding>
void PanelsProduct(const WeightLayout& w, int64_t row_begin, int64_t row_end, const TokenRows& x, float* out,
                   int64_t out_stride, std::byte* scratch) {
  const int64_t steps = InputSteps(w.groups), groups = steps * kPhases, at_once = PanelsAtOnce(w.groups);
  auto* codes = reinterpret_cast<PanelGroup*>(scratch);
  auto* scales = reinterpret_cast<PanelScales*>(codes + at_once * groups);
  auto* own = reinterpret_cast<float*>(scales + at_once * groups);
  for (int64_t row = row_begin; row < row_end; row += at_once * kPanelRows) {
    const int64_t left = row_end - row, rows = left < at_once * kPanelRows ? left : at_once * kPanelRows;
    const int64_t panels = (rows + kPanelRows - 1) / kPanelRows;
    for (int64_t p = 0; p < panels; ++p) {
      const int64_t begin = p * kPanelRows, count = rows - begin < kPanelRows ? rows - begin : kPanelRows;
      PackPanel<Encoding>(w, row + begin, count, codes + p * groups, scales + p * groups, own);
    }
    alignas(64) float row_scales[4 * kPanelRows] = {};
    if constexpr (!Encoding::kHasGroupScales) {
      for (int64_t r = 0; r < rows; ++r) row_scales[r] = RowScale(w, row + r);
    }
    const avx512::Panels made = {codes,
                                 Encoding::kHasGroupScales ? scales : nullptr,
                                 Encoding::kHasGroupScales ? nullptr : row_scales,
                                 w.zero,
                                 steps,
                                 panels};
    avx512::PanelProduct(made, rows, x, out + row, out_stride);
  }
}

}  // namespace
}  // namespace cmforge
