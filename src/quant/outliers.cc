// The n-th largest score by counting: scores are f32 >= 0, whose bits are ordered like their values, so a
// histogram of the upper 16 bits and then one of the lower 15 bits name the threshold exactly.
#include "quant/outliers.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "quant/row_blocks.h"

namespace cmforge {
namespace {

constexpr uint32_t kLowBits = 15;
constexpr size_t kHighBuckets = size_t{1} << 16;
constexpr size_t kLowBuckets = size_t{1} << kLowBits;

/// Calls fn(worker, row, score) for every weight.
template <class Fn>
Result<void> ForScores(const FloatRows& source, std::span<const float> column_weights, ThreadPool& pool,
                       Fn&& fn) {
  return ForRowBlocks(source, 1, kInF16, pool, [&](const RowBlock& block) {
    const float* w = block.values;
    for (int64_t row = block.begin; row < block.end; ++row, w += source.cols) {
      for (int64_t i = 0; i < source.cols; ++i) fn(block.worker, row, OutlierScore(w[i], column_weights, i));
    }
  });
}

using Histograms = std::vector<std::vector<int64_t>>;  // per worker

/// The bucket that holds the `rank`-th largest (1 is the largest); rank becomes the rank inside that bucket.
size_t BucketOfRank(const Histograms& histograms, size_t buckets, int64_t& rank) {
  for (size_t bucket = buckets; bucket-- > 0;) {
    int64_t count = 0;
    for (const auto& histogram : histograms) count += histogram[bucket];
    if (rank <= count) return bucket;
    rank -= count;
  }
  return 0;
}

}  // namespace

Result<int64_t> OutlierCount(double fraction, double standard, int64_t count) {
  if (fraction < 0) fraction = standard;
  if (!(fraction <= 0.25)) {
    return Fail(ErrorKind::kUsage, fmt::format("outlier fraction {} is not between 0 and 0.25", fraction));
  }
  return static_cast<int64_t>(std::llround(fraction * static_cast<double>(count)));
}

Result<Outliers> FindOutliers(const FloatRows& source, std::span<const float> column_weights, int64_t wanted,
                              float least, ThreadPool& pool) {
  Outliers result;
  result.threshold = std::numeric_limits<float>::infinity();
  result.first_of_row.resize(static_cast<size_t>(source.rows) + 1);
  if (wanted == 0) return result;

  const auto workers = static_cast<size_t>(pool.threads());
  int64_t rank = std::min(wanted, source.rows * source.cols);
  Histograms counts(workers, std::vector<int64_t>(kHighBuckets));
  CMF_CHECK(ForScores(source, column_weights, pool, [&](int worker, int64_t, float score) {
    ++counts[static_cast<size_t>(worker)][std::bit_cast<uint32_t>(score) >> kLowBits];
  }));
  const auto high = static_cast<uint32_t>(BucketOfRank(counts, kHighBuckets, rank));
  counts.assign(workers, std::vector<int64_t>(kLowBuckets));
  CMF_CHECK(ForScores(source, column_weights, pool, [&](int worker, int64_t, float score) {
    const auto bits = std::bit_cast<uint32_t>(score);
    if (bits >> kLowBits == high) ++counts[static_cast<size_t>(worker)][bits & (kLowBuckets - 1)];
  }));
  const auto low = static_cast<uint32_t>(BucketOfRank(counts, kLowBuckets, rank));
  result.threshold = std::max(std::bit_cast<float>(high << kLowBits | low), least);

  CMF_CHECK(ForScores(source, column_weights, pool, [&](int, int64_t row, float score) {
    if (score >= result.threshold) ++result.first_of_row[static_cast<size_t>(row) + 1];
  }));
  for (size_t row = 1; row < result.first_of_row.size(); ++row)
    result.first_of_row[row] += result.first_of_row[row - 1];
  return result;
}

}  // namespace cmforge
