// Rope settings: find them, then read one set.
#include "checkpoint/hf_rope.h"

#include <cmath>

#include "checkpoint/messages.h"

namespace cmforge {
namespace {

const Json* Member(const Json* object, std::string_view key) {
  if (object == nullptr || !object->is_object()) return nullptr;
  const auto found = object->find(key);
  return found == object->end() || found->is_null() ? nullptr : &*found;
}

Result<RopeKind> KindOf(std::string_view word, const ConfigFields& set) {
  // "mrope": three position axes, which are one and the same for text.
  if (word == "default" || word == "mrope") return RopeKind::kDefault;
  if (word == "linear") return RopeKind::kLinear;
  if (word == "dynamic") return RopeKind::kDynamic;
  if (word == "llama3") return RopeKind::kLlama3;
  if (word == "yarn") return RopeKind::kYarn;
  if (word == "longrope" || word == "su") return RopeKind::kLongRope;
  if (word == "proportional") return RopeKind::kProportional;
  return set.Unsupported("rope_type", fmt::format("'{}' is not a kind of rope this build runs", Shown(word)));
}

Result<std::vector<double>> Factors(const ConfigFields& set, std::string_view key, int64_t pairs) {
  const Json* list = set.Find(key);
  if (list == nullptr) return set.Missing(key);
  if (!list->is_array() || static_cast<int64_t>(list->size()) != pairs) {
    return set.Bad(key, fmt::format("not a list of {} factors, one for each rotated pair", pairs));
  }
  std::vector<double> factors;
  for (const Json& value : *list) {
    CMF_TRY(const double factor, set.AsNumber(key, value));
    if (!(factor > 0)) return set.Bad(key, "holds a factor that is not above 0");
    factors.push_back(factor);
  }
  return factors;
}

Result<int64_t> RotatedDims(const ConfigFields& set, double partial, int64_t head_dim) {
  if (!(partial > 0 && partial <= 1)) {
    return set.Bad("partial_rotary_factor", fmt::format("{} is not in (0, 1]", partial));
  }
  return static_cast<int64_t>(static_cast<double>(head_dim) * partial);
}

Result<void> ReadLlama3(const ConfigFields& set, RopeConfig& rope) {
  if (rope.original_max_position_embeddings <= 0) return set.Missing("original_max_position_embeddings");
  CMF_TRY(rope.low_freq_factor, set.PositiveOr("low_freq_factor", rope.low_freq_factor));
  CMF_TRY(rope.high_freq_factor, set.PositiveOr("high_freq_factor", rope.high_freq_factor));
  if (rope.high_freq_factor <= rope.low_freq_factor) {
    return set.Bad("high_freq_factor", fmt::format("{} is not above low_freq_factor {}",
                                                   rope.high_freq_factor, rope.low_freq_factor));
  }
  return {};
}

Result<void> ReadYarn(const ConfigFields& set, RopeConfig& rope) {
  CMF_TRY(rope.beta_fast, set.PositiveOr("beta_fast", rope.beta_fast));
  CMF_TRY(rope.beta_slow, set.PositiveOr("beta_slow", rope.beta_slow));
  CMF_TRY(rope.mscale, set.Number("mscale"));
  CMF_TRY(rope.mscale_all_dim, set.Number("mscale_all_dim"));
  CMF_TRY(rope.truncate, set.BoolOr("truncate", true));
  return {};
}

Result<void> ReadLongRope(const ConfigFields& set, int64_t pairs, int64_t max_positions, RopeConfig& rope) {
  CMF_TRY(rope.long_factor, Factors(set, "long_factor", pairs));
  CMF_TRY(rope.short_factor, Factors(set, "short_factor", pairs));
  if (rope.attention_factor) return {};
  const int64_t original = rope.original_max_position_embeddings;
  const auto base = static_cast<double>(original > 0 ? original : max_positions);
  if (base < 2) return set.Bad("original_max_position_embeddings", "below 2");
  rope.attention_factor = rope.factor <= 1 ? 1.0 : std::sqrt(1 + std::log(rope.factor) / std::log(base));
  return {};
}

/// One set of keys. `outer` is the config around it, for what older files keep there.
Result<RopeConfig> ReadSet(const ConfigFields& set, const ConfigFields& outer, double theta, int64_t head_dim,
                           int64_t max_positions) {
  RopeConfig rope;
  CMF_TRY(rope.theta, set.PositiveOr("rope_theta", theta));
  CMF_TRY(const double outer_partial, outer.NumberOr("partial_rotary_factor", 1.0));
  CMF_TRY(rope.partial_rotary_factor, set.NumberOr("partial_rotary_factor", outer_partial));
  CMF_TRY(const int64_t rotated, RotatedDims(set, rope.partial_rotary_factor, head_dim));

  CMF_TRY(auto word, set.Text("rope_type"));
  if (!word) {
    CMF_TRY(word, set.Text("type"));
  }
  CMF_TRY(rope.kind, KindOf(word.value_or("default"), set));
  if (rope.kind == RopeKind::kDefault) return rope;

  CMF_TRY(const int64_t outer_original, outer.IntOr("original_max_position_embeddings", 0));
  CMF_TRY(rope.original_max_position_embeddings,
          set.IntOr("original_max_position_embeddings", outer_original));
  CMF_TRY(rope.attention_factor, set.Number("attention_factor"));
  CMF_TRY(const auto factor, set.Number("factor"));
  const int64_t original = rope.original_max_position_embeddings;
  const bool is_derivable = rope.kind == RopeKind::kYarn || rope.kind == RopeKind::kLongRope;
  if (is_derivable && original > 0 && (!factor || rope.kind == RopeKind::kLongRope)) {
    rope.factor = static_cast<double>(max_positions) / static_cast<double>(original);
  } else if (factor) {
    if (!(*factor > 0)) return set.Bad("factor", fmt::format("{} is not above 0", *factor));
    rope.factor = *factor;
  } else if (rope.kind != RopeKind::kProportional) {
    return set.Missing("factor");
  }
  if (rope.kind == RopeKind::kLlama3) CMF_CHECK(ReadLlama3(set, rope));
  if (rope.kind == RopeKind::kYarn) CMF_CHECK(ReadYarn(set, rope));
  if (rope.kind == RopeKind::kLongRope) CMF_CHECK(ReadLongRope(set, rotated / 2, max_positions, rope));
  return rope;
}

}  // namespace

Result<RopePair> ReadRope(const ConfigFields& config, int64_t head_dim, int64_t max_position_embeddings) {
  RopePair pair;
  const Json* parameters = config.Find("rope_parameters");
  const Json* scaling = config.Find("rope_scaling");
  for (const auto& [key, value] :
       {std::pair{"rope_parameters", parameters}, std::pair{"rope_scaling", scaling}}) {
    if (value != nullptr && !value->is_object()) return config.Bad(key, "not an object");
  }
  const Json* full = Member(parameters, "full_attention");
  const Json* sliding = Member(parameters, "sliding_attention");
  const bool is_nested = full != nullptr || sliding != nullptr;
  if (is_nested && full == nullptr)
    return config.Bad("rope_parameters", "sliding_attention without full_attention");
  const Json empty = Json::object();
  // rope_scaling answers where rope_parameters is silent.
  const Json* const set = is_nested ? full : parameters != nullptr ? parameters : scaling;
  const Json& chosen = set != nullptr ? *set : empty;
  const std::string where = is_nested    ? "rope_parameters: full_attention"
                            : parameters ? "rope_parameters"
                                         : "rope_scaling";
  const ConfigFields fields(fmt::format("{}: {}", config.what(), where), chosen,
                            is_nested ? nullptr : scaling);

  pair.has_theta = Member(&chosen, "rope_theta") != nullptr || config.Find("rope_theta") != nullptr;
  CMF_TRY(const double theta, config.PositiveOr("rope_theta", 10000.0));
  CMF_TRY(pair.global, ReadSet(fields, config, theta, head_dim, max_position_embeddings));

  CMF_TRY(const double local_theta, config.PositiveOr("rope_local_base_freq", theta));
  if (sliding != nullptr) {
    const ConfigFields local(config.what() + ": rope_parameters: sliding_attention", *sliding);
    CMF_TRY(pair.local, ReadSet(local, config, local_theta, head_dim, max_position_embeddings));
  } else if (is_nested || config.Find("rope_local_base_freq") != nullptr) {
    // Older files: the local rope knows its base alone, no scaling.
    RopeConfig local;
    local.theta = local_theta;
    local.partial_rotary_factor = pair.global.partial_rotary_factor;
    pair.local = local;
  }
  return pair;
}

}  // namespace cmforge
