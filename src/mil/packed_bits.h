// Elements narrower than a byte: bit k of element i is bit i*n+k of the stream, and stream bit b is bit b%8
// of byte b/8.
#pragma once

#include "base/bytes.h"
#include "mil/types.h"

namespace cmforge::mil {

/// Element `index` of `bits` (1..8) bits, as stored (no sign). The caller has checked that it lies inside.
[[nodiscard]] inline uint32_t PackedElement(const std::byte* packed, int bits, int64_t index) {
  const int64_t bit = index * bits;
  const std::byte* at = packed + bit / 8;
  const int shift = static_cast<int>(bit % 8);
  uint32_t two = std::to_integer<uint32_t>(at[0]);
  if (shift + bits > 8) two |= std::to_integer<uint32_t>(at[1]) << 8;
  return (two >> shift) & ((1u << bits) - 1u);
}

/// Elements [begin, begin + count) to one byte each.
void UnpackBits(const std::byte* packed, int bits, int64_t begin, int64_t count, uint8_t* out);

/// The opposite; values are cut to `bits` bits, unused bits of the last byte are zero.
[[nodiscard]] std::vector<std::byte> PackBits(std::span<const uint8_t> values, int bits);

/// Two's complement value of a signed element of `bits` bits.
[[nodiscard]] inline int32_t SignExtend(uint32_t value, int bits) {
  const uint32_t sign = 1u << (bits - 1);
  return static_cast<int32_t>(value ^ sign) - static_cast<int32_t>(sign);
}

}  // namespace cmforge::mil
