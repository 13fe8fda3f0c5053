// Palettes against the optimum found by trying every cut, and against known errors of normal data.
#include "quant/palette.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "base/half.h"
#include "quant/palette_optimum.h"

namespace cmforge {
namespace {

std::vector<uint16_t> Halves(const std::vector<float>& values) {
  std::vector<uint16_t> out;
  for (const float value : values) out.push_back(F32ToF16(value));
  return out;
}

std::vector<uint16_t> Normal(uint32_t seed, size_t count) {
  std::mt19937 random(seed);
  std::normal_distribution<float> gauss(0.0f, 0.02f);
  std::vector<uint16_t> out(count);
  for (auto& value : out) value = F32ToF16(gauss(random));
  return out;
}

struct Fitted {
  std::vector<uint16_t> table;
  std::vector<uint8_t> indices;
  double error;
};

Fitted MustFit(const std::vector<uint16_t>& values, const std::vector<float>& weights, int bits) {
  PaletteFitter fitter;
  Fitted out{std::vector<uint16_t>(size_t{1} << bits), std::vector<uint8_t>(values.size()), 0};
  const auto error = fitter.Fit(values, weights, bits, out.table, out.indices);
  EXPECT_TRUE(error) << error.error().message;
  out.error = error.value_or(-1);
  return out;
}

double ErrorOf(const Fitted& fit, const std::vector<uint16_t>& values, const std::vector<float>& weights) {
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double off =
        static_cast<double>(F16ToF32(values[i])) - static_cast<double>(F16ToF32(fit.table[fit.indices[i]]));
    sum += (weights.empty() ? 1.0 : static_cast<double>(weights[i % weights.size()])) * off * off;
  }
  return sum;
}

TEST(PaletteFitter, ReachesTheOptimumOfRandomGroups) {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    const size_t columns = 1 + random() % 24, rows = 1 + random() % 8;
    const int bits = std::vector<int>{1, 2, 3, 4, 6, 8}[random() % 6];
    std::vector<uint16_t> values = Normal(random(), rows * columns);
    if (round % 3 == 1) {  // few distinct values
      for (auto& value : values)
        value = F32ToF16(static_cast<float>(static_cast<int>(random() % 9) - 4) / 64);
    }
    if (round % 3 == 2) {  // outliers of both signs
      values[0] = F32ToF16(37.5f);
      values.back() = F32ToF16(-60000.0f);
    }
    std::vector<float> weights;
    if (round % 2 != 0) {
      for (size_t j = 0; j < columns; ++j)
        weights.push_back(0.1f + static_cast<float>(random() % 1000) / 100);
    }
    const Fitted fit = MustFit(values, weights, bits);
    const double optimum = PaletteOptimum(values, weights, size_t{1} << bits);
    double energy = 0;  // rounding centroids to f16 moves each by up to 2^-11 of itself
    for (size_t i = 0; i < values.size(); ++i) {
      const double x = static_cast<double>(F16ToF32(values[i]));
      energy += (weights.empty() ? 1.0 : static_cast<double>(weights[i % columns])) * x * x;
    }
    EXPECT_LE(fit.error, optimum * 1.001 + energy * 0x1p-22) << "round " << round;
    EXPECT_NEAR(fit.error, ErrorOf(fit, values, weights), 1e-9 * energy) << "round " << round;
  }
}

TEST(PaletteFitter, HasTheKnownErrorOnNormalData) {
  const std::vector<uint16_t> values = Normal(7, 8192);
  double energy = 0;
  for (const uint16_t v : values) energy += std::pow(static_cast<double>(F16ToF32(v)), 2);
  const std::map<int, double> known = {{2, 0.340}, {3, 0.183}, {4, 0.0947}, {6, 0.0234}, {8, 0.0053}};
  for (const auto& [bits, relative] : known) {
    EXPECT_NEAR(std::sqrt(MustFit(values, {}, bits).error / energy), relative, 0.03 * relative)
        << bits << " bits";
  }
}

TEST(PaletteFitter, KeepsFewValuesExactlyAndLeavesTheRestOfTheTableZero) {
  const std::vector<uint16_t> values = Halves({0.5f, -0.0f, 0.0f, -2.0f, 0.5f});
  const Fitted fit = MustFit(values, {}, 3);
  EXPECT_EQ(fit.error, 0);
  EXPECT_EQ(fit.table, Halves({-2.0f, 0.0f, 0.5f, 0, 0, 0, 0, 0}));
  EXPECT_THAT(fit.indices, testing::ElementsAre(2, 1, 1, 0, 2));
}

TEST(PaletteFitter, AscendsAndGivesEachValueItsNearestEntry) {
  const std::vector<uint16_t> values = Normal(11, 4000);
  const Fitted fit = MustFit(values, {}, 4);
  const auto level = [&](size_t k) { return F16ToF32(fit.table[k]); };
  for (size_t k = 1; k < fit.table.size(); ++k) EXPECT_LT(level(k - 1), level(k));
  for (size_t i = 0; i < values.size(); ++i) {
    const float x = F16ToF32(values[i]);
    for (size_t k = 0; k < fit.table.size(); ++k) {
      ASSERT_LE(std::abs(x - level(fit.indices[i])), std::abs(x - level(k)));
    }
  }
}

TEST(PaletteFitter, WeightsMoveTheTableTowardsTheColumnsThatCount) {
  // Two columns, one entry each side: the heavy column keeps its values, the light one pays.
  std::vector<uint16_t> values;
  std::mt19937 random(5);
  std::normal_distribution<float> gauss(0.0f, 1.0f);
  for (int row = 0; row < 500; ++row) {
    values.push_back(F32ToF16(gauss(random)));
    values.push_back(F32ToF16(gauss(random) * 3));
  }
  const std::vector<float> weights = {100.0f, 1.0f};
  const Fitted plain = MustFit(values, {}, 3), weighted = MustFit(values, weights, 3);
  EXPECT_LT(ErrorOf(weighted, values, weights), 0.8 * ErrorOf(plain, values, weights));
  // Columns of weight 0 are kept at a thousandth of the mean, and equal weights change nothing.
  EXPECT_EQ(MustFit(values, {2.0f, 0.0f}, 3).table, MustFit(values, {2.0f, 0.001f}, 3).table);
  EXPECT_EQ(MustFit(values, {4.0f, 4.0f}, 3).table, plain.table);
  EXPECT_EQ(MustFit(values, {0.0f, 0.0f}, 3).table, plain.table);
}

TEST(PaletteFitter, ForgetsTheGroupBefore) {
  PaletteFitter fitter;
  std::vector<uint16_t> table(64), fresh(64);
  std::vector<uint8_t> indices(300), again(300);
  ASSERT_TRUE(fitter.Fit(Normal(1, 5000), {}, 6, table, {}));
  EXPECT_FALSE(fitter.Fit(Halves({1, 2, std::numeric_limits<float>::infinity()}), {}, 6, table, {}));
  const auto values = Normal(2, 300);
  ASSERT_TRUE(fitter.Fit(values, {}, 6, table, indices));
  ASSERT_TRUE(PaletteFitter().Fit(values, {}, 6, fresh, again));
  EXPECT_EQ(table, fresh);
  EXPECT_EQ(indices, again);
}

TEST(PaletteFitter, RefusesWhatItCannotUse) {
  PaletteFitter fitter;
  std::vector<uint16_t> table(32);
  const auto values = Normal(1, 32);
  const auto fails = [&](int bits, const std::vector<float>& weights) {
    table.resize(size_t{1} << bits);
    const auto result = fitter.Fit(values, weights, bits, table, {});
    return result ? std::string() : result.error().message;
  };
  EXPECT_THAT(fails(5, {}), testing::HasSubstr("5 bits"));
  EXPECT_THAT(fails(4, {-1.0f}), testing::HasSubstr("weight -1 of column 0"));
  EXPECT_THAT(fails(4, {1, std::numeric_limits<float>::quiet_NaN()}), testing::HasSubstr("of column 1"));
  EXPECT_THAT(fails(4, std::vector<float>(5, 1.0f)), testing::HasSubstr("do not fit"));
  const auto nan = fitter.Fit(Halves({1, std::nanf("")}), {}, 1, std::span(table).first(2), {});
  ASSERT_FALSE(nan);
  EXPECT_EQ(nan.error().kind, ErrorKind::kCorrupt);
}

}  // namespace
}  // namespace cmforge
