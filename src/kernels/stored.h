// Products with constant matrices in the forms that Core ML's weight files have: dense floats, indices into tables,
// small integers with scales. The weights are read where they lie; nothing is expanded but a few rows at a time.
//
//   y[t, r] = bias[r] + sum over c of W[r, c] * x[t, c]
//
// The order of a sum is that of float products in table.h: sixteen partial sums, partial p takes c = p, p + 16, ...
// ascending with fused multiply-adds, then a tree; the bias is added last. It depends neither on the number of tokens
// nor on the instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/isa.h"

namespace cmforge {

/// A matrix [rows, cols] without gaps: element i = r * cols + c begins at bit i * bits, least significant bit first.
struct StoredMatrix {
  enum class Form : uint8_t {
    kF32,
    kF16,
    kPalette,  // codes of 1, 2, 3, 4, 6 or 8 bits, tables of f16
    kScaled,   // integers of 4 or 8 bits: scale * (code - offset), rounded to f16
  };
  Form form = Form::kF32;
  int bits = 32;
  bool is_signed = false;  // kScaled
  int64_t rows = 0, cols = 0;
  const std::byte* data = nullptr;

  // kPalette: row r reads table r / rows_per_table of f16 [tables, 2^bits]; where rows have scales, times its scale,
  // rounded to f16.
  const std::byte* tables = nullptr;
  int64_t rows_per_table = 1;

  // kScaled: block (r / rows_per_scale, c / cols_per_scale) of f16 [., scales_per_row]; kPalette: cols_per_scale is cols.
  const std::byte* scales = nullptr;
  const float* offsets = nullptr;  // as many as scales, or null: 0
  int64_t rows_per_scale = 1, cols_per_scale = 1, scales_per_row = 1;

  /// What is done for the rows that come next while one token is multiplied.
  enum class Ahead : uint8_t {
    kNothing,  // the processor foresees them, or they are in a cache
    kAsked,    // they are asked for
    kCopied,   // they are copied to L1, in the order of their bytes: the processor foresees that best
  };
  Ahead ahead = Ahead::kNothing;  // AheadOfStored(), for matrices that come from memory
};

/// Whether kernels read the matrix in steps of whole bytes; others are decoded number by number.
[[nodiscard]] inline bool HasWholeSteps(const StoredMatrix& w) {
  const bool has_steps = w.cols * w.bits % 8 == 0;
  const bool has_blocks =
      w.form != StoredMatrix::Form::kScaled || w.cols_per_scale % 16 == 0 || w.scales_per_row == 1;
  return has_steps && has_blocks;
}

struct StoredKernels {
  Isa isa;
  /// Rows [begin, end) as f32, row i at out + (i - begin) * stride. The matrix HasWholeSteps.
  void (*decode)(const StoredMatrix& w, int64_t begin, int64_t end, float* out, int64_t stride);
  /// One token: out[r - begin] for r in [begin, end). The matrix HasWholeSteps.
  void (*multiply_one)(const StoredMatrix& w, int64_t begin, int64_t end, const float* x, float* out);
  /// f32 rows, few or many: out[r * row_stride + t * token_stride]. `scratch`: PanelScratchFloats(rows).
  void (*panel)(const float* w, int64_t w_stride, int64_t rows, int64_t cols, const float* x,
                int64_t x_stride, int64_t tokens, float* out, int64_t row_stride, int64_t token_stride,
                float* scratch);
  /// out[t * out_stride + n] = sum over k ascending of p[t * p_stride + k] * v[k * v_stride + n], one fused
  /// multiply-add after another, for n in [0, width).
  void (*combine)(const float* p, int64_t p_stride, int64_t tokens, const float* v, int64_t v_stride,
                  int64_t depth, int64_t width, float* out, int64_t out_stride);
};

/// Those of an instruction set that RunsHere(), or of the best one that has some.
[[nodiscard]] const StoredKernels& StoredKernelsOf(Isa isa);

/// For matrices that come from memory. Zen 5 fetches rows that are read side by side much later than one stream (two
/// cores, palettes of 8 bits: 13 and 35 GB/s), and AVX2 on Zen 3 takes too long for palettes, whose rows are short.
[[nodiscard]] StoredMatrix::Ahead AheadOfStored(const StoredKernels& kernels);

/// Partial sums that a panel of that many rows leaves between blocks of columns.
[[nodiscard]] constexpr int64_t PanelScratchFloats(int64_t rows) { return (rows + 3) / 4 * 4 * 6 * 16; }

/// Elements [begin, begin + count) of row r, number by number: the meaning of every form.
void DecodeStored(const StoredMatrix& w, int64_t row, int64_t begin, int64_t count, float* out);

/// Rows [begin, end) times `tokens` rows of x: out[(r - begin) * row_stride + t * token_stride]. `bias` (by row of the
/// matrix) may be null. `scratch`: StoredScratchFloats.
void MultiplyStored(const StoredKernels& kernels, const StoredMatrix& w, int64_t begin, int64_t end,
                    const float* x, int64_t x_stride, int64_t tokens, const float* bias, float* out,
                    int64_t row_stride, int64_t token_stride, float* scratch);
[[nodiscard]] int64_t StoredScratchFloats(int64_t cols);

/// Rows decoded at a time, and the floats from one decoded row to the next.
inline constexpr int64_t kPanelRows = 16;
[[nodiscard]] constexpr int64_t PanelStride(int64_t cols) { return (cols + 15) / 16 * 16 + 16; }

}  // namespace cmforge
