// The weights that q1s and q1t keep outside their codes: added on top of the product of the codes, with f32
// activations. They are few, so plain loops serve every instruction set.
#include "base/bytes.h"
#include "base/half.h"
#include "kernels/table.h"

namespace cmforge {
namespace {

struct Entry {
  int64_t column;
  float change;  // stored value minus what the codes give there
};

float Half(const std::byte* at) { return F16ToF32(LoadLe<uint16_t>(at)); }

Entry Q1sEntry(const WeightLayout& w, int64_t row, int64_t i) {
  const std::byte* at = w.overlay + 6 * i;
  const int64_t column = static_cast<int64_t>(LoadLe<uint32_t>(at)) - row * w.cols;
  const std::byte* tile = w.codes + row * w.code_stride + column / kGroupSize * 6;
  const bool is_positive = (std::to_integer<int>(tile[2 + column % kGroupSize / 8]) >> (column % 8) & 1) != 0;
  const float scale = Half(tile);
  return {column, Half(at + 4) - (is_positive ? scale : -scale)};
}

Entry Q1tEntry(const WeightLayout& w, int64_t row, int64_t i) {
  const std::byte* at = w.overlay + 4 * i;
  const int64_t column = LoadLe<uint16_t>(at);
  const std::byte* tile = w.codes + row * w.code_stride + column / kGroupSize * 9;
  static constexpr int kPower[5] = {1, 3, 9, 27, 81};
  static constexpr float kOf[3] = {0.0f, 1.0f, -1.0f};
  const int64_t k = column % kGroupSize;
  const int trit = std::to_integer<int>(tile[2 + k / 5]) / kPower[k % 5] % 3;
  return {column, Half(at + 2) - kOf[trit] * Half(tile)};
}

void RowEntries(const WeightLayout& w, int64_t row, int64_t& begin, int64_t& end) {
  if (w.dtype == DType::kQ1s) {
    begin = static_cast<int64_t>(w.offsets64[row]);
    end = static_cast<int64_t>(w.offsets64[row + 1]);
  } else {
    begin = LoadLe<uint32_t>(w.offsets32 + 4 * row);
    end = LoadLe<uint32_t>(w.offsets32 + 4 * (row + 1));
  }
}

}  // namespace

void AddOverlay(const WeightLayout& w, int64_t row_begin, int64_t row_end, const TokenRows& x, float* out,
                int64_t out_stride) {
  for (int64_t r = row_begin; r < row_end; ++r) {
    int64_t begin, end;
    RowEntries(w, r, begin, end);
    if (begin == end) continue;
    for (int64_t i = 0; i < x.count; ++i) {
      const float* row = x.x + x.Row(i) * x.x_stride;
      float partial[kPartials] = {};
      for (int64_t e = begin; e < end; ++e) {
        const Entry entry = w.dtype == DType::kQ1s ? Q1sEntry(w, r, e) : Q1tEntry(w, r, e);
        partial[(e - begin) % kPartials] += entry.change * row[entry.column];
      }
      for (int64_t width = kPartials / 2; width > 0; width /= 2) {
        for (int64_t p = 0; p < width; ++p) partial[p] += partial[p + width];
      }
      out[i * out_stride + r] += partial[0];
    }
  }
}

}  // namespace cmforge
