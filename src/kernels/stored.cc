// Stored matrices: what each form means, and products block by block.
#include "kernels/stored.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/half.h"

namespace cmforge {
namespace {

uint32_t CodeAt(const StoredMatrix& w, int64_t index) {
  const int64_t bit = index * w.bits;
  const std::byte* at = w.data + bit / 8;
  const auto shift = static_cast<int>(bit % 8);
  uint32_t two = std::to_integer<uint32_t>(at[0]);
  if (shift + w.bits > 8) two |= std::to_integer<uint32_t>(at[1]) << 8;
  return (two >> shift) & ((1u << w.bits) - 1u);
}

float HalfAt(const std::byte* halves, int64_t index) {
  return F16ToF32(LoadLe<uint16_t>(halves + 2 * index));
}

}  // namespace

void DecodeStored(const StoredMatrix& w, int64_t row, int64_t begin, int64_t count, float* out) {
  const int64_t first = row * w.cols + begin;
  switch (w.form) {
    case StoredMatrix::Form::kF32:
      for (int64_t i = 0; i < count; ++i) out[i] = LoadLe<float>(w.data + 4 * (first + i));
      return;
    case StoredMatrix::Form::kF16:
      for (int64_t i = 0; i < count; ++i) out[i] = HalfAt(w.data, first + i);
      return;
    case StoredMatrix::Form::kPalette: {
      const int64_t table = row / w.rows_per_table << w.bits;
      const float scale = w.scales != nullptr ? HalfAt(w.scales, row / w.rows_per_scale) : 1.0f;
      for (int64_t i = 0; i < count; ++i) {
        const float entry = HalfAt(w.tables, table + CodeAt(w, first + i));
        out[i] = w.scales == nullptr ? entry : RoundToF16(scale * entry);
      }
      return;
    }
    case StoredMatrix::Form::kScaled:
      for (int64_t i = 0; i < count; ++i) {
        const int64_t block = row / w.rows_per_scale * w.scales_per_row + (begin + i) / w.cols_per_scale;
        auto code = static_cast<int32_t>(CodeAt(w, first + i));
        const int32_t sign = 1 << (w.bits - 1);
        if (w.is_signed) code = (code ^ sign) - sign;
        const float offset = w.offsets != nullptr ? w.offsets[block] : 0.0f;
        out[i] = RoundToF16(HalfAt(w.scales, block) * (static_cast<float>(code) - offset));
      }
      return;
  }
}

int64_t StoredScratchFloats(int64_t cols) {
  return kPanelRows * PanelStride(cols) + PanelScratchFloats(kPanelRows);
}

namespace {

void MultiplyOneToken(const StoredKernels& kernels, const StoredMatrix& w, int64_t begin, int64_t end,
                      const float* x, const float* bias, float* out, int64_t row_stride) {
  constexpr int64_t kMost = 256;
  float y[kMost];
  for (int64_t row = begin; row < end; row += kMost, out += kMost * row_stride) {
    const int64_t rows = std::min(kMost, end - row);
    kernels.multiply_one(w, row, row + rows, x, y);
    for (int64_t r = 0; r < rows; ++r) out[r * row_stride] = bias != nullptr ? y[r] + bias[row + r] : y[r];
  }
}

}  // namespace

void MultiplyStored(const StoredKernels& kernels, const StoredMatrix& w, int64_t begin, int64_t end,
                    const float* x, int64_t x_stride, int64_t tokens, const float* bias, float* out,
                    int64_t row_stride, int64_t token_stride, float* scratch) {
  const bool has_steps = HasWholeSteps(w);
  if (tokens == 1 && has_steps) {
    MultiplyOneToken(kernels, w, begin, end, x, bias, out, row_stride);
    return;
  }
  const int64_t stride = PanelStride(w.cols);
  float* partials = scratch + kPanelRows * stride;
  for (int64_t row = begin; row < end; row += kPanelRows) {
    const int64_t rows = std::min(kPanelRows, end - row);
    float* to = out + (row - begin) * row_stride;
    if (w.form == StoredMatrix::Form::kF32) {
      kernels.panel(reinterpret_cast<const float*>(w.data) + row * w.cols, w.cols, rows, w.cols, x, x_stride,
                    tokens, to, row_stride, token_stride, partials);
    } else {
      if (has_steps) {
        kernels.decode(w, row, row + rows, scratch, stride);
      } else {
        for (int64_t r = 0; r < rows; ++r) DecodeStored(w, row + r, 0, w.cols, scratch + r * stride);
      }
      kernels.panel(scratch, stride, rows, w.cols, x, x_stride, tokens, to, row_stride, token_stride,
                    partials);
    }
    if (bias == nullptr) continue;
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t r = 0; r < rows; ++r) to[r * row_stride + t * token_stride] += bias[row + r];
    }
  }
}

// ---- by instruction set

extern const StoredKernels kStoredReference;
#if defined(__x86_64__)
extern const StoredKernels kStoredAvx2;
extern const StoredKernels kStoredAvx512;
#endif

const StoredKernels& StoredKernelsOf(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx2) return kStoredAvx2;
  if (isa != Isa::kReference && RunsHere(Isa::kAvx512)) return kStoredAvx512;
#else
  (void)isa;
#endif
  return kStoredReference;
}

StoredMatrix::Ahead AheadOfStored(const StoredKernels& kernels) {
  using Ahead = StoredMatrix::Ahead;
  if (WantsPrefetch()) return Ahead::kCopied;
  return kernels.isa == Isa::kAvx2 ? Ahead::kAsked : Ahead::kNothing;
}

}  // namespace cmforge
