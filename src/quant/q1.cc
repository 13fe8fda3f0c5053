// q1 (spec 3.2): one sign per weight and one scale per 32, the mean magnitude: for models trained to one bit.
//   { [f16 scale][4 bytes of signs] } : rows * cols / 32
// With `error_diffusion` (the q1p rule) a sign is decided after adding the error left by the weights before
// it in the row; the layout is the same.
#include <cmath>

#include "quant/entries.h"
#include "quant/q1_tile.h"
#include "quant/row_blocks.h"

namespace cmforge {
namespace {

std::optional<uint64_t> Size(std::span<const int64_t> shape) { return GroupBytes(shape, kSignTile); }

float MeanMagnitude(const float* w) {
  float sum = 0;
  for (int64_t i = 0; i < kGroup; ++i) sum += std::fabs(w[i]);
  return sum / static_cast<float>(kGroup);
}

void EncodeRow(const float* w, int64_t cols, int64_t first_index, bool error_diffusion, std::byte* tile,
               BadValues& bad) {
  float carry = 0;
  for (int64_t first = 0; first < cols; first += kGroup, tile += kSignTile) {
    const float scale = CheckedScale(MeanMagnitude(w + first), first_index + first, bad);
    uint32_t bits = 0;
    for (uint32_t i = 0; i < kGroup; ++i) {
      const float wanted = w[first + i] + carry;
      const bool positive = wanted >= 0;
      bits |= static_cast<uint32_t>(positive) << i;
      if (error_diffusion) carry = wanted - (positive ? scale : -scale);
    }
    StoreSignTile(scale, bits, tile);
  }
}

Result<std::vector<std::byte>> Encode(const FloatRows& source, const EncodeOptions& options,
                                      ThreadPool& pool) {
  CMF_CHECK(CheckReason(ReasonNotGroups(source.view.shape)));
  const int64_t row_bytes = source.cols / kGroup * kSignTile;
  std::vector<std::byte> payload(static_cast<size_t>(source.rows * row_bytes));
  CMF_CHECK(ForRowBlocks(source, 1, kInF16, pool, [&](const RowBlock& block) {
    for (int64_t row = block.begin; row < block.end; ++row) {
      EncodeRow(block.values + (row - block.begin) * source.cols, source.cols, row * source.cols,
                options.error_diffusion, payload.data() + row * row_bytes, *block.bad);
    }
  }));
  return payload;
}

void Decode(const TensorView& tensor, int64_t begin, int64_t end, float* out) {
  const int64_t tiles_per_row = tensor.shape[1] / kGroup;
  const std::byte* tile = tensor.bytes.data() + begin * tiles_per_row * kSignTile;
  for (int64_t i = 0; i < (end - begin) * tiles_per_row; ++i, tile += kSignTile, out += kGroup) {
    DecodeSignTile(tile, out);
  }
}

}  // namespace

const Encoding kQ1Encoding = {DType::kQ1, "q1", ReasonNotGroups, Size, nullptr, Encode, Decode};

}  // namespace cmforge
