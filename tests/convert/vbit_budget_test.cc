// The budget that experts share, as conversion spends it.
#include "convert/vbit_budget.h"

#include <gtest/gtest.h>

#include "cmf/file.h"
#include "convert/tensor_encoder.h"
#include "quant/encoding.h"

namespace cmforge {
namespace {

class Budget : public testing::Test {
 protected:
  static cmf::File Open(const char* name) {
    return cmf::File::Open(std::string(CMFORGE_TEST_DATA) + "/cmf/" + name).value();
  }
  /// Widths of the rows of all experts' tensors, encoded with these settings, by name.
  std::map<std::string, std::vector<int>> Widths(const cmf::File& file, const char* quant,
                                                 EncoderSettings settings) {
    const QuantPlan plan = PlanQuantization(file, ParseQuantPreset(quant).value(), {}).value();
    const RunControl control;
    TensorEncoder encoder(file, plan, settings, pool_, control);
    std::map<std::string, std::vector<int>> widths;
    for (const PlannedTensor& tensor : plan.tensors) {
      if (tensor.name.find(".experts.") == tensor.name.npos) continue;
      const auto view = encoder.Read(tensor);
      EXPECT_TRUE(view) << view.error().message;
      if (!view) return {};
      for (int64_t row = 0; row < tensor.shape[0]; ++row)
        widths[tensor.name].push_back(std::to_integer<int>(view->bytes[static_cast<size_t>(row)]));
    }
    return widths;
  }
  static double Mean(const std::map<std::string, std::vector<int>>& widths, std::string_view begins,
                     std::string_view ends) {
    double sum = 0, count = 0;
    for (const auto& [name, rows] : widths) {
      if (!name.starts_with(begins) || !name.ends_with(ends)) continue;
      for (const int width : rows) sum += width;
      count += static_cast<double>(rows.size());
    }
    return sum / count;
  }
  ThreadPool pool_{2};
};

TEST_F(Budget, EveryFamilyMeetsItsMean) {
  const cmf::File file = Open("rs-qwen3_moe-moemask.cmf");
  for (const double bits : {3.5, 4.25, 5.5}) {
    const auto widths = Widths(file, "vbit", {.mean_bits = bits});
    ASSERT_FALSE(widths.empty());
    for (const char* projection :
         {"gate_proj.weight", "up_proj.weight"})  // down has 48 columns and falls back
      EXPECT_NEAR(Mean(widths, "model.layers.1.", projection), bits, 0.08) << projection;
  }
}

TEST_F(Budget, RouterCountsGiveTheRecordedWidths) {
  // The recorded file was made from weights that are not here; its own decoded rows differ from them by the rounding
  // of their scales, so that a row at a boundary may go either way.
  const cmf::File file = Open("py-qwen35moe-vbit-bfield.cmf");
  const RoutingCounts counts = {{0, {90, 3, 40, 0, 25, 12}}, {1, {5, 60, 1, 77, 9, 30}}};
  const auto weighed = Widths(file, "vbit_plain", {.mean_bits = 4.25, .routing = &counts});
  const auto loudness = Widths(file, "vbit_plain", {.mean_bits = 4.25});
  int rows = 0, equal = 0, equal_without = 0;
  for (const auto& [name, got] : weighed) {
    const TensorView recorded = *file.Read(name);
    for (size_t row = 0; row < got.size(); ++row, ++rows) {
      const int want = std::to_integer<int>(recorded.bytes[row]);
      equal += got[row] == want ? 1 : 0;
      equal_without += loudness.at(name)[row] == want ? 1 : 0;
    }
  }
  EXPECT_EQ(rows, 2 * 6 * 128);
  EXPECT_GE(equal, rows * 99 / 100);
  EXPECT_LT(equal_without, rows * 80 / 100) << "the counts change nothing";
}

TEST_F(Budget, RefusesCountsOfAnotherModel) {
  const cmf::File file = Open("py-qwen35moe-vbit-bfield.cmf");
  const RoutingCounts counts = {{1, {5, 60, 1}}};
  const QuantPlan plan = PlanQuantization(file, ParseQuantPreset("vbit").value(), {}).value();
  VbitBudget budget(plan, 4.25, &counts);
  EXPECT_TRUE(budget.has_families());
  int refused = 0;
  for (const PlannedTensor& tensor : plan.tensors) {
    const auto bias = budget.BiasBits(tensor, file, pool_, {});
    if (bias) {
      if (tensor.name.find(".experts.") == std::string::npos) {
        EXPECT_EQ(*bias, 0.0) << tensor.name;
      }
      continue;
    }
    EXPECT_EQ(bias.error().kind, ErrorKind::kUsage);
    EXPECT_NE(bias.error().message.find("layer 1 has counts of 3 experts"), std::string::npos)
        << bias.error().message;
    ++refused;
  }
  EXPECT_EQ(refused, 18);
}

TEST_F(Budget, DenseModelsHaveNoFamilies) {
  const cmf::File file = Open("py-tiny-f16.cmf");
  EXPECT_FALSE(VbitBudget(PlanQuantization(file, ParseQuantPreset("vbit").value(), {}).value(), 4.25, nullptr)
                   .has_families());
}

}  // namespace
}  // namespace cmforge
