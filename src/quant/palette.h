// Palettes: a group of weights shares a table of 2^bits f16 values, and each weight is an index into it (Core ML's
// constexpr_lut_to_dense with a vector of one). The table is the optimal one-dimensional weighted k-means, found by
// dynamic programming over the distinct values of the group.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace cmforge {

/// Widths that indices may have: 1, 2, 3, 4, 6 and 8 bits.
[[nodiscard]] bool IsPaletteWidth(int bits);

/// Fits palettes one group after the other, keeping its working memory between them. One thread at a time.
class PaletteFitter {
 public:
  /// Fits the palette of one group and says the weighted squared error that remains: sum f (w - table[index])^2.
  ///
  /// `values`   f16 bit patterns, [rows, columns] row-major.
  /// `weights`  how much an error in each column counts, [columns] >= 0, or empty: all count alike. Weights below
  ///            a thousandth of their mean are raised to it, so that no column is lost altogether.
  /// `table`    [2^bits] f16 bit patterns, ascending; entries beyond the number of distinct values are 0.
  /// `indices`  as many as `values`, or empty when only the table and the error are wanted. The nearest entry,
  ///            of two equally near the lower one.
  /// The partition is optimal for the values given; centroids are then rounded to f16 and each value goes to the
  /// nearest rounded one. The same input gives the same bits everywhere.
  /// Fails: kUsage for a width or lengths that do not fit together, or weights that are negative or not finite;
  /// kCorrupt for NaN or Inf among the values.
  Result<double> Fit(std::span<const uint16_t> values, std::span<const float> weights, int bits,
                     std::span<uint16_t> table, std::span<uint8_t> indices);

 private:
  Result<void> Collect(std::span<const uint16_t> values, std::span<const float> weights);
  void Partition(int64_t clusters);
  void SolveRow(int64_t first, int64_t last, int64_t low, int64_t high, uint16_t* choice);

  // The group's distinct values, ascending, and what lies on each.
  std::vector<double> mass_of_key_ = std::vector<double>(65536);  // by sortable key; all 0 between calls
  std::vector<uint16_t> keys_;
  std::vector<double> values_, masses_;
  // Prefix sums over the distinct values, [n + 1]: mass, mass * x, mass * x^2, with x relative to the mean.
  std::vector<double> mass_, first_moment_, second_moment_;
  std::vector<double> previous_,
      current_;  // best cost of the first i values in one cluster less, minus second_moment_
  std::vector<uint16_t> choices_;  // [clusters, n + 1]: where the last cluster of the first i values begins
  std::vector<int64_t> borders_;   // [clusters + 1]
  std::vector<uint8_t> index_of_key_ = std::vector<uint8_t>(65536);
};

}  // namespace cmforge
