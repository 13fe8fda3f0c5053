// Encoding choice and order.
#include "convert/quant_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace cmforge {
namespace {

class FakeSource : public TensorSource {
 public:
  explicit FakeSource(std::vector<TensorInfo> tensors) : tensors_(std::move(tensors)) {}
  std::span<const TensorInfo> tensors() const override { return tensors_; }
  const TensorInfo* Find(std::string_view name) const override {
    const auto it =
        std::find_if(tensors_.begin(), tensors_.end(), [&](const TensorInfo& t) { return t.name == name; });
    return it == tensors_.end() ? nullptr : &*it;
  }
  Result<TensorView> Read(std::string_view) const override {
    return Fail(ErrorKind::kUnsupported, "no bytes");
  }
  std::string_view path() const override { return "fake"; }

 private:
  std::vector<TensorInfo> tensors_;
};

FakeSource Model() {
  return FakeSource({{"lm_head.weight", DType::kBF16, {100, 64}, 0},
                     {"model.layers.10.mlp.down_proj.weight", DType::kBF16, {64, 44}, 0},
                     {"model.layers.2.input_layernorm.weight", DType::kBF16, {64}, 0},
                     {"model.layers.2.mlp.experts.10.gate_proj.weight", DType::kBF16, {32, 64}, 0},
                     {"model.layers.2.mlp.experts.10.up_proj.weight", DType::kBF16, {32, 64}, 0},
                     {"model.layers.2.mlp.experts.9.gate_proj.weight", DType::kBF16, {32, 64}, 0},
                     {"model.layers.2.mlp.experts.9.up_proj.weight", DType::kBF16, {32, 64}, 0},
                     {"model.layers.2.mlp.gate.weight", DType::kBF16, {8, 64}, 0},
                     {"model.layers.2.linear_attn.conv1d.weight", DType::kBF16, {64, 1, 4}, 0},
                     {"model.layers.2.self_attn.q_proj.weight", DType::kBF16, {4, 4}, 0},
                     {"model.embed_tokens.weight", DType::kBF16, {100, 64}, 0}});
}

std::string Planned(const QuantPlan& plan, std::string_view name) {
  for (const auto& t : plan.tensors) {
    if (t.name == name) return std::string(DTypeName(t.dtype));
  }
  return "missing";
}

TEST(PlanQuantization, KeepsPreciseWhatMustBePrecise) {
  const auto plan = PlanQuantization(Model(), ParseQuantPreset("q4t").value(), {});
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(Planned(*plan, "model.embed_tokens.weight"), "q4_tiled");
  EXPECT_EQ(Planned(*plan, "model.layers.2.input_layernorm.weight"), "f16");
  EXPECT_EQ(Planned(*plan, "model.layers.2.mlp.gate.weight"), "f16");
  EXPECT_EQ(Planned(*plan, "model.layers.2.linear_attn.conv1d.weight"), "f16");
  EXPECT_EQ(Planned(*plan, "model.layers.2.self_attn.q_proj.weight"), "f16") << "fewer than 32 elements";
  EXPECT_EQ(Planned(*plan, "model.layers.10.mlp.down_proj.weight"), "q8_2f") << "44 columns";
  for (const auto& t : plan->tensors)
    EXPECT_EQ(!t.fallback.empty(), t.name == "model.layers.10.mlp.down_proj.weight") << t.fallback;
}

TEST(PlanQuantization, F32KeepsEverything) {
  const auto plan = PlanQuantization(Model(), ParseQuantPreset("f32").value(), {});
  ASSERT_TRUE(plan);
  for (const auto& t : plan->tensors) EXPECT_EQ(t.dtype, DType::kF32);
}

TEST(PlanQuantization, WritesExpertsRoleByRole) {
  const auto plan = PlanQuantization(Model(), ParseQuantPreset("Q8_ROW").value(), {});
  std::vector<std::string> names;
  for (const auto& t : plan->tensors) names.push_back(t.name);
  EXPECT_EQ(names.front(), "model.embed_tokens.weight");
  EXPECT_EQ(names[1], "lm_head.weight");
  EXPECT_EQ(names.back(), "model.layers.10.mlp.down_proj.weight") << "layer 10 after layer 2";
  const auto at = [&](std::string_view name) {
    return std::find(names.begin(), names.end(), name) - names.begin();
  };
  const auto first = at("model.layers.2.mlp.experts.9.gate_proj.weight");
  EXPECT_EQ(at("model.layers.2.mlp.experts.10.gate_proj.weight"), first + 1);
  EXPECT_EQ(at("model.layers.2.mlp.experts.9.up_proj.weight"), first + 2);
  EXPECT_EQ(at("model.layers.2.mlp.experts.10.up_proj.weight"), first + 3);
}

TEST(PlanQuantization, LastMatchingRuleWins) {
  const std::vector<TensorQuantRule> rules = {ParseTensorQuantRule("*experts*=q4t").value(),
                                              ParseTensorQuantRule("*.9.up*=f16").value(),
                                              ParseTensorQuantRule("*mlp.gate.weight=q8").value()};
  const auto plan = PlanQuantization(Model(), ParseQuantPreset("q8").value(), rules);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(Planned(*plan, "model.layers.2.mlp.experts.9.gate_proj.weight"), "q4_tiled");
  EXPECT_EQ(Planned(*plan, "model.layers.2.mlp.experts.9.up_proj.weight"), "f16");
  EXPECT_EQ(Planned(*plan, "model.layers.2.mlp.gate.weight"), "q8_row");
}

TEST(PlanQuantization, RefusesRulesThatCannotHold) {
  const std::vector<TensorQuantRule> odd = {ParseTensorQuantRule("*down_proj*=q4t").value()};
  const auto plan = PlanQuantization(Model(), ParseQuantPreset("q8").value(), odd);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().kind, ErrorKind::kUsage);
  EXPECT_NE(plan.error().message.find("model.layers.10.mlp.down_proj.weight"), std::string::npos);
  const std::vector<TensorQuantRule> none = {ParseTensorQuantRule("nothing*=q8").value()};
  EXPECT_FALSE(PlanQuantization(Model(), ParseQuantPreset("q8").value(), none));
  // Only vectors, convolutions, tiny matrices: nothing could take it. Among matrices they stay what they are.
  for (const char* preset : {"q4t", "q4", "q8", "q2tp", "vbit", "q1"}) {
    for (const char* glob : {"model.layers.2.input_layernorm.weight", "*layernorm*", "*conv1d*"}) {
      const std::vector<TensorQuantRule> rules = {
          ParseTensorQuantRule(fmt::format("{}={}", glob, preset)).value()};
      const auto refused = PlanQuantization(Model(), ParseQuantPreset("q8").value(), rules);
      ASSERT_FALSE(refused) << glob << preset;
      EXPECT_EQ(refused.error().kind, ErrorKind::kUsage);
      EXPECT_NE(refused.error().message.find("is not 2-D"), std::string::npos) << refused.error().message;
    }
  }
  for (const char* preset : {"f16", "bf16", "f32", "keep"}) {
    const std::vector<TensorQuantRule> rules = {
        ParseTensorQuantRule(fmt::format("*layernorm*={}", preset)).value()};
    EXPECT_TRUE(PlanQuantization(Model(), ParseQuantPreset("q8").value(), rules)) << preset;
  }
  const std::vector<TensorQuantRule> tiny = {ParseTensorQuantRule("*q_proj*=q8").value()};
  EXPECT_EQ(Planned(PlanQuantization(Model(), ParseQuantPreset("q4t").value(), tiny).value(),
                    "model.layers.2.self_attn.q_proj.weight"),
            "q8_row");
  const std::vector<TensorQuantRule> layer = {ParseTensorQuantRule("model.layers.2.*=q8").value()};
  const auto mixed = PlanQuantization(Model(), ParseQuantPreset("q4t").value(), layer);
  ASSERT_TRUE(mixed) << mixed.error().message;
  EXPECT_EQ(Planned(*mixed, "model.layers.2.input_layernorm.weight"), "f16");
  EXPECT_EQ(Planned(*mixed, "model.layers.2.mlp.gate.weight"), "q8_row");
  EXPECT_FALSE(ParseTensorQuantRule("q8"));
  EXPECT_FALSE(ParseQuantPreset("q5"));
}

TEST(GlobMatches, StarsAndQuestionMarks) {
  EXPECT_TRUE(GlobMatches("*", ""));
  EXPECT_TRUE(GlobMatches("a*c", "abbc"));
  EXPECT_TRUE(GlobMatches("*.layers.?.mlp.*", "model.layers.3.mlp.up"));
  EXPECT_FALSE(GlobMatches("*.layers.?.mlp.*", "model.layers.13.mlp.up"));
  EXPECT_FALSE(GlobMatches("a", "ab"));
  EXPECT_FALSE(GlobMatches(std::string(50, '*') + "b", std::string(5000, 'a')));
}

}  // namespace
}  // namespace cmforge
