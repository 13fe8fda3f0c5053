// How vbit spends its bits, alone and over a family of experts.
#include "quant/vbit_allocation.h"

#include <cmath>
#include <map>

#include "quant/cmf_tensors.h"

namespace cmforge {
namespace {

TEST(NearestWidth, TakesTheLowerOfTwoEquallyNear) {
  const std::vector<std::pair<double, int>> cases = {{-50, 3},  {3, 3},     {3.5, 3}, {3.51, 4},
                                                     {4.25, 4}, {4.5, 4},   {5.5, 5}, {5.501, 6},
                                                     {7, 6},    {7.001, 8}, {99, 8}};
  for (const auto& [raw, width] : cases) EXPECT_EQ(NearestWidth(raw), width) << raw;
}

TEST(RowWidths, LoudRowsGetMoreBits) {
  const std::vector<double> amplitudes = {-6, -5, -4, -3, -2};  // mean -4
  EXPECT_EQ(RowWidths(amplitudes, 4.25, 0), (std::vector<uint8_t>{3, 3, 4, 5, 6}));
  EXPECT_EQ(RowWidths(amplitudes, 4.25, 1), (std::vector<uint8_t>{3, 4, 5, 6, 8}));
}

double MeanWidth(const std::vector<std::vector<double>>& experts, const std::vector<double>& bias,
                 double mean_bits) {
  double total = 0, rows = 0;
  for (size_t e = 0; e < experts.size(); ++e) {
    for (const uint8_t width : RowWidths(experts[e], mean_bits, bias[e])) total += width;
    rows += static_cast<double>(experts[e].size());
  }
  return total / rows;
}

TEST(FamilyBiasBits, MeetsTheBudgetOfTheWholeFamily) {
  std::mt19937 random(5);
  std::normal_distribution<double> gauss(0, 0.7);
  std::vector<std::vector<double>> experts(12);
  for (size_t e = 0; e < experts.size(); ++e) {
    for (int row = 0; row < 200; ++row) experts[e].push_back(gauss(random) + 0.3 * static_cast<double>(e));
  }
  for (const double mean_bits : {3.5, 4.25, 5.0, 6.5}) {
    std::vector<FamilyMember> family;
    for (const auto& amplitudes : experts) family.push_back({amplitudes, 0});
    const std::vector<double> bias = FamilyBiasBits(family, mean_bits, false);
    EXPECT_NEAR(MeanWidth(experts, bias, mean_bits), mean_bits, 0.01) << mean_bits;
    for (size_t e = 1; e < bias.size(); ++e) EXPECT_GE(bias[e], bias[e - 1]);  // louder experts get more
  }
}

TEST(FamilyBiasBits, GivesOftenChosenExpertsMoreWhenWeighed) {
  const std::vector<double> amplitudes = {-5, -4.5, -4, -3.5, -3};
  const std::vector<FamilyMember> family = {{amplitudes, 0}, {amplitudes, 7}, {amplitudes, 63}};
  const std::vector<double> flat = FamilyBiasBits(family, 4.25, false);
  EXPECT_EQ(flat[0], flat[1]);
  EXPECT_EQ(flat[1], flat[2]);
  const std::vector<double> weighed = FamilyBiasBits(family, 4.25, true);
  // log2(count + 1) is 0, 3, 6; the shifts from their mean, -3, 0 and 3, are held to 2.5.
  EXPECT_NEAR(weighed[1] - weighed[0], 2.5, 1e-12);
  EXPECT_NEAR(weighed[2] - weighed[1], 2.5, 1e-12);
}

TEST(FamilyBiasBits, AnEmptyFamilyHasNoShifts) {
  EXPECT_TRUE(FamilyBiasBits({}, 4.25, true).empty());
  EXPECT_EQ(FamilyBiasBits(std::vector<FamilyMember>(2), 4.25, true), (std::vector<double>{0, 0}));
}

TEST(FamilyBiasBits, ReproducesTheWidthsOfARecordedFile) {
  // The file's experts were given these router counts. Amplitudes are taken from the decoded rows, whose
  // largest values differ from the originals by the rounding of their scales, so a row at a boundary may go
  // either way.
  const double counts[2][6] = {{90, 3, 40, 0, 25, 12}, {5, 60, 1, 77, 9, 30}};
  std::map<std::string, TensorView> tensors;
  for (NamedTensor& tensor :
       ReadCmfTensors(CMFORGE_TEST_DATA "/quant/cmf-files/py-qwen35moe-vbit-bfield.cmf")) {
    tensors[tensor.name] = std::move(tensor.view);
  }
  ThreadPool pool(1);
  int rows = 0, equal = 0;
  for (int layer = 0; layer < 2; ++layer) {
    for (const char* projection : {"gate_proj", "up_proj", "down_proj"}) {
      std::vector<std::vector<double>> amplitudes;
      std::vector<FamilyMember> family;
      std::vector<const TensorView*> views;
      for (int expert = 0; expert < 6; ++expert) {
        views.push_back(
            &tensors.at(fmt::format("model.layers.{}.mlp.experts.{}.{}.weight", layer, expert, projection)));
        const auto source = AsFloatRows(*views.back());
        ASSERT_TRUE(source);
        amplitudes.push_back(*RowAmplitudes(*source, pool));
      }
      for (size_t e = 0; e < amplitudes.size(); ++e) family.push_back({amplitudes[e], counts[layer][e]});
      const std::vector<double> bias = FamilyBiasBits(family, 4.25, true);
      for (size_t e = 0; e < amplitudes.size(); ++e) {
        const std::vector<uint8_t> widths = RowWidths(amplitudes[e], 4.25, bias[e]);
        for (size_t row = 0; row < widths.size(); ++row, ++rows) {
          equal += widths[row] == std::to_integer<uint8_t>(views[e]->bytes[row]) ? 1 : 0;
        }
      }
    }
  }
  EXPECT_EQ(rows, 2 * 6 * 128);
  EXPECT_GE(equal, rows * 99 / 100);
}

}  // namespace
}  // namespace cmforge
