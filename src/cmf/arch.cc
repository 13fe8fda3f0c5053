// The `arch` block of the header <-> ModelConfig.
#include <algorithm>
#include <array>
#include <cmath>

#include "cmf/header.h"
#include "cmf/json_fields.h"

namespace cmforge::cmf {
namespace {

constexpr int64_t kMaxLayers = 65536;
constexpr int64_t kMaxLoops = 1024;

struct LayerWord {
  LayerKind kind;
  std::string_view word;
};
constexpr LayerWord kLayerWords[] = {{LayerKind::kFullAttention, "FullAttention"},
                                     {LayerKind::kSlidingAttention, "SlidingAttention"},
                                     {LayerKind::kLinearAttention, "LinearAttention"},
                                     {LayerKind::kShortConv, "ShortConv"}};

struct RopeWord {
  RopeKind kind;
  std::string_view word;  // as in a Hugging Face config
};
constexpr RopeWord kRopeWords[] = {{RopeKind::kDefault, "default"},
                                   {RopeKind::kLinear, "linear"},
                                   {RopeKind::kDynamic, "dynamic"},
                                   {RopeKind::kLlama3, "llama3"},
                                   {RopeKind::kYarn, "yarn"},
                                   {RopeKind::kLongRope, "longrope"},
                                   {RopeKind::kProportional, "proportional"}};

// The scaling fields under Hugging Face's names; used for the `yarn` block and for our `rope_scaling` blocks.
void ReadScaling(const Json& json, std::string where, RopeConfig& rope, Result<void>& status) {
  JsonFields fields(json, std::move(where));
  std::string type;
  fields.Read("rope_type", type);
  if (!type.empty()) {
    const auto* found = std::find_if(std::begin(kRopeWords), std::end(kRopeWords),
                                     [&](const RopeWord& w) { return w.word == type; });
    if (found == std::end(kRopeWords)) {
      fields.Error("rope_type", fmt::format("'{}' is not known", type));
    } else {
      rope.kind = found->kind;
    }
  }
  fields.Read("factor", rope.factor);
  fields.Read("low_freq_factor", rope.low_freq_factor);
  fields.Read("high_freq_factor", rope.high_freq_factor);
  fields.Read("original_max_position_embeddings", rope.original_max_position_embeddings);
  fields.Read("beta_fast", rope.beta_fast);
  fields.Read("beta_slow", rope.beta_slow);
  fields.Read("attention_factor", rope.attention_factor);
  fields.Read("mscale", rope.mscale);
  fields.Read("mscale_all_dim", rope.mscale_all_dim);
  fields.Read("truncate", rope.truncate);
  fields.Read("long_factor", rope.long_factor);
  fields.Read("short_factor", rope.short_factor);
  if (status) status = fields.status();
}

Json ScalingToJson(const RopeConfig& rope) {
  const RopeConfig defaults;
  Json json = Json::object();
  for (const RopeWord& word : kRopeWords) {
    if (word.kind == rope.kind) json["rope_type"] = word.word;
  }
  if (rope.factor != defaults.factor || rope.kind == RopeKind::kYarn) json["factor"] = rope.factor;
  if (rope.kind == RopeKind::kLlama3) {
    json["low_freq_factor"] = rope.low_freq_factor;
    json["high_freq_factor"] = rope.high_freq_factor;
  }
  if (rope.original_max_position_embeddings != 0)
    json["original_max_position_embeddings"] = rope.original_max_position_embeddings;
  if (rope.kind == RopeKind::kYarn) {
    json["beta_fast"] = rope.beta_fast;
    json["beta_slow"] = rope.beta_slow;
  }
  if (rope.attention_factor) json["attention_factor"] = *rope.attention_factor;
  if (rope.mscale) json["mscale"] = *rope.mscale;
  if (rope.mscale_all_dim) json["mscale_all_dim"] = *rope.mscale_all_dim;
  if (!rope.truncate) json["truncate"] = false;
  if (!rope.long_factor.empty()) json["long_factor"] = rope.long_factor;
  if (!rope.short_factor.empty()) json["short_factor"] = rope.short_factor;
  return json;
}

// What the model's own library would use when the config does not say.
double YarnAttentionFactor(const RopeConfig& rope) {
  if (rope.attention_factor) return *rope.attention_factor;
  const auto scale = [&](double m) { return rope.factor <= 1 ? 1.0 : 0.1 * m * std::log(rope.factor) + 1.0; };
  if (rope.mscale.value_or(0) != 0 && rope.mscale_all_dim.value_or(0) != 0)
    return scale(*rope.mscale) / scale(*rope.mscale_all_dim);
  return scale(1.0);
}

// Other readers take a missing attention_factor as 1 and demand the original length: both are always spelt
// out.
RopeConfig SpeltOut(RopeConfig rope, int64_t max_positions) {
  if (rope.kind != RopeKind::kYarn) return rope;
  rope.attention_factor = YarnAttentionFactor(rope);
  if (rope.original_max_position_embeddings == 0) rope.original_max_position_embeddings = max_positions;
  return rope;
}

bool HasSlidingLayers(const ModelConfig& config) {
  return config.sliding_window_pattern.has_value() ||
         std::find(config.layer_types.begin(), config.layer_types.end(), LayerKind::kSlidingAttention) !=
             config.layer_types.end();
}

void ReadRope(JsonFields& fields, ModelConfig& config, Result<void>& status) {
  fields.Read("rope_theta", config.rope.theta);
  fields.Read("partial_rotary_factor", config.rope.partial_rotary_factor);
  if (const Json* yarn = fields.Find("yarn")) {
    config.rope.kind = RopeKind::kYarn;
    config.rope.attention_factor = 1.0;
    ReadScaling(*yarn, "header: arch: yarn", config.rope, status);
  }
  if (const Json* scaling = fields.Find("rope_scaling"))
    ReadScaling(*scaling, "header: arch: rope_scaling", config.rope, status);

  std::optional<double> local_theta, local_partial;
  fields.Read("rope_local_base_freq", local_theta);
  fields.Read("local_partial_rotary_factor", local_partial);
  const Json* local_scaling = fields.Find("rope_local_scaling");
  // The format's `yarn` profile is for global layers only; our rope_scaling is for all that have no rope of
  // their own.
  const bool yarn_spares_local = config.rope.kind == RopeKind::kYarn && HasSlidingLayers(config);
  if (!local_theta && !local_partial && local_scaling == nullptr && !yarn_spares_local) return;
  RopeConfig local;
  local.theta = local_theta.value_or(config.rope.theta);
  local.partial_rotary_factor = local_partial.value_or(config.rope.partial_rotary_factor);
  if (local_scaling != nullptr)
    ReadScaling(*local_scaling, "header: arch: rope_local_scaling", local, status);
  if (local != config.rope) config.rope_local = std::move(local);
}

void ReadLayerTypes(JsonFields& fields, ModelConfig& config) {
  const auto layers = static_cast<size_t>(config.num_layers);
  config.layer_types.assign(layers, LayerKind::kFullAttention);
  const Json* types = fields.Find("layer_types");
  if (types == nullptr) return;
  if (!types->is_array()) return fields.Error("layer_types", "must be a list of words");
  // A looped model may list every visit; the kinds of the first pass hold for all.
  const size_t visits = layers * static_cast<size_t>(config.num_loops);
  if (types->size() != layers && types->size() != visits) {
    return fields.Error("layer_types",
                        fmt::format("has {} entries, num_layers is {}", types->size(), layers));
  }
  for (size_t layer = 0; layer < layers; ++layer) {
    const Json& type = (*types)[layer];
    const auto* found = std::find_if(std::begin(kLayerWords), std::end(kLayerWords), [&](const LayerWord& w) {
      return type.is_string() && type.get_ref<const std::string&>() == w.word;
    });
    if (found == std::end(kLayerWords)) {
      return fields.Error("layer_types",
                          fmt::format("layer {} is {}, which is not known", layer, DumpJson(type)));
    }
    config.layer_types[layer] = found->kind;
  }
}

void ReadMoe(JsonFields& fields, ModelConfig& config, Result<void>& status) {
  const Json* json = fields.Find("moe");
  if (json == nullptr) return;
  MoeConfig moe;
  JsonFields block(*json, "header: arch: moe");
  block.Require({"num_experts", "top_k"});
  block.Read("num_experts", moe.num_experts);
  block.Read("top_k", moe.top_k);
  block.Read("moe_intermediate_size", moe.intermediate_size);
  block.Read("norm_topk_prob", moe.norm_topk_prob);
  block.Read("shared_expert_intermediate_size", moe.shared_expert_intermediate_size);
  block.Read("router_sigmoid", moe.router_sigmoid);
  block.Read("routed_scaling_factor", moe.routed_scaling_factor);
  block.Read("router_logit_softcapping", moe.router_logit_softcapping);
  if (status) status = block.status();
  config.moe = moe;
}

void ReadMtp(JsonFields& fields, ModelConfig& config, Result<void>& status) {
  const Json* json = fields.Find("mtp");
  if (json == nullptr) return;
  MtpConfig mtp;
  JsonFields block(*json, "header: arch: mtp");
  block.Read("num_layers", mtp.num_layers);
  block.Read("share_lm_head", mtp.share_lm_head);
  block.Read("share_embed", mtp.share_embed);
  if (status) status = block.status();
  config.mtp = mtp;
}

void ReadLinearAttention(JsonFields& fields, ModelConfig& config, Result<void>& status) {
  LinearAttentionConfig linear;
  if (const Json* core = fields.Find("linear_core")) {
    JsonFields block(*core, "header: arch: linear_core");
    block.Read("num_heads", linear.num_value_heads);
    block.Read("value_head_dim", linear.value_head_dim);
    if (status) status = block.status();
  }
  fields.Read("linear_num_key_heads", linear.num_key_heads);
  fields.Read("linear_num_value_heads", linear.num_value_heads);
  fields.Read("linear_key_head_dim", linear.key_head_dim);
  fields.Read("linear_value_head_dim", linear.value_head_dim);
  fields.Read("linear_conv_kernel_dim", linear.conv_kernel);
  if (linear != LinearAttentionConfig{}) config.linear_attention = linear;  // zeros and nulls mean "none"
}

template <class T>
void Put(Json& json, const char* key, const std::optional<T>& value) {
  if (value) json[key] = *value;
}
template <class T>
void PutUnless(Json& json, const char* key, const T& value, const T& usual) {
  if (value != usual) json[key] = value;
}

void PutRope(Json& arch, const ModelConfig& config) {
  const RopeConfig rope = SpeltOut(config.rope, config.max_position_embeddings);
  arch["rope_theta"] = rope.theta;
  arch["partial_rotary_factor"] = rope.partial_rotary_factor;
  if (rope.kind != RopeKind::kDefault) {
    Json scaling = ScalingToJson(rope);
    if (rope.kind == RopeKind::kYarn) scaling.erase("rope_type");
    arch[rope.kind == RopeKind::kYarn ? "yarn" : "rope_scaling"] = std::move(scaling);
  }
  const bool local_has_yarn_too =
      rope.kind == RopeKind::kYarn && !config.rope_local && HasSlidingLayers(config);
  if (!config.rope_local && !local_has_yarn_too) return;
  const RopeConfig local = SpeltOut(config.rope_local.value_or(rope), config.max_position_embeddings);
  arch["rope_local_base_freq"] = local.theta;
  arch["local_partial_rotary_factor"] = local.partial_rotary_factor;
  if (local.kind != RopeKind::kDefault) arch["rope_local_scaling"] = ScalingToJson(local);
}

}  // namespace

Result<ModelConfig> ParseArch(const Json& arch, Json* unknown) {
  ModelConfig config;
  Result<void> status;
  JsonFields fields(arch, "header: arch");
  fields.Require(
      {"arch_name", "hidden_size", "intermediate_size", "num_layers", "num_attention_heads", "vocab_size"});
  fields.Read("arch_name", config.arch_name);
  fields.Read("hidden_size", config.hidden_size);
  fields.Read("intermediate_size", config.intermediate_size);
  fields.Read("num_layers", config.num_layers, 0, kMaxLayers);
  fields.Read("num_attention_heads", config.num_attention_heads);
  config.num_kv_heads = config.num_attention_heads;
  fields.Read("num_kv_heads", config.num_kv_heads);
  config.head_dim = config.num_attention_heads > 0 ? config.hidden_size / config.num_attention_heads : 0;
  fields.Read("head_dim", config.head_dim);
  fields.Read("vocab_size", config.vocab_size);
  config.max_position_embeddings = 32768;
  fields.Read("max_position_embeddings", config.max_position_embeddings);
  fields.Read("num_loops", config.num_loops, 1, kMaxLoops);
  fields.Read("loop_final_norm", config.loop_final_norm);
  ReadLayerTypes(fields, config);
  fields.Read("rms_norm_eps", config.rms_norm_eps);
  std::string norm_style, hidden_act;
  fields.Read("norm_style", norm_style);
  if (norm_style == "qwen") config.norm_style = NormStyle::kPlain;
  if (norm_style == "gemma") config.norm_style = NormStyle::kOnePlus;
  if (!norm_style.empty() && config.norm_style == NormStyle::kUnknown) {
    fields.Error("norm_style", fmt::format("'{}' is not known", norm_style));
  }
  fields.Read("hidden_act", hidden_act);
  if (hidden_act == "gelu_tanh") config.hidden_act = Activation::kGeluTanh;
  if (!hidden_act.empty() && hidden_act != "gelu_tanh" && hidden_act != "silu") {
    fields.Error("hidden_act", fmt::format("'{}' is not known", hidden_act));
  }
  fields.Read("tie_word_embeddings", config.tie_word_embeddings);
  ReadRope(fields, config, status);
  fields.Read("sliding_window", config.sliding_window);
  fields.Read("sliding_window_pattern", config.sliding_window_pattern, int64_t{1}, JsonFields::kMaxCount);
  fields.Read("attention_heads_per_layer", config.attention_heads_per_layer);
  if (!config.attention_heads_per_layer.empty() &&
      config.attention_heads_per_layer.size() != config.layer_types.size()) {
    fields.Error("attention_heads_per_layer",
                 fmt::format("has {} entries, num_layers is {}", config.attention_heads_per_layer.size(),
                             config.num_layers));
  }
  fields.Read("embed_multiplier", config.embed_multiplier);
  fields.Read("query_pre_attn_scalar", config.query_pre_attn_scalar);
  fields.Read("attn_logit_softcapping", config.attn_logit_softcapping);
  fields.Read("final_logit_softcapping", config.final_logit_softcapping);
  fields.Read("logit_multiplier", config.logit_multiplier);
  fields.Read("global_head_dim", config.global_head_dim);
  fields.Read("num_global_kv_heads", config.num_global_kv_heads);
  fields.Read("global_partial_rotary_factor", config.global_partial_rotary_factor);
  fields.Read("attn_v_norm", config.attn_v_norm);
  fields.Read("hidden_size_per_layer_input", config.hidden_size_per_layer_input);
  fields.Read("vocab_size_per_layer_input", config.vocab_size_per_layer_input);
  fields.Read("num_kv_shared_layers", config.num_kv_shared_layers);
  ReadMoe(fields, config, status);
  ReadMtp(fields, config, status);
  ReadLinearAttention(fields, config, status);
  CMF_CHECK(fields.status());
  CMF_CHECK(std::move(status));
  if (unknown != nullptr) *unknown = fields.Rest();
  return config;
}

Json ArchToJson(const ModelConfig& config) {
  const ModelConfig usual;
  Json arch = Json::object();
  arch["arch_name"] = config.arch_name;
  arch["hidden_size"] = config.hidden_size;
  arch["intermediate_size"] = config.intermediate_size;
  arch["num_layers"] = config.num_layers;
  arch["num_attention_heads"] = config.num_attention_heads;
  arch["num_kv_heads"] = config.num_kv_heads;
  arch["head_dim"] = config.head_dim;
  arch["vocab_size"] = config.vocab_size;
  Json types = Json::array();
  for (const LayerKind kind : config.layer_types) {
    for (const LayerWord& word : kLayerWords) {
      if (word.kind == kind) types.push_back(word.word);
    }
  }
  arch["layer_types"] = std::move(types);
  arch["rms_norm_eps"] = config.rms_norm_eps;
  if (config.norm_style != NormStyle::kUnknown)
    arch["norm_style"] = config.norm_style == NormStyle::kPlain ? "qwen" : "gemma";
  if (config.hidden_act == Activation::kGeluTanh) arch["hidden_act"] = "gelu_tanh";
  PutRope(arch, config);
  if (!config.attention_heads_per_layer.empty())
    arch["attention_heads_per_layer"] = config.attention_heads_per_layer;
  Put(arch, "sliding_window", config.sliding_window);
  Put(arch, "sliding_window_pattern", config.sliding_window_pattern);
  arch["tie_word_embeddings"] = config.tie_word_embeddings;
  arch["max_position_embeddings"] = config.max_position_embeddings;
  PutUnless(arch, "embed_multiplier", config.embed_multiplier, usual.embed_multiplier);
  Put(arch, "query_pre_attn_scalar", config.query_pre_attn_scalar);
  Put(arch, "attn_logit_softcapping", config.attn_logit_softcapping);
  Put(arch, "final_logit_softcapping", config.final_logit_softcapping);
  PutUnless(arch, "logit_multiplier", config.logit_multiplier, usual.logit_multiplier);
  PutUnless(arch, "num_loops", config.num_loops, usual.num_loops);
  PutUnless(arch, "loop_final_norm", config.loop_final_norm, usual.loop_final_norm);
  PutUnless(arch, "global_head_dim", config.global_head_dim, usual.global_head_dim);
  PutUnless(arch, "num_global_kv_heads", config.num_global_kv_heads, usual.num_global_kv_heads);
  PutUnless(arch, "global_partial_rotary_factor", config.global_partial_rotary_factor,
            usual.global_partial_rotary_factor);
  PutUnless(arch, "attn_v_norm", config.attn_v_norm, usual.attn_v_norm);
  PutUnless(arch, "hidden_size_per_layer_input", config.hidden_size_per_layer_input,
            usual.hidden_size_per_layer_input);
  PutUnless(arch, "vocab_size_per_layer_input", config.vocab_size_per_layer_input,
            usual.vocab_size_per_layer_input);
  PutUnless(arch, "num_kv_shared_layers", config.num_kv_shared_layers, usual.num_kv_shared_layers);
  if (config.moe) {
    Json moe = Json::object();
    moe["num_experts"] = config.moe->num_experts;
    moe["top_k"] = config.moe->top_k;
    moe["moe_intermediate_size"] = config.moe->intermediate_size;
    moe["norm_topk_prob"] = config.moe->norm_topk_prob;
    PutUnless(moe, "shared_expert_intermediate_size", config.moe->shared_expert_intermediate_size,
              int64_t{0});
    PutUnless(moe, "router_sigmoid", config.moe->router_sigmoid, false);
    PutUnless(moe, "routed_scaling_factor", config.moe->routed_scaling_factor, 1.0);
    PutUnless(moe, "router_logit_softcapping", config.moe->router_logit_softcapping, 0.0);
    arch["moe"] = std::move(moe);
  }
  if (config.mtp) {
    arch["mtp"] = {{"num_layers", config.mtp->num_layers},
                   {"share_lm_head", config.mtp->share_lm_head},
                   {"share_embed", config.mtp->share_embed}};
  }
  // The keys are there with null when there is nothing to say: some readers look for them.
  const auto linear = config.linear_attention.value_or(LinearAttentionConfig{});
  const auto count_or_null = [](int64_t count) { return count == 0 ? Json(nullptr) : Json(count); };
  arch["linear_conv_kernel_dim"] = count_or_null(linear.conv_kernel);
  arch["linear_num_key_heads"] = count_or_null(linear.num_key_heads);
  arch["linear_num_value_heads"] = count_or_null(linear.num_value_heads);
  arch["linear_key_head_dim"] = count_or_null(linear.key_head_dim);
  arch["linear_value_head_dim"] = count_or_null(linear.value_head_dim);
  if (std::find(config.layer_types.begin(), config.layer_types.end(), LayerKind::kLinearAttention) !=
      config.layer_types.end()) {
    arch["linear_core"] = {{"kind", "gated_delta_net"},
                           {"num_heads", linear.num_value_heads},
                           {"value_head_dim", linear.value_head_dim}};
  }
  return arch;
}

}  // namespace cmforge::cmf
