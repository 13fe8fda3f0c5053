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

void QuantizeRow(const float* x, const std::byte* columns, int64_t cols, int64_t groups,
                 QuantizedGroup* out) {
  for (int64_t g = 0; g < groups; ++g) {
    float values[kGroupSize] = {};
    uint32_t max_bits = 0;  // of |value|: orders NaN above infinity above every number
    for (int64_t k = 0; k < kGroupSize && g * kGroupSize + k < cols; ++k) {
      const int64_t c = g * kGroupSize + k;
      values[k] = columns ? x[c] * F16ToF32(LoadLe<uint16_t>(columns + 2 * c)) : x[c];
      max_bits = std::max(max_bits, std::bit_cast<uint32_t>(values[k]) & 0x7FFFFFFFu);
    }
    const bool is_finite = max_bits < 0x7F800000u;
    const auto max = std::bit_cast<float>(max_bits);
    const bool is_zero = is_finite && max < 0x1p-100f;
    out[g].scale = !is_finite ? std::bit_cast<float>(0x7FC00000u) : is_zero ? 0.0f : max / 127.0f;
    const float inverse = is_finite && !is_zero ? 127.0f / max : 0.0f;
    int32_t sum = 0;
    for (int64_t k = 0; k < kGroupSize; ++k) {
      const auto code = is_finite ? static_cast<int32_t>(std::nearbyint(values[k] * inverse)) : 0;
      out[g].q[k] = static_cast<int8_t>(code);
      sum += code;
    }
    for (int z = 0; z < 3; ++z) out[g].minus_zero[z] = -kZeroPoints[z] * sum;
  }
}

float Tree(float (&partial)[kPartials]) {
  for (int64_t width = kPartials / 2; width > 0; width /= 2) {
    for (int64_t p = 0; p < width; ++p) partial[p] += partial[p + width];
  }
  return partial[0];
}

float IntegerDot(const WeightLayout& w, const uint8_t* codes, const float* scales, const QuantizedGroup* x) {
  float partial[kPartials] = {};
  for (int64_t g = 0; g < w.groups; ++g) {
    int32_t s = x[g].minus_zero[static_cast<int>(w.zero)];
    for (int64_t k = 0; k < kGroupSize; ++k) s += codes[g * kGroupSize + k] * x[g].q[k];
    const float scale = w.has_group_scales ? scales[g] * x[g].scale : x[g].scale;
    partial[g % kPartials] = std::fma(static_cast<float>(s), scale, partial[g % kPartials]);
  }
  return Tree(partial);
}

void IntegerProduct(const WeightLayout& w, int64_t row_begin, int64_t row_end, const TokenRows& x, float* out,
                    int64_t out_stride, std::byte* scratch) {
  auto* codes = reinterpret_cast<uint8_t*>(scratch);
  auto* scales = reinterpret_cast<float*>(scratch + w.groups * kGroupSize);
  std::memset(codes, 0, static_cast<size_t>(w.groups * kGroupSize));  // what lies past `cols`
  for (int64_t r = row_begin; r < row_end; ++r) {
    UnpackRow(w, r, codes, scales);
    for (int64_t i = 0; i < x.count; ++i) {
      const float y = IntegerDot(w, codes, scales, x.groups + x.Row(i) * x.groups_stride);
      out[i * out_stride + r] = w.has_row_scales ? y * RowScale(w, r) : y;
    }
  }
}

float FloatDot(const float* w, const float* x, int64_t cols) {
  float partial[kPartials] = {};
  for (int64_t c = 0; c < cols; ++c) partial[c % kPartials] = std::fma(w[c], x[c], partial[c % kPartials]);
  return Tree(partial);
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

int64_t ArrangedBytes(const WeightLayout&, int64_t) { return 0; }
void Arrange(const WeightLayout&, const TokenRows&, int64_t, int64_t, std::byte*) {}

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
    .live = [](const WeightLayout&, int64_t) -> ProductFn { return nullptr; },
    .arranged_bytes = ArrangedBytes,
    .arrange = Arrange,
    .scratch_bytes = ScratchBytes,
    .row_grain = RowGrain,
};

}  // namespace cmforge
