// The kinds of rotary embedding against their formulas.
#include "kernels/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <vector>

#include "gtest/gtest.h"

namespace cmforge {
namespace {

constexpr int64_t kHeadDim = 64, kMax = 4096;

RopeConfig Config(RopeKind kind) {
  RopeConfig config;
  config.kind = kind;
  config.theta = 10000;
  config.factor = 4;
  return config;
}

/// Angles of a position must be position * frequency(i), cosines and sines times `magnitude`.
template <class Frequency>
void ExpectAngles(const RopeConfig& config, int64_t position, int64_t half, Frequency frequency,
                  double magnitude = 1, int64_t context = kMax) {
  const auto rope = RopeFrequencies::Make(config, kHeadDim, kMax, context);
  ASSERT_TRUE(rope) << rope.error().message;
  ASSERT_EQ(rope->half(), half);
  std::vector<float> cosines(static_cast<size_t>(half)), sines(cosines.size());
  rope->Angles(position, cosines.data(), sines.data());
  for (int64_t i = 0; i < half; ++i) {
    const double angle = static_cast<double>(position) * frequency(static_cast<double>(i));
    EXPECT_NEAR(cosines[static_cast<size_t>(i)], std::cos(angle) * magnitude, 1e-6) << position << " " << i;
    EXPECT_NEAR(sines[static_cast<size_t>(i)], std::sin(angle) * magnitude, 1e-6) << position << " " << i;
  }
}

double Plain(double i, double dims = kHeadDim, double theta = 10000) {
  return std::pow(theta, -2 * i / dims);
}

TEST(Rope, PlainLinearPartialAndProportional) {
  for (const int64_t position : {0, 1, 77, 4000, 100000}) {
    ExpectAngles(Config(RopeKind::kDefault), position, 32, [](double i) { return Plain(i); });
    ExpectAngles(Config(RopeKind::kLinear), position, 32, [](double i) { return Plain(i) / 4; });
    RopeConfig partial = Config(RopeKind::kDefault);
    partial.partial_rotary_factor = 0.25;
    ExpectAngles(partial, position, 8, [](double i) { return Plain(i, 16); });
    RopeConfig proportional = Config(RopeKind::kProportional);
    proportional.partial_rotary_factor = 0.25;
    ExpectAngles(proportional, position, 32, [](double i) { return i < 8 ? Plain(i) / 4 : 0; });
  }
}

TEST(Rope, DynamicStretchesFromTheOriginalLengthOn) {
  RopeConfig config = Config(RopeKind::kDynamic);
  config.original_max_position_embeddings = 100;
  for (const int64_t position : {0, 50, 99})
    ExpectAngles(config, position, 32, [](double i) { return Plain(i); });
  for (const int64_t position : {100, 150, 3999}) {
    const double theta = 10000 * std::pow(4 * (static_cast<double>(position) + 1) / 100 - 3,
                                          static_cast<double>(kHeadDim) / (kHeadDim - 2));
    ExpectAngles(config, position, 32, [=](double i) { return Plain(i, kHeadDim, theta); });
  }
}

TEST(Rope, Llama3KeepsHighFrequenciesAndStretchesLowOnes) {
  RopeConfig config = Config(RopeKind::kLlama3);
  config.factor = 8;
  config.original_max_position_embeddings = 1024;
  ExpectAngles(config, 3000, 32, [](double i) {
    const double f = Plain(i), wavelength = 2 * std::numbers::pi / f;
    if (wavelength < 1024 / 4.0) return f;
    if (wavelength > 1024 / 1.0) return f / 8;
    const double smooth = (1024 / wavelength - 1) / (4.0 - 1);
    return (1 - smooth) * f / 8 + smooth * f;
  });
}

TEST(Rope, YarnRampsBetweenThemAndScalesTheAttention) {
  RopeConfig config = Config(RopeKind::kYarn);
  config.original_max_position_embeddings = 1024;
  const auto bound = [](double rotations) {
    return kHeadDim * std::log(1024 / (rotations * 2 * std::numbers::pi)) / (2 * std::log(10000.0));
  };
  for (const bool truncates : {true, false}) {
    config.truncate = truncates;
    const double low = truncates ? std::floor(bound(32)) : bound(32),
                 high = truncates ? std::ceil(bound(1)) : bound(1);
    const auto frequency = [=](double i) {
      const double ramp = std::clamp((i - low) / (high - low), 0.0, 1.0);
      return Plain(i) * (1 - ramp) + Plain(i) / 4 * ramp;
    };
    config.attention_factor.reset();
    ExpectAngles(config, 2500, 32, frequency, 0.1 * std::log(4.0) + 1);
    config.attention_factor = 1.5;
    ExpectAngles(config, 2500, 32, frequency, 1.5);
  }
  config.attention_factor.reset();
  config.mscale = 2;
  config.mscale_all_dim = 0.5;
  const auto rope = RopeFrequencies::Make(config, kHeadDim, kMax, kMax);
  float cosines[32], sines[32];
  rope->Angles(0, cosines, sines);
  EXPECT_NEAR(cosines[0], (0.2 * std::log(4.0) + 1) / (0.05 * std::log(4.0) + 1), 1e-6);
}

TEST(Rope, LongRopeChoosesItsFactorsByTheContext) {
  RopeConfig config = Config(RopeKind::kLongRope);
  config.original_max_position_embeddings = 1024;
  for (int i = 0; i < 32; ++i) {
    config.short_factor.push_back(1 + i * 0.01);
    config.long_factor.push_back(2 + i);
  }
  const double magnitude = std::sqrt(1 + std::log(4.0) / std::log(1024.0));
  ExpectAngles(
      config, 900, 32, [](double i) { return Plain(i) / (1 + i * 0.01); }, magnitude, 1024);
  ExpectAngles(
      config, 900, 32, [](double i) { return Plain(i) / (2 + i); }, magnitude, 1025);
  config.attention_factor = 1.25;
  ExpectAngles(
      config, 900, 32, [](double i) { return Plain(i) / (2 + i); }, 1.25);
}

TEST(Rope, WhatMakesNoSenseIsRefused) {
  const auto kind_of = [](const RopeConfig& config, int64_t head_dim = kHeadDim) {
    const auto rope = RopeFrequencies::Make(config, head_dim, kMax, kMax);
    return rope ? std::optional<ErrorKind>() : rope.error().kind;
  };
  RopeConfig config = Config(RopeKind::kDefault);
  EXPECT_EQ(kind_of(config, 33), ErrorKind::kUnsupported);
  config.theta = 0;
  EXPECT_EQ(kind_of(config), ErrorKind::kCorrupt);
  config = Config(RopeKind::kLinear);
  config.factor = -1;
  EXPECT_EQ(kind_of(config), ErrorKind::kCorrupt);
  config = Config(RopeKind::kLongRope);
  config.short_factor = config.long_factor = {1, 2, 3};
  EXPECT_EQ(kind_of(config), ErrorKind::kCorrupt);
  config = Config(RopeKind::kYarn);
  config.beta_fast = 0;
  EXPECT_EQ(kind_of(config), ErrorKind::kCorrupt);
  config = Config(RopeKind::kDefault);
  config.partial_rotary_factor = 1.5;
  EXPECT_EQ(kind_of(config), ErrorKind::kCorrupt);
}

}  // namespace
}  // namespace cmforge
