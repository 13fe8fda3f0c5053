// Every real number of a configuration has a range, and the message names field and value.
#include "model/config_limits.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace cmforge {
namespace {

struct Field {
  std::string name;
  std::function<void(ModelConfig&, double)> set;
  double usual;
};

std::vector<Field> Fields() {
  return {
      {"rms_norm_eps", [](ModelConfig& c, double v) { c.rms_norm_eps = v; }, 1e-5},
      {"rope_theta", [](ModelConfig& c, double v) { c.rope.theta = v; }, 1e7},
      {"rope_local_base_freq", [](ModelConfig& c, double v) { c.rope_local = RopeConfig{.theta = v}; }, 1e4},
      {"partial_rotary_factor", [](ModelConfig& c, double v) { c.rope.partial_rotary_factor = v; }, 0.25},
      {"factor", [](ModelConfig& c, double v) { c.rope.factor = v; }, 32},
      {"low_freq_factor", [](ModelConfig& c, double v) { c.rope.low_freq_factor = v; }, 1},
      {"high_freq_factor", [](ModelConfig& c, double v) { c.rope.high_freq_factor = v; }, 4},
      {"beta_fast", [](ModelConfig& c, double v) { c.rope.beta_fast = v; }, 32},
      {"beta_slow", [](ModelConfig& c, double v) { c.rope.beta_slow = v; }, 1},
      {"attention_factor", [](ModelConfig& c, double v) { c.rope.attention_factor = v; }, 1.19},
      {"mscale", [](ModelConfig& c, double v) { c.rope.mscale = v; }, 1},
      {"mscale_all_dim", [](ModelConfig& c, double v) { c.rope.mscale_all_dim = v; }, 0},
      {"long_factor",
       [](ModelConfig& c, double v) {
         c.rope.long_factor = {1, v};
       },
       64.2},
      {"short_factor", [](ModelConfig& c, double v) { c.rope.short_factor = {v}; }, 1.05},
      {"embed_multiplier", [](ModelConfig& c, double v) { c.embed_multiplier = v; }, 73.3},
      {"logit_multiplier", [](ModelConfig& c, double v) { c.logit_multiplier = v; }, 0.125},
      {"query_pre_attn_scalar", [](ModelConfig& c, double v) { c.query_pre_attn_scalar = v; }, 256},
      {"attn_logit_softcapping", [](ModelConfig& c, double v) { c.attn_logit_softcapping = v; }, 50},
      {"final_logit_softcapping", [](ModelConfig& c, double v) { c.final_logit_softcapping = v; }, 0},
      {"routed_scaling_factor",
       [](ModelConfig& c, double v) { c.moe = MoeConfig{.routed_scaling_factor = v}; }, 2.5},
      {"moe_router_logit_softcapping",
       [](ModelConfig& c, double v) { c.moe = MoeConfig{.router_logit_softcapping = v}; }, 0},
  };
}

TEST(ConfigLimits, TrainedModelsPass) {
  EXPECT_TRUE(CheckNumbers(ModelConfig{}));
  for (const Field& field : Fields()) {
    ModelConfig config;
    field.set(config, field.usual);
    EXPECT_TRUE(CheckNumbers(config)) << field.name;
  }
}

TEST(ConfigLimits, AbsurdNumbersAreNamed) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const Field& field : Fields()) {
    for (const double absurd : {-1.0, -1e300, 1e300, kInf, std::numeric_limits<double>::quiet_NaN()}) {
      ModelConfig config;
      field.set(config, absurd);
      const auto checked = CheckNumbers(config);
      ASSERT_FALSE(checked) << field.name << " " << absurd;
      EXPECT_EQ(checked.error().kind, ErrorKind::kCorrupt);
      EXPECT_EQ(checked.error().message.find(field.name + ": "), 0u) << checked.error().message;
    }
  }
}

}  // namespace
}  // namespace cmforge
