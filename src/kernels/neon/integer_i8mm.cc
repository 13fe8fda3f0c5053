// Integer products with the matrix product of signed bytes: two rows and two tokens meet in one register.
#define CMFORGE_DOTS_PAIRS
namespace cmforge {
namespace {
constexpr int kDotTokens = 4;
}  // namespace
}  // namespace cmforge

// The first tells the second that vectors unpack.
// clang-format off
#include "kernels/neon/unpack.h"
#include "kernels/neon/dot_row.h"
// clang-format on

namespace cmforge {
namespace {

/// Lanes (row 0, token 0), (0, 1), (1, 0), (1, 1) of four groups, from what four groups have of each.
struct FourGroups {
  float32x4_t group[4];
};
inline FourGroups ByGroup(float32x4_t r0t0, float32x4_t r0t1, float32x4_t r1t0, float32x4_t r1t1) {
  const float32x4_t a = vzip1q_f32(r0t0, r0t1), b = vzip1q_f32(r1t0, r1t1);
  const float32x4_t c = vzip2q_f32(r0t0, r0t1), d = vzip2q_f32(r1t0, r1t1);
  return {{vcombine_f32(vget_low_f32(a), vget_low_f32(b)), vcombine_f32(vget_high_f32(a), vget_high_f32(b)),
           vcombine_f32(vget_low_f32(c), vget_low_f32(d)), vcombine_f32(vget_high_f32(c), vget_high_f32(d))}};
}

inline int8x16_t LowHalves(int8x16_t a, int8x16_t b) {
  return vreinterpretq_s8_s64(vzip1q_s64(vreinterpretq_s64_s8(a), vreinterpretq_s64_s8(b)));
}
inline int8x16_t HighHalves(int8x16_t a, int8x16_t b) {
  return vreinterpretq_s8_s64(vzip2q_s64(vreinterpretq_s64_s8(a), vreinterpretq_s64_s8(b)));
}

/// 32 columns of two rows times two tokens, added to `sum`.
inline int32x4_t GroupSquare(int32x4_t sum, const uint8_t* a, const uint8_t* b, uint8x16_t flip,
                             const int8_t* s, const int8_t* t) {
  for (int half = 0; half < 2; ++half) {
    const int8x16_t row_a = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(a + 16 * half), flip));
    const int8x16_t row_b = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(b + 16 * half), flip));
    const int8x16_t token_s = vld1q_s8(s + 16 * half), token_t = vld1q_s8(t + 16 * half);
    sum = vmmlaq_s32(sum, LowHalves(row_a, row_b), LowHalves(token_s, token_t));
    sum = vmmlaq_s32(sum, HighHalves(row_a, row_b), HighHalves(token_s, token_t));
  }
  return sum;
}

/// Lanes as in FourGroups.
inline float32x4_t DotSquare(const UnpackedRow (&rows)[2], const ArrangedToken& s, const ArrangedToken& t) {
  float32x4_t partials[kPartials];
  for (float32x4_t& partial : partials) partial = vdupq_n_f32(0);
  const uint8x16_t flip = vdupq_n_u8(rows[0].is_small ? 0 : 0x80);
  for (int64_t g = 0; g < rows[0].groups; g += kPartials) {
    for (int64_t part = 0; part < 4; ++part) {
      const int64_t first = g + 4 * part;
      const float32x4_t scale_s = vld1q_f32(s.scales + first), scale_t = vld1q_f32(t.scales + first);
      FourGroups scales;
      if (rows[0].scales != nullptr) {
        const float32x4_t scale_a = vld1q_f32(rows[0].scales + first);
        const float32x4_t scale_b = vld1q_f32(rows[1].scales + first);
        scales = ByGroup(vmulq_f32(scale_a, scale_s), vmulq_f32(scale_a, scale_t),
                         vmulq_f32(scale_b, scale_s), vmulq_f32(scale_b, scale_t));
      } else {
        scales = ByGroup(scale_s, scale_t, scale_s, scale_t);
      }
      for (int64_t i = 0; i < 4; ++i) {
        const int64_t at = first + i, byte = at * kGroupSize;
        const int32x2_t correction = {s.corrections[at], t.corrections[at]};
        const int32x4_t sum = GroupSquare(vcombine_s32(correction, correction), rows[0].codes + byte,
                                          rows[1].codes + byte, flip, s.q + byte, t.q + byte);
        partials[4 * part + i] = vfmaq_f32(partials[4 * part + i], vcvtq_f32_s32(sum), scales.group[i]);
      }
    }
  }
  for (int64_t half = kPartials / 2; half > 0; half /= 2) {  // the tree of table.h
    for (int64_t p = 0; p < half; ++p) partials[p] = vaddq_f32(partials[p], partials[p + half]);
  }
  return partials[0];
}

template <int kTokens>
void DotPair(const UnpackedRow (&rows)[2], const ArrangedToken (&x)[kTokens], float (&y)[2][kTokens]) {
  if constexpr (kTokens % 2 != 0) {
    for (int r = 0; r < 2; ++r) DotRow<kTokens>(rows[r], x, y[r]);
  } else {
    for (int t = 0; t < kTokens; t += 2) {
      const float32x4_t square = DotSquare(rows, x[t], x[t + 1]);
      vst1_f32(&y[0][t], vget_low_f32(square));
      vst1_f32(&y[1][t], vget_high_f32(square));
    }
  }
}

int64_t ScratchBytes(const WeightLayout& w, int64_t, bool is_exact) {
  return is_exact ? neon::FloatScratchBytes(w) : IntegerScratchBytes(w);
}

}  // namespace

const KernelTable kNeonI8mmTable = {
    .isa = Isa::kNeonI8mm,
    .quantize = neon::QuantizeRow,
    .integer = {nullptr, nullptr, nullptr, IntegerProduct, IntegerProduct, nullptr, nullptr, nullptr,
                IntegerProduct, IntegerProduct, IntegerProduct, IntegerProduct, IntegerProduct,
                IntegerProduct, IntegerProduct, IntegerProduct, IntegerProduct},
    .exact = neon::FloatProduct,
    .live = LiveProduct,
    .arranged_bytes = ArrangedBytes,
    .arrange = Arrange,
    .scratch_bytes = ScratchBytes,
    .row_grain = RowGrain,
};

}  // namespace cmforge
