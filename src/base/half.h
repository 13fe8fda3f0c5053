// 16-bit floats: IEEE half (f16) and bfloat16, converted by bit arithmetic so that every compiler
// and machine gives the same bits.
#pragma once

#include <bit>
#include <cstdint>

namespace cmforge {

// The conversions compute every case and pick one with masks, so that loops over rows become vector code.
[[nodiscard]] inline uint32_t PickBits(bool condition, uint32_t yes, uint32_t no) {
  const uint32_t mask = 0u - static_cast<uint32_t>(condition);
  return (yes & mask) | (no & ~mask);
}

[[nodiscard]] inline float F16ToF32(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t magnitude = h & 0x7FFFu;
  const uint32_t normal = (magnitude << 13) + PickBits(magnitude >= 0x7C00u, 224u << 23, 112u << 23);
  // Zero and subnormal: mantissa * 2^-24 is exact in f32.
  const float small = static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f;
  return std::bit_cast<float>(sign | PickBits(magnitude < 0x400u, std::bit_cast<uint32_t>(small), normal));
}

/// Round half to even, subnormal results included; overflow gives infinity, NaN a quiet NaN.
[[nodiscard]] inline uint16_t F32ToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  const uint32_t odd = (magnitude >> 13) & 1u;
  const uint32_t normal = (magnitude - 0x38000000u + 0xFFFu + odd) >> 13;
  // Below 2^-14, adding 0.5 makes the unit in the last place 2^-24: the FPU rounds half to even for us.
  const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
  const uint32_t small = std::bit_cast<uint32_t>(shifted) - 0x3F000000u;
  const uint32_t nan = 0x7E00u | ((magnitude >> 13) & 0x1FFu);
  uint32_t result = PickBits(magnitude < 0x38800000u, small, normal);
  result = PickBits(magnitude >= 0x477FF000u, 0x7C00u, result);  // 65520 and above
  result = PickBits(magnitude > 0x7F800000u, nan, result);
  return static_cast<uint16_t>(sign | result);
}

[[nodiscard]] inline float Bf16ToF32(uint16_t b) {
  return std::bit_cast<float>(static_cast<uint32_t>(b) << 16);
}

/// Round half to even; NaN stays a quiet NaN.
[[nodiscard]] inline uint16_t F32ToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t nan = (bits >> 16) | 0x40u;
  const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  return static_cast<uint16_t>(PickBits((bits & 0x7FFFFFFFu) > 0x7F800000u, nan, rounded));
}

[[nodiscard]] inline float RoundToF16(float value) { return F16ToF32(F32ToF16(value)); }

}  // namespace cmforge
