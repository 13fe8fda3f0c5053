// The ranges, field by field.
#include "model/config_limits.h"

#include <cmath>
#include <string_view>

namespace cmforge {
namespace {

// A factor, cap or scalar beyond a million in either direction overflows or vanishes in float32 products.
constexpr double kTiny = 1e-6, kHuge = 1e6;

Result<void> Within(std::string_view field, double value, double least, double most) {
  if (value >= least && value <= most) return {};  // NaN is not
  return Fail(ErrorKind::kCorrupt,
              fmt::format("{}: {} is not between {} and {}: correct it, or take the model's files "
                          "from their publisher again",
                          field, value, least, most));
}

Result<void> Within(std::string_view field, const std::optional<double>& value, double least, double most) {
  return value ? Within(field, *value, least, most) : Result<void>();
}

Result<void> CheckRope(const RopeConfig& rope, std::string_view theta) {
  CMF_CHECK(Within(theta, rope.theta, 1, 1e15));
  CMF_CHECK(Within("partial_rotary_factor", rope.partial_rotary_factor, 0, 1));
  CMF_CHECK(Within("factor", rope.factor, kTiny, kHuge));
  CMF_CHECK(Within("low_freq_factor", rope.low_freq_factor, kTiny, kHuge));
  CMF_CHECK(Within("high_freq_factor", rope.high_freq_factor, kTiny, kHuge));
  CMF_CHECK(Within("beta_fast", rope.beta_fast, kTiny, kHuge));
  CMF_CHECK(Within("beta_slow", rope.beta_slow, kTiny, kHuge));
  CMF_CHECK(Within("attention_factor", rope.attention_factor, kTiny, kHuge));
  CMF_CHECK(Within("mscale", rope.mscale, 0, kHuge));
  CMF_CHECK(Within("mscale_all_dim", rope.mscale_all_dim, 0, kHuge));
  for (const double factor : rope.long_factor) CMF_CHECK(Within("long_factor", factor, kTiny, kHuge));
  for (const double factor : rope.short_factor) CMF_CHECK(Within("short_factor", factor, kTiny, kHuge));
  return {};
}

}  // namespace

Result<void> CheckNumbers(const ModelConfig& config) {
  CMF_CHECK(Within("rms_norm_eps", config.rms_norm_eps, 1e-30, 1));
  CMF_CHECK(CheckRope(config.rope, "rope_theta"));
  if (config.rope_local) CMF_CHECK(CheckRope(*config.rope_local, "rope_local_base_freq"));
  CMF_CHECK(Within("embed_multiplier", config.embed_multiplier, kTiny, kHuge));
  CMF_CHECK(Within("logit_multiplier", config.logit_multiplier, kTiny, kHuge));
  CMF_CHECK(Within("query_pre_attn_scalar", config.query_pre_attn_scalar, kTiny, 1e9));
  CMF_CHECK(Within("attn_logit_softcapping", config.attn_logit_softcapping, 0, kHuge));
  CMF_CHECK(Within("final_logit_softcapping", config.final_logit_softcapping, 0, kHuge));
  if (config.moe) {
    CMF_CHECK(Within("routed_scaling_factor", config.moe->routed_scaling_factor, kTiny, kHuge));
    CMF_CHECK(Within("moe_router_logit_softcapping", config.moe->router_logit_softcapping, 0, kHuge));
  }
  return {};
}

}  // namespace cmforge
