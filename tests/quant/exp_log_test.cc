// The powers and logarithms whose bits reach files.
#include "quant/exp_log.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/half.h"

namespace cmforge {
namespace {

TEST(Log2, IsTheNearestF32ForEveryScale) {
  for (uint32_t bits = 0x0400; bits < 0x7C00; ++bits) {  // normal f16
    const float x = F16ToF32(static_cast<uint16_t>(bits));
    const long double exact = std::log2(static_cast<long double>(x));
    EXPECT_EQ(static_cast<float>(Log2(x)), static_cast<float>(exact)) << x;
    EXPECT_NEAR(Log2(x), static_cast<double>(exact), 1e-15 * std::max(1.0, std::fabs(Log2(x)))) << x;
  }
}

TEST(Log2, IsExactForPowersOfTwo) {
  for (int e = -126; e <= 127; ++e) EXPECT_EQ(Log2(std::ldexp(1.0, e)), e);
}

TEST(Exp2, IsCloseToTheExactPower) {
  for (double x = -140; x < 128; x += 0.0137) {
    const auto exact = static_cast<double>(std::exp2(static_cast<long double>(x)));
    EXPECT_NEAR(Exp2(x) / exact, 1, 1e-15) << x;
  }
  for (int e = -150; e <= 1000; ++e) EXPECT_EQ(Exp2(e), std::ldexp(1.0, e));
}

TEST(LadderExp2, HasTheBitsThatFilesWereMadeWith) {
  // Recorded; all are one step above the f32 nearest to the true power.
  EXPECT_EQ(LadderExp2(0x1.fd4p-9f), 0x1.00b0bcp+0f);
  EXPECT_EQ(LadderExp2(0x1.6p-4f), 0x1.0fb66cp+0f);
  EXPECT_EQ(LadderExp2(0x1.16p+0f), 0x1.0fb66cp+1f);
  int unlike = 0;
  for (uint32_t bits = 0; bits < 0x7C00; ++bits) {
    for (const float x : {F16ToF32(static_cast<uint16_t>(bits)), -F16ToF32(static_cast<uint16_t>(bits))}) {
      if (std::fabs(x) > 40) continue;
      const auto nearest = static_cast<float>(std::exp2(static_cast<long double>(x)));
      if (LadderExp2(x) == nearest) continue;
      ++unlike;
      EXPECT_TRUE(LadderExp2(x) == std::nextafter(nearest, 0.0f) ||
                  LadderExp2(x) == std::nextafter(nearest, 1e9f))
          << x;
    }
  }
  EXPECT_EQ(unlike, 42);
}

TEST(LadderExp2, SaturatesForHostileParams) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(LadderExp2(65504.0f), infinity);
  EXPECT_EQ(LadderExp2(129.0f), infinity);
  EXPECT_EQ(LadderExp2(infinity), infinity);
  EXPECT_EQ(LadderExp2(-infinity), 0);
  EXPECT_EQ(LadderExp2(-65504.0f), 0);
  EXPECT_TRUE(std::isnan(LadderExp2(std::nanf(""))));
}

}  // namespace
}  // namespace cmforge
