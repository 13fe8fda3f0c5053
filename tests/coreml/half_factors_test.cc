// Numbers that fp16 does not hold, as products of two that it does.
#include "coreml/graphs/half_factors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/half.h"

namespace cmforge::coreml {
namespace {

double Product(const HalfFactors& f) { return static_cast<double>(f.near_one) * static_cast<double>(f.rest); }

TEST(HalfFactors, AreNearerThanFp16Alone) {
  double worst = 0, worst_alone = 0;
  for (int i = 1; i < 100000; ++i) {
    for (const double value : {i * 3e-5, i * -3e-5}) {
      const HalfFactors f = FactorsInHalves(value);
      ASSERT_EQ(RoundToF16(f.near_one), f.near_one);
      ASSERT_EQ(RoundToF16(f.rest), f.rest);
      ASSERT_GE(f.near_one, 1);
      ASSERT_LT(f.near_one, 1.0626f);
      if (std::fabs(value) < 0.01) continue;
      worst = std::max(worst, std::fabs(Product(f) / value - 1));
      worst_alone = std::max(
          worst_alone, std::fabs(static_cast<double>(RoundToF16(static_cast<float>(value))) / value - 1));
    }
  }
  EXPECT_GT(worst_alone, 4e-4);
  EXPECT_LT(worst, 4e-5);
}

TEST(HalfFactors, LeaveWhatFp16Holds) {
  for (int bits = 0; bits < 0x7C00; ++bits) {
    const float value = F16ToF32(static_cast<uint16_t>(bits));
    const HalfFactors f = FactorsInHalves(static_cast<double>(value));
    ASSERT_EQ(f.near_one, 1);
    ASSERT_EQ(f.rest, value);
  }
}

TEST(HalfFactors, PassOnWhatHasNoPlaceInFp16) {
  EXPECT_TRUE(std::isnan(FactorsInHalves(std::numeric_limits<double>::quiet_NaN()).rest));
  EXPECT_TRUE(std::isinf(FactorsInHalves(1e30).rest));
}

TEST(HalfFactorsOfPair, SharesOneFactor) {
  double squares = 0, squares_alone = 0;
  for (int i = 0; i < 10000; ++i) {
    const double numbers[] = {std::cos(i * 0.37), std::sin(i * 0.37)};
    const HalfFactorsOfPair pair = PairInHalves(numbers[0], numbers[1]);
    const float halves[] = {pair.first, pair.second};
    for (int k = 0; k < 2; ++k) {
      ASSERT_EQ(RoundToF16(halves[k]), halves[k]);
      const double alone = static_cast<double>(RoundToF16(static_cast<float>(numbers[k])));
      squares +=
          std::pow(static_cast<double>(pair.near_one) * static_cast<double>(halves[k]) - numbers[k], 2);
      squares_alone += std::pow(alone - numbers[k], 2);
    }
  }
  EXPECT_LT(squares, squares_alone / 30);
}

TEST(FactorRows, HoldOneFactorARow) {
  const double values[] = {1.2345678, -0.7654321};
  const WeightRows near = FactorRows(values, &HalfFactors::near_one),
                   rest = FactorRows(values, &HalfFactors::rest);
  ASSERT_EQ(near.rows, 2);
  ASSERT_EQ(rest.cols, 1);
  float a[2], b[2];
  near.read(0, 2, a);
  rest.read(0, 2, b);
  for (int i = 0; i < 2; ++i)
    EXPECT_NEAR(static_cast<double>(a[i]) * static_cast<double>(b[i]), values[i], 5e-5);
}

}  // namespace
}  // namespace cmforge::coreml
