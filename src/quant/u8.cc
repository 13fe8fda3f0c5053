// u8 (a reserved id of the spec, found in files): raw bytes, which read as the numbers 0 to 255.
#include "quant/entries.h"
#include "quant/row_blocks.h"

namespace cmforge {
namespace {

std::optional<uint64_t> Size(std::span<const int64_t> shape) { return ElementBytes(shape, 1); }

Result<std::vector<std::byte>> Encode(const FloatRows& source, const EncodeOptions&, ThreadPool& pool) {
  if (source.view.dtype == DType::kU8)
    return std::vector<std::byte>(source.view.bytes.begin(), source.view.bytes.end());
  std::vector<std::byte> payload(static_cast<size_t>(source.rows * source.cols));
  constexpr std::string_view kInU8 = "u8, which holds whole numbers from 0 to 255";
  CMF_CHECK(ForRowBlocks(source, 1, kInU8, pool, [&](const RowBlock& block) {
    const int64_t first = block.begin * source.cols;
    for (int64_t i = 0; i < (block.end - block.begin) * source.cols; ++i) {
      const float value = block.values[i];
      const auto code = static_cast<uint8_t>(std::clamp(value, 0.0f, 255.0f));
      if (static_cast<float>(code) != value) block.bad->AddUnfit(first + i);
      payload[static_cast<size_t>(first + i)] = std::byte{code};
    }
  }));
  return payload;
}

void Decode(const TensorView& tensor, int64_t begin, int64_t end, float* out) {
  const int64_t cols = RowsOf(tensor.shape).cols;
  const std::byte* at = tensor.bytes.data() + begin * cols;
  for (int64_t i = 0; i < (end - begin) * cols; ++i)
    out[i] = static_cast<float>(std::to_integer<uint8_t>(at[i]));
}

}  // namespace

const Encoding kU8Encoding = {DType::kU8, "u8", AnyShape, Size, nullptr, Encode, Decode};

}  // namespace cmforge
