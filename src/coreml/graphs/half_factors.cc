// Finding factors by trying them.
#include "coreml/graphs/half_factors.h"

#include <cmath>
#include <limits>

#include "base/half.h"

namespace cmforge::coreml {

HalfFactors FactorsInHalves(double value) {
  constexpr int kTried = 64;
  HalfFactors best;
  double least = std::numeric_limits<double>::infinity();
  for (int j = 0; j < kTried && least > 0; ++j) {
    const float near_one = 1 + static_cast<float>(j) / 1024;
    const float rest = RoundToF16(static_cast<float>(value / static_cast<double>(near_one)));
    const double error = std::fabs(static_cast<double>(near_one) * static_cast<double>(rest) - value);
    if (j > 0 && !(error < least)) continue;  // the first stands for NaN and what is beyond fp16
    least = error;
    best = {near_one, rest};
  }
  return best;
}

WeightRows FactorRows(std::span<const double> values, HalfFactor which) {
  std::vector<float> factors;
  for (const double value : values) factors.push_back(FactorsInHalves(value).*which);
  return ComputedRows(static_cast<int64_t>(values.size()), 1, std::move(factors));
}

}  // namespace cmforge::coreml
