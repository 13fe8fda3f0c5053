// The NEON functions that the table names, and the tree of partial sums that they share.
#pragma once

#include <arm_neon.h>

#include "kernels/table.h"

namespace cmforge::neon {

void FloatProduct(const WeightLayout& w, int64_t row_begin, int64_t row_end, const TokenRows& x, float* out,
                  int64_t out_stride, std::byte* scratch);
int64_t FloatScratchBytes(const WeightLayout& w);
void QuantizeRow(const float* x, const std::byte* columns, int64_t cols, int64_t groups, QuantizedGroup* out);

namespace {

/// The tree of table.h: partial sums 0-3, 4-7, 8-11, 12-15.
inline float Tree(float32x4_t a, float32x4_t b, float32x4_t c, float32x4_t d) {
  const float32x4_t four = vaddq_f32(vaddq_f32(a, c), vaddq_f32(b, d));
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

}  // namespace
}  // namespace cmforge::neon
