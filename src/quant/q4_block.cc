// q4_block (spec 3.2): groups of 32 over the flattened tensor, the last padded with zeros; any shape, so a
// group may lie across two rows.
//   [16 bytes of codes : groups][f16 scale : groups]      scale = absmax(group) / 7
#include <cstring>
#include <numeric>

#include "quant/entries.h"
#include "quant/least_error.h"
#include "quant/q4_group.h"
#include "quant/row_blocks.h"

namespace cmforge {
namespace {

int64_t Groups(int64_t count) { return count / kGroup + (count % kGroup != 0 ? 1 : 0); }

std::optional<uint64_t> Size(std::span<const int64_t> shape) {
  const std::optional<int64_t> count = ElementCount(shape);
  return count ? SaturatedMul(static_cast<uint64_t>(Groups(*count)), 18) : UINT64_MAX;
}

template <bool kLeastError>
Result<std::vector<std::byte>> Encode(const FloatRows& source, const EncodeOptions&, ThreadPool& pool) {
  const int64_t cols = source.cols;
  const int64_t groups = Groups(source.rows * cols);
  std::vector<std::byte> payload(static_cast<size_t>(groups * 18));
  std::byte* const scales = payload.data() + groups * 16;
  // Blocks of rows must begin where a group begins.
  const int64_t unit = kGroup / std::gcd(std::max<int64_t>(cols, 1), kGroup);
  CMF_CHECK(ForRowBlocks(source, unit, kInF16, pool, [&](const RowBlock& block) {
    const int64_t count = (block.end - block.begin) * cols;
    const int64_t first_group = block.begin * cols / kGroup;
    for (int64_t i = 0; i < count; i += kGroup) {
      float padded[kGroup] = {};
      const float* w = block.values + i;
      if (count - i < kGroup) {
        std::memcpy(padded, w, static_cast<size_t>(count - i) * sizeof(float));
        w = padded;
      }
      const int64_t group = first_group + i / kGroup;
      float scale = CheckedScale(AbsMax(w, kGroup) / 7.0f, group * kGroup, *block.bad);
      if (kLeastError && scale <= kF16Max) scale = LeastErrorScale(w, -8.0f, 7.0f, scale);
      EncodeQ4Group(w, scale, payload.data() + group * 16);
      StoreLe(scales + group * 2, F32ToF16(scale));
    }
  }));
  return payload;
}

void Decode(const TensorView& tensor, int64_t begin, int64_t end, float* out) {
  const RowShape shape = RowsOf(tensor.shape);
  const std::byte* const codes = tensor.bytes.data();
  const std::byte* const scales = codes + Groups(shape.rows * shape.cols) * 16;
  const auto scale_of = [&](int64_t group) { return F16ToF32(LoadLe<uint16_t>(scales + group * 2)); };
  const int64_t last = end * shape.cols;
  for (int64_t i = begin * shape.cols; i < last;) {
    const int64_t group = i / kGroup, within = i % kGroup;
    const int64_t count = std::min(kGroup - within, last - i);
    if (count == kGroup) {
      DecodeQ4Group(codes + group * 16, scale_of(group), out);
    } else {
      float values[kGroup];
      DecodeQ4Group(codes + group * 16, scale_of(group), values);
      std::memcpy(out, values + within, static_cast<size_t>(count) * sizeof(float));
    }
    out += count;
    i += count;
  }
}

}  // namespace

Result<std::vector<std::byte>> EncodeQ4BlockLeastError(const FloatRows& source, const EncodeOptions& options,
                                                       ThreadPool& pool) {
  return Encode<true>(source, options, pool);
}

const Encoding kQ4BlockEncoding = {DType::kQ4Block, "q4_block",    AnyShape, Size,
                                   nullptr,         Encode<false>, Decode};

}  // namespace cmforge
