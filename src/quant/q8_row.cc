// q8_row (spec 3.2): one int8 per weight, one scale per row.
//   [int8 : rows * cols][f16 scale : rows]      w = code * scale, scale = absmax(row) / 127
#include <cmath>

#include "quant/entries.h"
#include "quant/numeric.h"
#include "quant/row_blocks.h"

namespace cmforge {
namespace {

std::optional<uint64_t> Size(std::span<const int64_t> shape) {
  return SaturatedMul(static_cast<uint64_t>(shape[0]), SaturatedAdd(static_cast<uint64_t>(shape[1]), 2));
}

Result<std::vector<std::byte>> Encode(const FloatRows& source, const EncodeOptions&, ThreadPool& pool) {
  CMF_CHECK(CheckReason(ReasonNot2d(source.view.shape)));
  const int64_t cols = source.cols;
  std::vector<std::byte> payload(static_cast<size_t>(source.rows * (cols + 2)));
  std::byte* const scales = payload.data() + source.rows * cols;
  CMF_CHECK(ForRowBlocks(source, 1, kInF16, pool, [&](const RowBlock& block) {
    for (int64_t row = block.begin; row < block.end; ++row) {
      const float* w = block.values + (row - block.begin) * cols;
      const float scale = CheckedScale(AbsMax(w, cols) / 127.0f, row * cols, *block.bad);
      auto* codes = reinterpret_cast<int8_t*>(payload.data() + row * cols);
      for (int64_t i = 0; i < cols; ++i) codes[i] = static_cast<int8_t>(Code(w[i] / scale, -128.0f, 127.0f));
      StoreLe(scales + 2 * row, F32ToF16(scale));
    }
  }));
  return payload;
}

void Decode(const TensorView& tensor, int64_t begin, int64_t end, float* out) {
  const RowShape shape = RowsOf(tensor.shape);
  const std::byte* const scales = tensor.bytes.data() + shape.rows * shape.cols;
  for (int64_t row = begin; row < end; ++row, out += shape.cols) {
    const float scale = F16ToF32(LoadLe<uint16_t>(scales + 2 * row));
    const auto* codes = reinterpret_cast<const int8_t*>(tensor.bytes.data() + row * shape.cols);
    for (int64_t i = 0; i < shape.cols; ++i) out[i] = static_cast<float>(codes[i]) * scale;
  }
}

}  // namespace

const Encoding kQ8RowEncoding = {DType::kQ8Row, "q8_row", ReasonNot2d, Size, nullptr, Encode, Decode};

}  // namespace cmforge
