// Float products, for every instruction set: f32, f16 and bf16 weights are read in place for few tokens; for
// many tokens, and for every other encoding in exact mode, a block of rows is decoded to f32 once and meets
// all tokens. A Vec16 holds the sixteen partial sums of one output, so nothing is reduced before the end of
// the row.
//
// Included by one file of each instruction set, after it has defined in its namespace
//   Vec16;  Vec16 Zero();  Vec16 Fma(Vec16 a, Vec16 b, Vec16 sum);
//   Vec16 LoadF32(const void*), LoadF16(const void*), LoadBf16(const void*): 16 values, no alignment;
//   void StoreTrees(const Vec16 (&sums)[4], int64_t rows, float* out): the tree of each of the first `rows`;
//   void Prefetch(const void*);
//   constexpr int kMaxTokens: tokens in registers with kTileRows rows;  constexpr int kTileRows (2 or 4).
#pragma once

#include "kernels/table.h"

#ifndef CMFORGE_INLINE
#define CMFORGE_INLINE inline __attribute__((always_inline))
#endif

namespace cmforge {
namespace {

struct F32Weights {
  static constexpr int64_t kBytes = 4;
  static CMFORGE_INLINE Vec16 Load(const std::byte* p) { return LoadF32(p); }
};
struct F16Weights {
  static constexpr int64_t kBytes = 2;
  static CMFORGE_INLINE Vec16 Load(const std::byte* p) { return LoadF16(p); }
};
struct Bf16Weights {
  static constexpr int64_t kBytes = 2;
  static CMFORGE_INLINE Vec16 Load(const std::byte* p) { return LoadBf16(p); }
};

/// Fewer than 16 values, zeros behind them.
template <class Weights>
CMFORGE_INLINE Vec16 LoadTail(const std::byte* p, int64_t count) {
  alignas(64) std::byte copy[64] = {};
  __builtin_memcpy(copy, p, static_cast<size_t>(count * Weights::kBytes));
  return Weights::Load(copy);
}

/// kTileRows rows by kTokens tokens.
template <class Weights, int kTokens>
CMFORGE_INLINE void FloatTile(const std::byte* const (&w)[4], int64_t rows, int64_t ahead, int64_t cols,
                              const TokenRows& x, int64_t token, float* out, int64_t out_stride) {
  const float* values[kTokens];
  Vec16 sums[kTokens][4];
  for (int t = 0; t < kTokens; ++t) {
    values[t] = x.x + x.Row(token + t) * x.x_stride;
    for (int r = 0; r < 4; ++r) sums[t][r] = Zero();
  }
  int64_t c = 0;
  for (; c + 16 <= cols; c += 16) {
    Vec16 weights[kTileRows];
#pragma GCC unroll 4
    for (int r = 0; r < kTileRows; ++r) {
      weights[r] = Weights::Load(w[r] + c * Weights::kBytes);
      if (ahead > 0) Prefetch(w[r] + c * Weights::kBytes + ahead);
    }
#pragma GCC unroll 6
    for (int t = 0; t < kTokens; ++t) {
      const Vec16 value = LoadF32(values[t] + c);
#pragma GCC unroll 4
      for (int r = 0; r < kTileRows; ++r) sums[t][r] = Fma(weights[r], value, sums[t][r]);
    }
  }
  if (c < cols) {
    for (int r = 0; r < kTileRows; ++r) {
      const Vec16 weights = LoadTail<Weights>(w[r] + c * Weights::kBytes, cols - c);
      for (int t = 0; t < kTokens; ++t) {
        const Vec16 value = LoadTail<F32Weights>(reinterpret_cast<const std::byte*>(values[t] + c), cols - c);
        sums[t][r] = Fma(weights, value, sums[t][r]);
      }
    }
  }
  for (int t = 0; t < kTokens; ++t) StoreTrees(sums[t], rows, out + (token + t) * out_stride);
}

/// `count` tokens from `token` on (at most kMaxTokens) against `row_count` rows at `w`, `stride` bytes apart.
template <class Weights>
void FloatTiles(const std::byte* w, int64_t stride, bool prefetches, int64_t row_count, int64_t cols,
                const TokenRows& x, int64_t token, int64_t count, float* out, int64_t out_stride) {
  for (int64_t r = 0; r < row_count; r += kTileRows) {
    const int64_t rows = row_count - r < kTileRows ? row_count - r : kTileRows;
    const std::byte* four[4];
    for (int64_t i = 0; i < 4; ++i) four[i] = w + (r + (i < rows ? i : rows - 1)) * stride;
    const int64_t ahead = prefetches ? kTileRows * stride : 0;
    static_assert(kMaxTokens <= 6);
    switch (count) {
      case 1:
        FloatTile<Weights, 1>(four, rows, ahead, cols, x, token, out + r, out_stride);
        break;
      case 2:
        FloatTile<Weights, 2>(four, rows, ahead, cols, x, token, out + r, out_stride);
        break;
      case 3:
        FloatTile<Weights, 3>(four, rows, ahead, cols, x, token, out + r, out_stride);
        break;
      case 4:
        FloatTile<Weights, 4>(four, rows, ahead, cols, x, token, out + r, out_stride);
        break;
      case 5:
        FloatTile<Weights, 5>(four, rows, ahead, cols, x, token, out + r, out_stride);
        break;
      default:
        FloatTile<Weights, 6>(four, rows, ahead, cols, x, token, out + r, out_stride);
        break;
    }
  }
}

// Decoded rows that are kept at a time: a share of L2.
int64_t FloatBlockRows(int64_t cols) {
  constexpr int64_t kBudget = 256 << 10;
  const int64_t rows = kBudget / (4 * cols) / 4 * 4;
  return rows < 4 ? 4 : rows > 32 ? 32 : rows;
}

int64_t FloatScratchBytes(const WeightLayout& w) { return 4 * w.cols * FloatBlockRows(w.cols); }

void FloatProduct(const WeightLayout& w, int64_t row_begin, int64_t row_end, const TokenRows& x, float* out,
                  int64_t out_stride, std::byte* scratch) {
  if (x.count <= kMaxTokens) {
    const auto in_place = [&](auto weights) {
      FloatTiles<decltype(weights)>(w.codes + row_begin * w.code_stride, w.code_stride, true,
                                    row_end - row_begin, w.cols, x, 0, x.count, out + row_begin, out_stride);
    };
    if (w.dtype == DType::kF32) return in_place(F32Weights());
    if (w.dtype == DType::kF16) return in_place(F16Weights());
    if (w.dtype == DType::kBF16) return in_place(Bf16Weights());
  }
  const int64_t block = FloatBlockRows(w.cols);
  for (int64_t row = row_begin; row < row_end; row += block) {
    const int64_t count = row_end - row < block ? row_end - row : block;
    DecodeRows(w, row, row + count, reinterpret_cast<float*>(scratch));
    for (int64_t token = 0; token < x.count; token += kMaxTokens) {
      const int64_t tokens = x.count - token < kMaxTokens ? x.count - token : kMaxTokens;
      FloatTiles<F32Weights>(scratch, 4 * w.cols, false, count, w.cols, x, token, tokens, out + row,
                             out_stride);
    }
  }
}

}  // namespace
}  // namespace cmforge
