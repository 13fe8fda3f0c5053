// How encoders walk a tensor: blocks of rows decoded to f32 into a small buffer per worker, checked for
// values that cannot be stored, and handed out in any order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "quant/encoding.h"

namespace cmforge {

/// Values that an encoding cannot hold: how many, and the first in row-major order.
struct BadValues {
  int64_t count = 0;
  int64_t non_finite = 0;
  int64_t first = -1;
  float value = 0;

  void Add(int64_t index, float bad);
  void Merge(const BadValues& other);
};

/// Tallies the values that are NaN, infinite or greater than `limit` in magnitude; `first_index` is the
/// row-major index of values[0].
void FindBadValues(const float* values, int64_t count, int64_t first_index, float limit, BadValues& bad);

/// Nothing when `bad` is empty. Fails: kCorrupt when a value is NaN or infinite, else kUsage.
Result<void> ReportBadValues(const BadValues& bad, float limit, int64_t cols);

/// "shape [3, 4, 5] is not 2-D", "shape [0, 32] has no elements", or empty.
std::string ReasonNot2d(std::span<const int64_t> shape);
/// ReasonNot2d, or "columns 44 are not a multiple of 32", or empty.
std::string ReasonNotGroupsOf32(std::span<const int64_t> shape);

struct RowBlock {
  int64_t begin = 0, end = 0;     // rows
  const float* values = nullptr;  // [end - begin, cols]
  int worker = 0;                 // in [0, pool.threads())
};

/// Floats a worker holds at a time (unless one unit of rows is longer).
inline constexpr int64_t kBlockFloats = 32 * 1024;

/// Calls fn(const RowBlock&) for all rows of `source`, each block (but the last) a multiple of `unit` rows,
/// in any order and from any worker. A block with a value beyond `limit` is not handed out.
/// Fails: as ReportBadValues, after all blocks were seen.
template <class Fn>
Result<void> ForRowBlocks(const FloatRows& source, int64_t unit, float limit, ThreadPool& pool, Fn&& fn) {
  if (source.rows == 0) return {};
  const int64_t units = std::max<int64_t>(kBlockFloats / source.cols / unit, 1);
  const int64_t rows_per_block = std::min(units * unit, source.rows);
  const int64_t blocks = (source.rows + rows_per_block - 1) / rows_per_block;
  std::vector<std::vector<float>> buffers(static_cast<size_t>(pool.threads()));
  std::vector<BadValues> bad(static_cast<size_t>(pool.threads()));
  pool.Run(blocks, [&](int64_t block, int worker) {
    const int64_t begin = block * rows_per_block;
    const int64_t end = std::min(source.rows, begin + rows_per_block);
    auto& buffer = buffers[static_cast<size_t>(worker)];
    if (buffer.empty()) buffer.resize(static_cast<size_t>(rows_per_block * source.cols));
    source.Read(begin, end, buffer.data());
    BadValues here;
    FindBadValues(buffer.data(), (end - begin) * source.cols, begin * source.cols, limit, here);
    bad[static_cast<size_t>(worker)].Merge(here);
    if (here.count == 0) fn(RowBlock{begin, end, buffer.data(), worker});
  });
  BadValues all;
  for (const BadValues& one : bad) all.Merge(one);
  return ReportBadValues(all, limit, source.cols);
}

}  // namespace cmforge
