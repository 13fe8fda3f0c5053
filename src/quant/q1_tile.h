// The 6-byte tile of 32 signs that q1 and q1s share: [f16 scale][32 bits, low bit first]; w = +scale for a
// set bit, else -scale.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "quant/numeric.h"
#include "quant/shapes.h"

namespace cmforge {

inline constexpr int64_t kSignTile = 6;

inline void StoreSignTile(float scale, uint32_t bits, std::byte* tile) {
  StoreLe(tile, F32ToF16(scale));
  StoreLe(tile + 2, bits);
}

inline void DecodeSignTile(const std::byte* tile, float* out) {
  const uint32_t scale = std::bit_cast<uint32_t>(F16ToF32(LoadLe<uint16_t>(tile)));
  const uint32_t clear = ~LoadLe<uint32_t>(tile + 2);
  for (uint32_t i = 0; i < kGroup; ++i) out[i] = std::bit_cast<float>(scale ^ (clear >> i & 1u) << 31);
}

}  // namespace cmforge
