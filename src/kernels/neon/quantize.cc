// A row of activations to int8 with NEON: one group of 32 is eight vectors.
#include "kernels/neon/neon.h"

namespace cmforge::neon {
namespace {

/// Four values of the row, zeros past its end.
inline float32x4_t LoadValues(const float* x, const std::byte* columns, int64_t c, int64_t cols) {
  float values[4] = {};
  const int64_t count = cols - c < 0 ? 0 : cols - c > 4 ? 4 : cols - c;
  __builtin_memcpy(values, x + c, static_cast<size_t>(4 * count));
  if (columns == nullptr || count == 0) return vld1q_f32(values);
  uint16_t bits[4] = {};
  __builtin_memcpy(bits, columns + 2 * c, static_cast<size_t>(2 * count));
  return vmulq_f32(vld1q_f32(values), vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(bits))));
}

}  // namespace

void QuantizeRow(const float* x, const std::byte* columns, int64_t cols, int64_t groups,
                 QuantizedGroup* out) {
  for (int64_t g = 0; g < groups; ++g) {
    float32x4_t values[8];
    uint32x4_t max = vdupq_n_u32(0);  // as integers, so that NaN and infinity win
    for (int i = 0; i < 8; ++i) {
      values[i] = LoadValues(x, columns, 32 * g + 4 * i, cols);
      max = vmaxq_u32(max, vandq_u32(vreinterpretq_u32_f32(values[i]), vdupq_n_u32(0x7FFFFFFF)));
    }
    const uint32_t max_bits = vmaxvq_u32(max);
    float greatest;
    __builtin_memcpy(&greatest, &max_bits, 4);
    const bool is_finite = max_bits < 0x7F800000, is_counted = is_finite && greatest >= 0x1p-100f;
    out[g].scale = !is_finite ? __builtin_nanf("") : is_counted ? greatest / 127.0f : 0.0f;
    const float32x4_t inverse = vdupq_n_f32(is_counted ? 127.0f / greatest : 0.0f);
    const int32x4_t keep = vdupq_n_s32(is_finite ? -1 : 0);
    int32x4_t sum = vdupq_n_s32(0);
    for (int i = 0; i < 8; i += 2) {
      const int32x4_t a = vandq_s32(keep, vcvtnq_s32_f32(vmulq_f32(values[i], inverse)));
      const int32x4_t b = vandq_s32(keep, vcvtnq_s32_f32(vmulq_f32(values[i + 1], inverse)));
      sum = vaddq_s32(sum, vaddq_s32(a, b));
      vst1_s8(out[g].q + 4 * i, vmovn_s16(vcombine_s16(vmovn_s32(a), vmovn_s32(b))));
    }
    const int32_t total = vaddvq_s32(sum);
    for (int z = 0; z < 3; ++z) out[g].minus_zero[z] = -kZeroPoints[z] * total;
  }
}

}  // namespace cmforge::neon
