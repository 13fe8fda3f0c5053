// Finding factors by trying them.
#include "coreml/graphs/half_factors.h"

#include <limits>

#include "base/half.h"

namespace cmforge::coreml {

HalfFactorsOfPair PairInHalves(double first, double second) {
  constexpr int kTried = 64;
  HalfFactorsOfPair best;
  double least = std::numeric_limits<double>::infinity();
  for (int j = 0; j < kTried && least > 0; ++j) {
    const double near_one = 1 + j / 1024.0;
    const float a = RoundToF16(static_cast<float>(first / near_one));
    const float b = RoundToF16(static_cast<float>(second / near_one));
    const double of_a = near_one * static_cast<double>(a) - first;
    const double of_b = near_one * static_cast<double>(b) - second;
    const double error = of_a * of_a + of_b * of_b;
    if (j > 0 && !(error < least)) continue;  // the first stands for NaN and what is beyond fp16
    least = error;
    best = {static_cast<float>(near_one), a, b};
  }
  return best;
}

HalfFactors FactorsInHalves(double value) {
  const HalfFactorsOfPair pair = PairInHalves(value, 0);
  return {pair.near_one, pair.first};
}

WeightRows FactorRows(std::span<const double> values, HalfFactor which) {
  std::vector<float> factors;
  for (const double value : values) factors.push_back(FactorsInHalves(value).*which);
  return ComputedRows(static_cast<int64_t>(values.size()), 1, std::move(factors));
}

}  // namespace cmforge::coreml
