// f32, f16 and bf16: one number after the other, any shape.
#include <cmath>
#include <cstring>

#include "quant/entries.h"
#include "quant/numeric.h"
#include "quant/row_blocks.h"

namespace cmforge {
namespace {

template <uint64_t kBytes>
std::optional<uint64_t> Size(std::span<const int64_t> shape) {
  return ElementBytes(shape, kBytes);
}

std::vector<std::byte> Copy(Bytes bytes) { return {bytes.begin(), bytes.end()}; }

Result<std::vector<std::byte>> EncodeF32(const FloatRows& source, const EncodeOptions&, ThreadPool& pool) {
  std::vector<std::byte> payload(static_cast<size_t>(source.rows * source.cols) * 4);
  CMF_CHECK(ForRowBlocks(source, 1, "f32", pool, [&](const RowBlock& block) {
    std::memcpy(payload.data() + block.begin * source.cols * 4, block.values,
                static_cast<size_t>((block.end - block.begin) * source.cols) * 4);
  }));
  return payload;
}

void DecodeF32(const TensorView& tensor, int64_t begin, int64_t end, float* out) {
  const int64_t cols = RowsOf(tensor.shape).cols;
  std::memcpy(out, tensor.bytes.data() + begin * cols * 4, static_cast<size_t>((end - begin) * cols) * 4);
}

/// f16 and bf16 differ in the conversion and in the bits of infinity, which no number may become.
template <DType kDType, uint16_t (*kNarrow)(float), uint16_t kInfinity>
Result<std::vector<std::byte>> EncodeHalf(const FloatRows& source, const EncodeOptions&, ThreadPool& pool) {
  if (source.view.dtype == kDType) {
    CMF_CHECK(CheckFinite(source, pool));
    return Copy(source.view.bytes);
  }
  std::vector<std::byte> payload(static_cast<size_t>(source.rows * source.cols) * 2);
  CMF_CHECK(
      ForRowBlocks(source, 1, kDType == DType::kF16 ? kInF16 : "bf16", pool, [&](const RowBlock& block) {
        const int64_t first = block.begin * source.cols, count = (block.end - block.begin) * source.cols;
        std::byte* at = payload.data() + first * 2;
        int32_t any = 0;
        for (int64_t i = 0; i < count; ++i) {
          const uint16_t narrow = kNarrow(block.values[i]);
          any |= (narrow & 0x7FFF) == kInfinity ? 1 : 0;
          StoreLe(at + 2 * i, narrow);
        }
        for (int64_t i = 0; any != 0 && i < count; ++i) {
          if ((LoadLe<uint16_t>(at + 2 * i) & 0x7FFF) == kInfinity) block.bad->AddUnfit(first + i);
        }
      }));
  return payload;
}

template <float (*kWiden)(uint16_t)>
void DecodeHalf(const TensorView& tensor, int64_t begin, int64_t end, float* out) {
  const int64_t cols = RowsOf(tensor.shape).cols;
  const std::byte* at = tensor.bytes.data() + begin * cols * 2;
  for (int64_t i = 0; i < (end - begin) * cols; ++i) out[i] = kWiden(LoadLe<uint16_t>(at + 2 * i));
}

}  // namespace

const Encoding kF32Encoding = {DType::kF32, "f32", AnyShape, Size<4>, nullptr, EncodeF32, DecodeF32};
const Encoding kF16Encoding = {
    DType::kF16,         "f16", AnyShape, Size<2>, nullptr, EncodeHalf<DType::kF16, F32ToF16, 0x7C00>,
    DecodeHalf<F16ToF32>};
const Encoding kBf16Encoding = {
    DType::kBF16,         "bf16", AnyShape, Size<2>, nullptr, EncodeHalf<DType::kBF16, F32ToBf16, 0x7F80>,
    DecodeHalf<Bf16ToF32>};

}  // namespace cmforge
