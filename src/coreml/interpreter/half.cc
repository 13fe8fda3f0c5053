// Conversions between f16 and f32 without branches, so that compilers vectorize them.
#include "base/half.h"

#include "coreml/interpreter/clones.h"
#include "coreml/interpreter/weight.h"

namespace cmforge::coreml {

CMF_CLONES void HalvesToFloats(const std::byte* halves, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) {
    uint16_t h = 0;
    __builtin_memcpy(&h, halves + 2 * i, 2);
    const uint32_t magnitude = static_cast<uint32_t>(h & 0x7FFF) << 13;
    // The exponent moves by 112; a multiplication makes subnormals right too.
    float value = 0;
    __builtin_memcpy(&value, &magnitude, 4);
    value *= 0x1p112f;
    uint32_t bits = 0;
    __builtin_memcpy(&bits, &value, 4);
    bits |= magnitude >= 0x0F800000u ? 0x7F800000u : 0u;  // infinities and NaN
    bits |= static_cast<uint32_t>(h & 0x8000) << 16;
    __builtin_memcpy(out + i, &bits, 4);
  }
}

CMF_CLONES void RoundToHalves(float* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits = 0;
    __builtin_memcpy(&bits, values + i, 4);
    const uint32_t sign = bits & 0x80000000u;
    const uint32_t magnitude = bits & 0x7FFFFFFFu;
    uint32_t normal = (magnitude + 0xFFFu + ((magnitude >> 13) & 1u)) & ~0x1FFFu;
    normal = normal >= 0x47800000u ? 0x7F800000u : normal;
    // Below 2^-14: adding 0.5 makes the unit in the last place 2^-24, which is f16's.
    float small = 0;
    __builtin_memcpy(&small, &magnitude, 4);
    small = (small + 0.5f) - 0.5f;
    uint32_t subnormal = 0;
    __builtin_memcpy(&subnormal, &small, 4);
    uint32_t rounded = magnitude < 0x38800000u ? subnormal : normal;
    rounded = magnitude > 0x7F800000u ? 0x7FC00000u : rounded;
    bits = rounded | sign;
    __builtin_memcpy(values + i, &bits, 4);
  }
}

}  // namespace cmforge::coreml
