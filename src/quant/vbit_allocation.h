// How vbit spends its bits: each row gets a width from {3, 4, 5, 6, 8} by water-filling over the log2 of the
// row's largest weight, so that loud rows get more; the experts of a family share one budget (spec 3.2).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "quant/encoding.h"

namespace cmforge {

/// log2 of the largest |w| of each row, with 1e-12 for rows of zeros. Fails: kCorrupt for NaN or Inf.
Result<std::vector<double>> RowAmplitudes(const FloatRows& source, ThreadPool& pool);

/// The width nearest to `raw`; between two widths the lower one.
[[nodiscard]] int NearestWidth(double raw);

/// Widths of the rows of one tensor: the nearest to mean_bits + (a_r - mean a) + bias_bits. The realised mean
/// is not forced to the budget.
[[nodiscard]] std::vector<uint8_t> RowWidths(std::span<const double> amplitudes, double mean_bits,
                                             double bias_bits);

/// One expert's tensor in a family: the same projection of all experts of one layer.
struct FamilyMember {
  std::span<const double> amplitudes;  // RowAmplitudes of the tensor
  double times_routed = 0;             // how often the router chose this expert; used when `weigh_by_routing`
};

/// `EncodeOptions::row_bias_bits` of each member, so that the mean width over all rows of the family meets
/// `mean_bits`: an expert louder than the family (or, weighed, chosen more often) gets more bits. Shifts are
/// held to 2.5 bits either way.
[[nodiscard]] std::vector<double> FamilyBiasBits(std::span<const FamilyMember> family, double mean_bits,
                                                 bool weigh_by_routing);

}  // namespace cmforge
