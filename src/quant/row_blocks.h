// How encoders walk a tensor: blocks of rows decoded to f32 into a small buffer per worker, checked for
// values that cannot be stored, and handed out in any order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "quant/encoding.h"
#include "quant/numeric.h"
#include "quant/shapes.h"

namespace cmforge {

/// Numbers that an encoding cannot store: NaN and infinite weights, and finite weights or scales that do not
/// fit the type they would be stored in. Merges to the same answer in any order.
struct BadValues {
  int64_t non_finite = 0;
  int64_t unfit = 0;
  int64_t first = -1;  // row-major index of the first

  void AddNonFinite(int64_t index);
  void AddUnfit(int64_t index);
  void Merge(const BadValues& other);
};

/// Tallies NaN and infinite values; `first_index` is the row-major index of values[0].
void FindNonFinite(const float* values, int64_t count, int64_t first_index, BadValues& bad);

/// A scale as it will be stored (f16, not below the floor); one that does not fit is tallied at `index`.
[[nodiscard]] inline float CheckedScale(float scale, int64_t index, BadValues& bad) {
  const float stored = StoredScale(scale);
  if (stored > kF16Max) bad.AddUnfit(index);
  return stored;
}

/// Nothing when `bad` is empty; else the source is looked at again, to name the very weight. Fails: kCorrupt, since a
/// value is NaN or infinite, or numbers do not fit `storage` ("f16, which ends at 65504").
Result<void> ReportBadValues(const BadValues& bad, std::string_view storage, const FloatRows& source);

/// Fails: kCorrupt when a value is NaN or infinite.
Result<void> CheckFinite(const FloatRows& source, ThreadPool& pool);

inline constexpr std::string_view kInF16 = "f16, which ends at 65504";

struct RowBlock {
  int64_t begin = 0, end = 0;     // rows
  const float* values = nullptr;  // [end - begin, cols]
  int worker = 0;                 // in [0, pool.threads())
  BadValues* bad = nullptr;       // for numbers that turn out not to fit
};

/// Floats a worker holds at a time (unless one unit of rows is longer).
inline constexpr int64_t kBlockFloats = 32 * 1024;

/// Calls fn(const RowBlock&) for all rows of `source`, each block (but the last) a multiple of `unit` rows,
/// in any order and from any worker. A block with NaN or Inf is not handed out.
/// Fails: as ReportBadValues, after all blocks were seen.
template <class Fn>
Result<void> ForRowBlocks(const FloatRows& source, int64_t unit, std::string_view storage, ThreadPool& pool,
                          Fn&& fn) {
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
    FindNonFinite(buffer.data(), (end - begin) * source.cols, begin * source.cols, here);
    if (here.non_finite == 0) fn(RowBlock{begin, end, buffer.data(), worker, &here});
    bad[static_cast<size_t>(worker)].Merge(here);
  });
  BadValues all;
  for (const BadValues& one : bad) all.Merge(one);
  return ReportBadValues(all, storage, source);
}

}  // namespace cmforge
