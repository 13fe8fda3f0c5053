// The byte moves behind Relayout; layouts are drawn in q4_block.cc, q4_tiled.cc and vbit.cc.
#include "quant/relayout.h"

#include <cstring>

#include "quant/encoding.h"
#include "quant/shapes.h"

namespace cmforge {
namespace {

constexpr int64_t kScale = 2, kCodes = 16, kTile = kScale + kCodes;  // bytes of a group of 4-bit codes

std::vector<std::byte> MoveQ4(Bytes payload, bool to_tiled) {
  const auto groups = static_cast<int64_t>(payload.size()) / kTile;
  std::vector<std::byte> out(payload.size());
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t tile = g * kTile, codes = g * kCodes, scale = groups * kCodes + g * kScale;
    std::memcpy(out.data() + (to_tiled ? tile : scale), payload.data() + (to_tiled ? scale : tile), kScale);
    std::memcpy(out.data() + (to_tiled ? tile + kScale : codes),
                payload.data() + (to_tiled ? codes : tile + kScale), kCodes);
  }
  return out;
}

std::optional<std::vector<std::byte>> MoveVbit(Bytes payload, std::span<const int64_t> shape,
                                               bool to_offsets) {
  const int64_t rows = shape[0], groups = shape[1] / kGroup;
  const int64_t head = rows + rows * groups * 2;  // widths and scales
  const int64_t table = (rows + 1) * 4;
  const auto begin = payload.begin();
  std::vector<std::byte> out(begin, begin + head);
  if (!to_offsets) {
    out.insert(out.end(), begin + head + table, payload.end());
    return out;
  }
  out.resize(static_cast<size_t>(head + table));
  uint64_t at = 0;
  for (int64_t row = 0; row <= rows; ++row) {
    if (at > UINT32_MAX) return std::nullopt;
    StoreLe(out.data() + head + 4 * row, static_cast<uint32_t>(at));
    if (row < rows)
      at += static_cast<uint64_t>(groups) * 4 * std::to_integer<uint64_t>(payload[static_cast<size_t>(row)]);
  }
  out.insert(out.end(), begin + head, payload.end());
  return out;
}

}  // namespace

std::optional<std::vector<std::byte>> Relayout(const TensorView& tensor, DType to) {
  const Encoding* target = FindEncoding(to);
  if (target == nullptr || !target->reason_against(tensor.shape).empty()) return std::nullopt;
  const auto is = [&](DType from_dtype, DType to_dtype) {
    return tensor.dtype == from_dtype && to == to_dtype;
  };
  if (is(DType::kQ4Block, DType::kQ4Tiled)) return MoveQ4(tensor.bytes, true);
  if (is(DType::kQ4Tiled, DType::kQ4Block)) return MoveQ4(tensor.bytes, false);
  if (is(DType::kVbit, DType::kVbitRo)) return MoveVbit(tensor.bytes, tensor.shape, true);
  if (is(DType::kVbitRo, DType::kVbit)) return MoveVbit(tensor.bytes, tensor.shape, false);
  return std::nullopt;
}

}  // namespace cmforge
