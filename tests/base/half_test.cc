// Every f16 and bf16 pattern survives f32, and rounding goes half to even everywhere.
#include "base/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace cmforge {
namespace {

TEST(F16, EveryPatternRoundTrips) {
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const auto h = static_cast<uint16_t>(bits);
    const float f = F16ToF32(h);
    if (std::isnan(f)) {
      EXPECT_EQ(F32ToF16(f) & 0x7E00, 0x7E00) << bits;
    } else {
      EXPECT_EQ(F32ToF16(f), h) << bits;
    }
  }
}

TEST(F16, MidpointsRoundToEven) {
  for (uint32_t bits = 0; bits < 0x7BFF; ++bits) {
    const float low = F16ToF32(static_cast<uint16_t>(bits));
    const float high = F16ToF32(static_cast<uint16_t>(bits + 1));
    const float middle = (low + high) / 2;  // exact: one bit more than f16 holds
    EXPECT_EQ(F32ToF16(middle), bits % 2 == 0 ? bits : bits + 1) << bits;
    EXPECT_EQ(F32ToF16(std::nextafter(middle, 1e9f)), bits + 1) << bits;
    EXPECT_EQ(F32ToF16(std::nextafter(middle, -1e9f)), bits) << bits;
  }
}

TEST(F16, OverflowsToInfinity) {
  EXPECT_EQ(F32ToF16(65504.0f), 0x7BFF);
  EXPECT_EQ(F32ToF16(65519.99f), 0x7BFF);
  EXPECT_EQ(F32ToF16(65520.0f), 0x7C00);
  EXPECT_EQ(F32ToF16(-std::numeric_limits<float>::infinity()), 0xFC00);
}

TEST(Bf16, EveryPatternRoundTrips) {
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const auto b = static_cast<uint16_t>(bits);
    const float f = Bf16ToF32(b);
    if (std::isnan(f)) continue;
    EXPECT_EQ(F32ToBf16(f), b) << bits;
  }
  EXPECT_EQ(F32ToBf16(std::bit_cast<float>(0x3F808000u)), 0x3F80);  // half to even, down
  EXPECT_EQ(F32ToBf16(std::bit_cast<float>(0x3F818000u)), 0x3F82);  // half to even, up
}

}  // namespace
}  // namespace cmforge
