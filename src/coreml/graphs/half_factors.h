// A number that fp16 does not hold as a product of two that it does.
#pragma once

#include <span>

#include "coreml/graphs/weight_rows.h"

namespace cmforge::coreml {

struct HalfFactors {
  float near_one = 1;  // 1 + j / 1024 for some j < 64
  float rest = 0;
};

/// The pair whose product is nearest to `value`: rounding `rest` is wrong by another amount for every `near_one`, so
/// the best of 64 is some fifty times nearer than fp16 alone. A number that fp16 holds is (1, itself).
[[nodiscard]] HalfFactors FactorsInHalves(double value);

/// The same for two numbers that share the factor near 1.
struct HalfFactorsOfPair {
  float near_one = 1, first = 0, second = 0;
};
[[nodiscard]] HalfFactorsOfPair PairInHalves(double first, double second);

using HalfFactor = float HalfFactors::*;

/// One of the two factors of each value, as rows of one.
[[nodiscard]] WeightRows FactorRows(std::span<const double> values, HalfFactor which);

}  // namespace cmforge::coreml
