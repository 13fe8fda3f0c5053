// The meaning of every matrix product, by plain loops in the order that table.h defines. Slow and obviously
// right.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/bytes.h"
#include "base/half.h"
#include "kernels/table.h"

namespace cmforge {
namespace {

void QuantizeRow(const float* x, const std::byte* columns, int64_t cols, int64_t padded, int8_t* q,
                 float* scale, int32_t* sum) {
  for (int64_t g = 0; g < padded / kGroupSize; ++g) {
    float values[kGroupSize] = {};
    uint32_t max_bits = 0;  // of |value|: orders NaN above infinity above every number
    for (int64_t k = 0; k < kGroupSize; ++k) {
      const int64_t c = g * kGroupSize + k;
      if (c < cols) values[k] = columns ? x[c] * F16ToF32(LoadLe<uint16_t>(columns + 2 * c)) : x[c];
      max_bits = std::max(max_bits, std::bit_cast<uint32_t>(values[k]) & 0x7FFFFFFFu);
    }
    const auto max = std::bit_cast<float>(max_bits);
    sum[g] = 0;
    if (!(max >= 0x1p-100f) || max_bits >= 0x7F800000u) {
      scale[g] = max_bits >= 0x7F800000u ? std::bit_cast<float>(0x7FC00000u) : 0.0f;
      std::memset(q + g * kGroupSize, 0, kGroupSize);
      continue;
    }
    scale[g] = max / 127.0f;
    const float inverse = 127.0f / max;
    for (int64_t k = 0; k < kGroupSize; ++k) {
      const auto code = static_cast<int32_t>(std::nearbyint(values[k] * inverse));
      q[g * kGroupSize + k] = static_cast<int8_t>(code);
      sum[g] += code;
    }
  }
}

float IntegerDot(const uint8_t* codes, const float* weight_scales, int32_t zero_point, int64_t groups,
                 const int8_t* q, const float* x_scales, const int32_t* sums) {
  float partial[kPhases] = {};
  for (int64_t g = 0; g < (groups + kPhases - 1) / kPhases * kPhases; ++g) {
    int32_t s = 0;
    float scale = 0.0f;
    if (g < groups) {
      for (int64_t c = g * kGroupSize; c < (g + 1) * kGroupSize; ++c) s += codes[c] * q[c];
      s -= zero_point * sums[g];
      scale = weight_scales ? weight_scales[g] * x_scales[g] : x_scales[g];
    }
    partial[g % kPhases] = std::fma(static_cast<float>(s), scale, partial[g % kPhases]);
  }
  return (partial[0] + partial[1]) + (partial[2] + partial[3]);
}

void IntegerProduct(const WeightLayout& w, int64_t row_begin, int64_t row_end, const TokenRows& x, float* out,
                    int64_t out_stride, std::byte* scratch) {
  auto* codes = reinterpret_cast<uint8_t*>(scratch);
  auto* scales = reinterpret_cast<float*>(scratch + w.groups * kGroupSize);
  std::memset(codes, 0, static_cast<size_t>(w.groups * kGroupSize));  // what lies past `cols`
  const int64_t groups_stride = x.q_stride / kGroupSize;
  for (int64_t r = row_begin; r < row_end; ++r) {
    UnpackRow(w, r, codes, scales);
    for (int64_t i = 0; i < x.count; ++i) {
      const int64_t t = x.Row(i);
      float y = IntegerDot(codes, w.has_group_scales ? scales : nullptr, w.zero_point, w.groups,
                           x.q + t * x.q_stride, x.scale + t * groups_stride, x.sum + t * groups_stride);
      if (w.has_row_scales) y *= RowScale(w, r);
      out[i * out_stride + r] = y;
    }
  }
}

float FloatDot(const float* w, const float* x, int64_t cols) {
  float partial[kFloatLanes] = {};
  for (int64_t c = 0; c < (cols + kFloatLanes - 1) / kFloatLanes * kFloatLanes; ++c) {
    const bool inside = c < cols;
    partial[c % kFloatLanes] = std::fma(inside ? w[c] : 0.0f, inside ? x[c] : 0.0f, partial[c % kFloatLanes]);
  }
  for (int64_t width = kFloatLanes / 2; width > 0; width /= 2) {
    for (int64_t p = 0; p < width; ++p) partial[p] += partial[p + width];
  }
  return partial[0];
}

void FloatProduct(const WeightLayout& w, int64_t row_begin, int64_t row_end, const TokenRows& x, float* out,
                  int64_t out_stride, std::byte* scratch) {
  auto* row = reinterpret_cast<float*>(scratch);
  for (int64_t r = row_begin; r < row_end; ++r) {
    DecodeRows(w, r, r + 1, row);
    for (int64_t i = 0; i < x.count; ++i)
      out[i * out_stride + r] = FloatDot(row, x.x + x.Row(i) * x.x_stride, w.cols);
  }
}

int64_t ScratchBytes(const WeightLayout& w, int64_t, bool is_exact) {
  return is_exact ? 4 * w.cols : w.groups * (kGroupSize + 4);
}

int64_t RowGrain(const WeightLayout&, int64_t, bool) { return 1; }

}  // namespace

const KernelTable kReferenceTable = {
    .isa = Isa::kReference,
    .quantize = QuantizeRow,
    .integer = {nullptr, nullptr, nullptr, IntegerProduct, IntegerProduct, nullptr, nullptr, nullptr,
                IntegerProduct, IntegerProduct, IntegerProduct, IntegerProduct, IntegerProduct,
                IntegerProduct, IntegerProduct, IntegerProduct, IntegerProduct},
    .exact = FloatProduct,
    .scratch_bytes = ScratchBytes,
    .row_grain = RowGrain,
};

}  // namespace cmforge
