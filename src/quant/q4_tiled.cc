// q4_tiled (spec 3.2): the numbers of q4_block, each scale in front of its codes, 2-D with whole groups.
//   { [f16 scale][16 bytes of codes] } : rows * cols / 32
#include "quant/entries.h"
#include "quant/least_error.h"
#include "quant/q4_group.h"
#include "quant/row_blocks.h"

namespace cmforge {
namespace {

constexpr int64_t kTile = 18;

std::optional<uint64_t> Size(std::span<const int64_t> shape) { return GroupBytes(shape, kTile); }

template <bool kLeastError>
Result<std::vector<std::byte>> Encode(const FloatRows& source, const EncodeOptions&, ThreadPool& pool) {
  CMF_CHECK(CheckReason(ReasonNotGroups(source.view.shape)));
  const int64_t groups_per_row = source.cols / kGroup;
  std::vector<std::byte> payload(static_cast<size_t>(source.rows * groups_per_row * kTile));
  CMF_CHECK(ForRowBlocks(source, 1, kInF16, pool, [&](const RowBlock& block) {
    std::byte* tile = payload.data() + block.begin * groups_per_row * kTile;
    const int64_t count = (block.end - block.begin) * source.cols;
    for (int64_t i = 0; i < count; i += kGroup, tile += kTile) {
      const float* w = block.values + i;
      float scale = CheckedScale(AbsMax(w, kGroup) / 7.0f, block.begin * source.cols + i, *block.bad);
      if (kLeastError && scale <= kF16Max) scale = LeastErrorScale(w, -8.0f, 7.0f, scale);
      StoreLe(tile, F32ToF16(scale));
      EncodeQ4Group(w, scale, tile + 2);
    }
  }));
  return payload;
}

void Decode(const TensorView& tensor, int64_t begin, int64_t end, float* out) {
  const int64_t groups_per_row = tensor.shape[1] / kGroup;
  const std::byte* tile = tensor.bytes.data() + begin * groups_per_row * kTile;
  for (int64_t i = 0; i < (end - begin) * groups_per_row; ++i, tile += kTile, out += kGroup) {
    DecodeQ4Group(tile + 2, F16ToF32(LoadLe<uint16_t>(tile)), out);
  }
}

}  // namespace

Result<std::vector<std::byte>> EncodeQ4TiledLeastError(const FloatRows& source, const EncodeOptions& options,
                                                       ThreadPool& pool) {
  return Encode<true>(source, options, pool);
}

const Encoding kQ4TiledEncoding = {DType::kQ4Tiled, "q4_tiled",    ReasonNotGroups, Size,
                                   nullptr,         Encode<false>, Decode};

}  // namespace cmforge
