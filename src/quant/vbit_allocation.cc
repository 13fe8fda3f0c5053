// Water-filling of vbit's widths.
#include "quant/vbit_allocation.h"

#include <algorithm>
#include <cmath>

#include "quant/exp_log.h"
#include "quant/numeric.h"
#include "quant/row_blocks.h"

namespace cmforge {
namespace {

double Mean(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

}  // namespace

Result<std::vector<double>> RowAmplitudes(const FloatRows& source, ThreadPool& pool) {
  std::vector<double> amplitudes(static_cast<size_t>(source.rows));
  CMF_CHECK(ForRowBlocks(source, 1, kInF16, pool, [&](const RowBlock& block) {
    for (int64_t row = block.begin; row < block.end; ++row) {
      const float loudest = AbsMax(block.values + (row - block.begin) * source.cols, source.cols);
      amplitudes[static_cast<size_t>(row)] = Log2(std::max(loudest, 1e-12f));
    }
  }));
  return amplitudes;
}

int NearestWidth(double raw) {
  int best = 3;
  for (const int width : {4, 5, 6, 8}) {
    if (std::fabs(raw - width) < std::fabs(raw - best)) best = width;
  }
  return best;
}

std::vector<uint8_t> RowWidths(std::span<const double> amplitudes, double mean_bits, double bias_bits) {
  const double mean = Mean(amplitudes);
  std::vector<uint8_t> widths;
  widths.reserve(amplitudes.size());
  for (const double a : amplitudes) {
    widths.push_back(static_cast<uint8_t>(NearestWidth(mean_bits + (a - mean) + bias_bits)));
  }
  return widths;
}

std::vector<double> FamilyBiasBits(std::span<const FamilyMember> family, double mean_bits,
                                   bool weigh_by_routing) {
  constexpr double kLargestShift = 2.5;
  std::vector<double> shifts, routing;
  double sum = 0, rows = 0;
  for (const FamilyMember& member : family) {
    shifts.push_back(Mean(member.amplitudes));
    routing.push_back(Log2(std::max(member.times_routed, 0.0) + 1));
    for (const double a : member.amplitudes) sum += a;
    rows += static_cast<double>(member.amplitudes.size());
  }
  if (rows == 0) return std::vector<double>(family.size(), 0.0);
  const double mean_routing = Mean(routing);
  for (size_t e = 0; e < shifts.size(); ++e) {
    const double shift = shifts[e] - sum / rows + (weigh_by_routing ? routing[e] - mean_routing : 0);
    shifts[e] = std::clamp(shift, -kLargestShift, kLargestShift);
  }
  const double center = Mean(shifts);
  for (double& shift : shifts) shift -= center;

  // The mean width grows with a common shift: halve until it meets the budget.
  const auto mean_width = [&](double common) {
    int64_t total = 0;
    for (size_t e = 0; e < family.size(); ++e) {
      for (const uint8_t width : RowWidths(family[e].amplitudes, mean_bits, shifts[e] + common))
        total += width;
    }
    return static_cast<double>(total) / rows;
  };
  double low = -3, high = 3;
  for (int step = 0; step < 40; ++step) {
    const double middle = (low + high) / 2;
    (mean_width(middle) < mean_bits ? low : high) = middle;
  }
  for (double& shift : shifts) shift += (low + high) / 2;
  return shifts;
}

}  // namespace cmforge
