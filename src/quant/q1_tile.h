// The 6-byte tile of 32 signs that q1 and q1s share: [f16 scale][32 bits, low bit first]; w = +scale for a
// set bit, else -scale.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "quant/numeric.h"

namespace cmforge {

inline constexpr int64_t kSignGroup = 32;
inline constexpr int64_t kSignTile = 6;

inline void StoreSignTile(float scale, uint32_t bits, std::byte* tile) {
  StoreLe(tile, F32ToF16(scale));
  StoreLe(tile + 2, bits);
}

inline void DecodeSignTile(const std::byte* tile, float* out) {
  const uint32_t scale = std::bit_cast<uint32_t>(F16ToF32(LoadLe<uint16_t>(tile)));
  const uint32_t clear = ~LoadLe<uint32_t>(tile + 2);
  for (uint32_t i = 0; i < kSignGroup; ++i) out[i] = std::bit_cast<float>(scale ^ (clear >> i & 1u) << 31);
}

/// Tiles of a payload without overlay; UINT64_MAX when it does not fit 64 bits.
inline uint64_t SignTileBytes(std::span<const int64_t> shape) {
  const auto tiles =
      CheckedMul(static_cast<uint64_t>(shape[0]), static_cast<uint64_t>(shape[1] / kSignGroup));
  return tiles ? CheckedMul(*tiles, kSignTile).value_or(UINT64_MAX) : UINT64_MAX;
}

}  // namespace cmforge
