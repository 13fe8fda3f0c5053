// Conversions between f16 and f32 without branches, so that compilers vectorize them.
#include "base/half.h"

#include "coreml/interpreter/clones.h"
#include "coreml/interpreter/weight.h"
#include "kernels/elementwise.h"

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

void RoundToHalves(float* values, int64_t count) {
  static const FloatKernels& kernels = *FindFloatKernels("");
  kernels.round_f16(values, count);
}

}  // namespace cmforge::coreml
