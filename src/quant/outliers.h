// Choosing the weights that q1s and q1t keep verbatim: those whose score |w| * column weight is among the
// largest of the tensor. Streams, so the tensor is never held as f32.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "quant/row_blocks.h"

namespace cmforge {

/// The score of one weight; `column_weights` is empty or has one weight >= 0 per column.
[[nodiscard]] inline float OutlierScore(float w, std::span<const float> column_weights, int64_t column) {
  return column_weights.empty() ? std::fabs(w) : std::fabs(w) * column_weights[static_cast<size_t>(column)];
}

/// An outlier as f16; one that does not fit is tallied.
[[nodiscard]] inline uint16_t StoredOutlier(float w, int64_t index, BadValues& bad) {
  const uint16_t stored = F32ToF16(w);
  if ((stored & 0x7C00u) == 0x7C00u) bad.AddUnfit(index);
  return stored;
}

/// How many weights a fraction stands for: round(fraction * count), half away from zero. A negative fraction
/// means `standard`. Fails: kUsage outside 0..0.25.
Result<int64_t> OutlierCount(double fraction, double standard, int64_t count);

struct Outliers {
  float threshold = 0;                 // a weight is an outlier when its score is at least this
  std::vector<uint64_t> first_of_row;  // [rows + 1]: outliers in the rows before
  [[nodiscard]] uint64_t count() const { return first_of_row.back(); }
};

/// The `wanted` weights of largest score; all weights that tie with the last of them are included, so there
/// may be more; none below `least`. None when `wanted` is 0. Fails: kCorrupt for NaN or Inf.
Result<Outliers> FindOutliers(const FloatRows& source, std::span<const float> column_weights, int64_t wanted,
                              float least, ThreadPool& pool);

}  // namespace cmforge
