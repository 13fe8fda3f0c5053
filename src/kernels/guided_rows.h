// How products with few tokens are cut into tasks.
#pragma once

#include <algorithm>
#include <cstdint>

namespace cmforge {

/// Bytes of weights that a task reads at least.
inline constexpr int64_t kLeastTaskBytes = 64 << 10;

/// Rows of the next task, a multiple of `grain`, where `left_rows` of the product and `left_bytes` of all that is
/// multiplied at once are left: a thread's share of half of what is left. Long tasks keep the prefetchers running, and
/// the last ones are short, so that they keep nobody waiting.
inline int64_t GuidedRows(int64_t left_rows, int64_t row_bytes, int64_t left_bytes, int64_t grain,
                          int threads) {
  const int64_t bytes = std::max(kLeastTaskBytes, left_bytes / (int64_t{2} * threads));
  const int64_t rows = std::max<int64_t>(1, bytes / row_bytes / grain) * grain;
  return left_rows < rows + rows / 2 ? left_rows : rows;
}

}  // namespace cmforge
