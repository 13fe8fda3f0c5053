// The group of 32 four-bit codes that q4_block, q4_tiled and q4tp share: 16 bytes, element 2k in the low half
// of byte k and 2k + 1 in the high half; w = (code - 8) * scale.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "quant/numeric.h"
#include "quant/shapes.h"

namespace cmforge {

/// Codes of 32 weights for a stored scale > 0, by true division.
inline void EncodeQ4Group(const float* w, float scale, std::byte* out) {
  for (int k = 0; k < 16; ++k) {
    const int32_t low = Code(w[2 * k] / scale, -8.0f, 7.0f) + 8;
    const int32_t high = Code(w[2 * k + 1] / scale, -8.0f, 7.0f) + 8;
    out[k] = static_cast<std::byte>(low | high << 4);
  }
}

inline void DecodeQ4Group(const std::byte* codes, float scale, float* out) {
  for (int k = 0; k < 16; ++k) {
    const int32_t byte = std::to_integer<int32_t>(codes[k]);
    out[2 * k] = static_cast<float>((byte & 15) - 8) * scale;
    out[2 * k + 1] = static_cast<float>((byte >> 4) - 8) * scale;
  }
}

}  // namespace cmforge
