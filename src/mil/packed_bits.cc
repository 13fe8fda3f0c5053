// Packing and unpacking of sub-byte elements.
#include "mil/packed_bits.h"

namespace cmforge::mil {

void UnpackBits(const std::byte* packed, int bits, int64_t begin, int64_t count, uint8_t* out) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(packed);
  int64_t i = 0;
  if (bits == 8) {
    std::memcpy(out, bytes + begin, static_cast<size_t>(count));
    return;
  }
  // Eight elements fill `bits` whole bytes: unpack such groups from one 64-bit word.
  if ((begin * bits) % 8 == 0) {
    const uint8_t* at = bytes + begin * bits / 8;
    const auto mask = static_cast<uint8_t>((1u << bits) - 1u);
    for (; i + 8 <= count; i += 8, at += bits) {
      uint64_t word = 0;
      for (int b = 0; b < bits; ++b) word |= static_cast<uint64_t>(at[b]) << (8 * b);
      for (int k = 0; k < 8; ++k) out[i + k] = static_cast<uint8_t>(word >> (k * bits)) & mask;
    }
  }
  for (; i < count; ++i) out[i] = static_cast<uint8_t>(PackedElement(packed, bits, begin + i));
}

std::vector<std::byte> PackBits(std::span<const uint8_t> values, int bits) {
  const auto width = static_cast<size_t>(bits);
  std::vector<std::byte> out((values.size() * width + 7) / 8);
  const uint32_t mask = (1u << bits) - 1u;
  size_t bit = 0;
  for (const uint8_t value : values) {
    const uint32_t placed = (value & mask) << (bit % 8);
    out[bit / 8] |= static_cast<std::byte>(placed & 0xFFu);
    if (bit % 8 + width > 8) out[bit / 8 + 1] |= static_cast<std::byte>(placed >> 8);
    bit += width;
  }
  return out;
}

}  // namespace cmforge::mil
