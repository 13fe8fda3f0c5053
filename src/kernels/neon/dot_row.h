// One row of codes times tokens, by the dot product of signed bytes. Included after integer_body.h.
#pragma once

#include "kernels/integer_body.h"
#include "kernels/neon/neon.h"

namespace cmforge {
namespace {

/// Lane i: the sum over the i-th vector.
inline int32x4_t SumsOfEach(int32x4_t a, int32x4_t b, int32x4_t c, int32x4_t d) {
  return vpaddq_s32(vpaddq_s32(a, b), vpaddq_s32(c, d));
}

template <int kTokens>
void DotRow(const UnpackedRow& row, const ArrangedToken (&x)[kTokens], float (&y)[kTokens]) {
  float32x4_t partials[kTokens][4];
  for (int t = 0; t < kTokens; ++t) {
    for (int i = 0; i < 4; ++i) partials[t][i] = vdupq_n_f32(0);
  }
  const uint8x16_t flip = vdupq_n_u8(row.is_small ? 0 : 0x80);
  for (int64_t g = 0; g < row.groups; g += kPartials) {
    for (int64_t part = 0; part < 4; ++part) {
      const int64_t first = g + 4 * part;
      int8x16_t codes[4][2];
      for (int64_t i = 0; i < 4; ++i) {
        for (int64_t half = 0; half < 2; ++half) {
          const uint8x16_t loaded = vld1q_u8(row.codes + (first + i) * kGroupSize + 16 * half);
          codes[i][half] = vreinterpretq_s8_u8(veorq_u8(loaded, flip));
        }
      }
      for (int t = 0; t < kTokens; ++t) {
        int32x4_t dots[4];
        for (int64_t i = 0; i < 4; ++i) {
          const int8_t* q = x[t].q + (first + i) * kGroupSize;
          dots[i] =
              vdotq_s32(vdotq_s32(vdupq_n_s32(0), codes[i][0], vld1q_s8(q)), codes[i][1], vld1q_s8(q + 16));
        }
        const int32x4_t sums =
            vaddq_s32(SumsOfEach(dots[0], dots[1], dots[2], dots[3]), vld1q_s32(x[t].corrections + first));
        float32x4_t scales = vld1q_f32(x[t].scales + first);
        if (row.scales != nullptr) scales = vmulq_f32(vld1q_f32(row.scales + first), scales);
        partials[t][part] = vfmaq_f32(partials[t][part], vcvtq_f32_s32(sums), scales);
      }
    }
  }
  for (int t = 0; t < kTokens; ++t)
    y[t] = neon::Tree(partials[t][0], partials[t][1], partials[t][2], partials[t][3]);
}

}  // namespace
}  // namespace cmforge
