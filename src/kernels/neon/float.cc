// Float products with NEON.
#include "kernels/neon/neon.h"

namespace cmforge {
namespace {

struct Vec16 {
  float32x4_t part[4];
};

inline Vec16 Zero() { return {{vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)}}; }
inline Vec16 Fma(Vec16 a, Vec16 b, Vec16 sum) {
  for (int i = 0; i < 4; ++i) sum.part[i] = vfmaq_f32(sum.part[i], a.part[i], b.part[i]);
  return sum;
}
inline Vec16 LoadF32(const void* p) {
  const auto* f = static_cast<const float*>(p);
  return {{vld1q_f32(f), vld1q_f32(f + 4), vld1q_f32(f + 8), vld1q_f32(f + 12)}};
}
inline Vec16 LoadF16(const void* p) {
  Vec16 result;
  for (int i = 0; i < 4; ++i) {
    float16x4_t halves;
    __builtin_memcpy(&halves, static_cast<const std::byte*>(p) + 8 * i, 8);
    result.part[i] = vcvt_f32_f16(halves);
  }
  return result;
}
inline Vec16 LoadBf16(const void* p) {
  Vec16 result;
  for (int i = 0; i < 4; ++i) {
    uint16x4_t words;
    __builtin_memcpy(&words, static_cast<const std::byte*>(p) + 8 * i, 8);
    result.part[i] = vreinterpretq_f32_u32(vshll_n_u16(words, 16));
  }
  return result;
}
inline void StoreTrees(const Vec16 (&sums)[4], int64_t rows, float* out) {
  for (int64_t r = 0; r < rows; ++r) {
    out[r] = neon::Tree(sums[r].part[0], sums[r].part[1], sums[r].part[2], sums[r].part[3]);
  }
}
inline void Prefetch(const void* p) { __builtin_prefetch(p); }

// Two rows by three tokens are 24 accumulators of 32 registers.
constexpr int kTileRows = 2, kMaxTokens = 3;

}  // namespace
}  // namespace cmforge

#include "kernels/float_body.h"

namespace cmforge::neon {

void FloatProduct(const WeightLayout& w, int64_t row_begin, int64_t row_end, const TokenRows& x, float* out,
                  int64_t out_stride, std::byte* scratch) {
  cmforge::FloatProduct(w, row_begin, row_end, x, out, out_stride, scratch);
}
int64_t FloatScratchBytes(const WeightLayout& w) { return cmforge::FloatScratchBytes(w); }

}  // namespace cmforge::neon
