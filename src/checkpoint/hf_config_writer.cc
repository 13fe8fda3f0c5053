// The keys of a config.json, in the order people know them from.
#include "checkpoint/hf_config_writer.h"

#include <algorithm>

#include "base/json.h"

namespace cmforge {
namespace {

struct Architecture {
  std::string_view family, name;
};
constexpr Architecture kArchitectures[] = {
    {"llama", "LlamaForCausalLM"},
    {"nanbeige", "NanbeigeForCausalLM"},
    {"mistral", "MistralForCausalLM"},
    {"phi3", "Phi3ForCausalLM"},
    {"qwen2", "Qwen2ForCausalLM"},
    {"qwen2_moe", "Qwen2MoeForCausalLM"},
    {"qwen3", "Qwen3ForCausalLM"},
    {"qwen3_moe", "Qwen3MoeForCausalLM"},
    {"qwen3_next", "Qwen3NextForCausalLM"},
    {"qwen3_5", "Qwen3_5ForCausalLM"},
    {"qwen3_5_moe", "Qwen3_5MoeForCausalLM"},
    {"gemma", "GemmaForCausalLM"},
    {"gemma2", "Gemma2ForCausalLM"},
    {"gemma3", "Gemma3ForCausalLM"},
    {"gemma4", "Gemma4ForCausalLM"},
    {"laguna", "LagunaForCausalLM"},
    {"lfm2", "Lfm2ForCausalLM"},
    {"lfm2_moe", "Lfm2MoeForCausalLM"},
};

constexpr std::string_view kMultimodal[] = {"qwen2_vl", "qwen2_5_vl",  "qwen3_vl", "qwen3_vl_moe",
                                            "qwen3_5",  "qwen3_5_moe", "gemma3",   "gemma4"};

template <class T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

std::string_view LayerWord(LayerKind kind) {
  switch (kind) {
    case LayerKind::kFullAttention:
      return "full_attention";
    case LayerKind::kSlidingAttention:
      return "sliding_attention";
    case LayerKind::kLinearAttention:
      return "linear_attention";
    case LayerKind::kShortConv:
      return "conv";
  }
  return "";
}

std::string_view RopeWord(RopeKind kind) {
  switch (kind) {
    case RopeKind::kDefault:
      return "default";
    case RopeKind::kLinear:
      return "linear";
    case RopeKind::kDynamic:
      return "dynamic";
    case RopeKind::kLlama3:
      return "llama3";
    case RopeKind::kYarn:
      return "yarn";
    case RopeKind::kLongRope:
      return "longrope";
    case RopeKind::kProportional:
      return "proportional";
  }
  return "";
}

// The scaling keys of one rope; nothing but its type for the default one.
Json ScalingOf(const RopeConfig& rope) {
  Json json = {{"rope_type", RopeWord(rope.kind)}};
  if (rope.kind == RopeKind::kDefault) return json;
  if (rope.kind != RopeKind::kProportional || rope.factor != 1.0) json["factor"] = rope.factor;
  if (rope.original_max_position_embeddings > 0)
    json["original_max_position_embeddings"] = rope.original_max_position_embeddings;
  if (rope.kind == RopeKind::kLlama3) {
    json["low_freq_factor"] = rope.low_freq_factor;
    json["high_freq_factor"] = rope.high_freq_factor;
  }
  if (rope.kind == RopeKind::kYarn) {
    json["beta_fast"] = rope.beta_fast;
    json["beta_slow"] = rope.beta_slow;
    if (rope.mscale) json["mscale"] = *rope.mscale;
    if (rope.mscale_all_dim) json["mscale_all_dim"] = *rope.mscale_all_dim;
    if (!rope.truncate) json["truncate"] = false;
  }
  if (rope.kind == RopeKind::kLongRope) {
    json["long_factor"] = rope.long_factor;
    json["short_factor"] = rope.short_factor;
  }
  if (rope.attention_factor) json["attention_factor"] = *rope.attention_factor;
  return json;
}

Json WholeRope(const RopeConfig& rope) {
  Json json = ScalingOf(rope);
  json["rope_theta"] = rope.theta;
  json["partial_rotary_factor"] = rope.partial_rotary_factor;
  return json;
}

class Writer {
 public:
  Writer(const ModelConfig& config, const HfTraits& traits, const HfFamily& family)
      : config_(config), traits_(traits), family_(family) {}

  Json Write(std::string_view model_type, const ChatBundle* chat, std::string_view dtype) {
    for (const Architecture& architecture : kArchitectures) {
      if (architecture.family == family_.name) json_["architectures"] = {architecture.name};
    }
    json_["model_type"] = model_type;
    json_["torch_dtype"] = dtype;
    json_["dtype"] = dtype;
    json_["vocab_size"] = config_.vocab_size;
    json_["hidden_size"] = config_.hidden_size;
    json_["intermediate_size"] = traits_.ffn_width > 0 ? traits_.ffn_width : config_.intermediate_size;
    json_["num_hidden_layers"] = config_.num_layers;
    PutAttention();
    PutLayers();
    PutRope();
    json_["max_position_embeddings"] = config_.max_position_embeddings;
    json_[is_lfm2() ? "norm_eps" : "rms_norm_eps"] = config_.rms_norm_eps;
    json_[is_gemma() ? "hidden_activation" : "hidden_act"] =
        config_.hidden_act == Activation::kSilu ? "silu" : "gelu_pytorch_tanh";
    json_["tie_word_embeddings"] = !traits_.has_head;
    PutScales();
    if (config_.moe) PutMoe();
    if (traits_.mtp_layers > 0) json_["mtp_num_hidden_layers"] = traits_.mtp_layers;
    if (config_.num_loops > 1) {
      json_["num_loops"] = config_.num_loops;
      json_["skip_loop_final_norm"] = !config_.loop_final_norm;
    }
    if (is_lfm2()) {
      json_["block_auto_adjust_ff_dim"] = false;  // the width is what the tensors have
      json_["block_ff_dim"] = json_["intermediate_size"];
    }
    if (family_.name == "gemma4") PutGemma4();
    if (chat != nullptr) PutIds(json_, *chat);
    json_["use_cache"] = true;
    return std::move(json_);
  }

  static void PutIds(Json& json, const ChatBundle& chat) {
    if (chat.bos_token_id) json["bos_token_id"] = *chat.bos_token_id;
    if (chat.eos_token_ids.size() == 1) json["eos_token_id"] = chat.eos_token_ids[0];
    if (chat.eos_token_ids.size() > 1) json["eos_token_id"] = chat.eos_token_ids;
    if (chat.pad_token_id) json["pad_token_id"] = *chat.pad_token_id;
  }

 private:
  [[nodiscard]] bool is_lfm2() const { return family_.name.starts_with("lfm2"); }
  [[nodiscard]] bool is_gemma() const { return family_.name.starts_with("gemma"); }
  [[nodiscard]] bool Has(LayerKind kind) const {
    return std::find(config_.layer_types.begin(), config_.layer_types.end(), kind) !=
           config_.layer_types.end();
  }

  void PutAttention() {
    json_["num_attention_heads"] = config_.num_attention_heads;
    json_["num_key_value_heads"] = config_.num_kv_heads;
    json_["head_dim"] = config_.head_dim;
    if (!config_.attention_heads_per_layer.empty())
      json_["num_attention_heads_per_layer"] = config_.attention_heads_per_layer;
    if (family_.name == "laguna") json_["gating"] = traits_.is_gate_per_channel ? "per-element" : "per-head";
    if (family_.has_qkv_bias || family_.name == "qwen2_moe") {
      if (!traits_.has_qkv_bias || family_.name == "qwen2_moe") json_["qkv_bias"] = traits_.has_qkv_bias;
    } else {
      json_["attention_bias"] = traits_.has_qkv_bias;
    }
    if (traits_.has_mlp_bias) json_["mlp_bias"] = true;
    if (Has(LayerKind::kLinearAttention)) json_["attn_output_gate"] = true;
  }

  void PutLayers() {
    Json kinds = Json::array();
    for (const LayerKind kind : config_.layer_types) kinds.push_back(LayerWord(kind));
    json_["layer_types"] = std::move(kinds);
    const bool slides = Has(LayerKind::kSlidingAttention);
    json_["sliding_window"] = slides ? OrNull(config_.sliding_window) : Json(nullptr);
    if (family_.name.starts_with("qwen")) json_["use_sliding_window"] = slides;
    if (slides && family_.layers == LayerRule::kUpper) {
      const auto first =
          std::find(config_.layer_types.begin(), config_.layer_types.end(), LayerKind::kSlidingAttention);
      json_["max_window_layers"] = first - config_.layer_types.begin();
    }
    if (slides && config_.sliding_window_pattern && is_gemma())
      json_["sliding_window_pattern"] = *config_.sliding_window_pattern;
    if (!config_.linear_attention) return;
    const LinearAttentionConfig& linear = *config_.linear_attention;
    if (Has(LayerKind::kLinearAttention)) {
      json_["linear_num_key_heads"] = linear.num_key_heads;
      json_["linear_num_value_heads"] = linear.num_value_heads;
      json_["linear_key_head_dim"] = linear.key_head_dim;
      json_["linear_value_head_dim"] = linear.value_head_dim;
      json_["linear_conv_kernel_dim"] = linear.conv_kernel;
      const auto full =
          std::find(config_.layer_types.begin(), config_.layer_types.end(), LayerKind::kFullAttention);
      if (full != config_.layer_types.end())
        json_["full_attention_interval"] = full - config_.layer_types.begin() + 1;
    } else if (Has(LayerKind::kShortConv)) {
      json_["conv_L_cache"] = linear.conv_kernel;
      json_["conv_bias"] = false;
    }
  }

  void PutRope() {
    const RopeConfig& rope = config_.rope;
    const RopeConfig local = config_.rope_local.value_or(rope);
    const bool knows_two = family_.name == "gemma3" || family_.name == "gemma4" || family_.name == "laguna";
    // Older files keep a plain local rope in a key of its own; that form is understood everywhere.
    const bool is_plain_local =
        local.kind == RopeKind::kDefault && local.partial_rotary_factor == rope.partial_rotary_factor;
    if ((config_.rope_local || knows_two) && !(family_.name == "gemma3" && is_plain_local)) {
      json_["rope_parameters"] = {{"full_attention", WholeRope(rope)},
                                  {"sliding_attention", WholeRope(local)}};
      return;
    }
    json_["rope_theta"] = rope.theta;
    json_["rope_scaling"] = rope.kind == RopeKind::kDefault ? Json(nullptr) : ScalingOf(rope);
    if (rope.kind == RopeKind::kLongRope && rope.original_max_position_embeddings > 0)
      json_["original_max_position_embeddings"] = rope.original_max_position_embeddings;
    if (rope.partial_rotary_factor != 1.0 || Has(LayerKind::kLinearAttention))
      json_["partial_rotary_factor"] = rope.partial_rotary_factor;
    if (config_.rope_local || knows_two) json_["rope_local_base_freq"] = local.theta;
  }

  void PutScales() {
    if (config_.query_pre_attn_scalar) json_["query_pre_attn_scalar"] = *config_.query_pre_attn_scalar;
    if (is_gemma() || config_.final_logit_softcapping)
      json_["final_logit_softcapping"] = OrNull(config_.final_logit_softcapping);
    if (is_gemma() || config_.attn_logit_softcapping)
      json_["attn_logit_softcapping"] = OrNull(config_.attn_logit_softcapping);
  }

  void PutMoe() {
    const MoeConfig& moe = *config_.moe;
    json_["num_experts"] = moe.num_experts;
    json_["num_experts_per_tok"] = moe.top_k;
    json_["moe_intermediate_size"] = moe.intermediate_size;
    json_["norm_topk_prob"] = moe.norm_topk_prob;
    if (moe.shared_expert_intermediate_size > 0 || family_.name == "qwen2_moe")
      json_["shared_expert_intermediate_size"] = moe.shared_expert_intermediate_size;
    if (moe.router_sigmoid != family_.sigmoid_router)
      json_["scoring_func"] = moe.router_sigmoid ? "sigmoid" : "softmax";
    if (moe.routed_scaling_factor != 1.0) {
      json_[family_.name == "laguna" ? "moe_routed_scaling_factor" : "routed_scaling_factor"] =
          moe.routed_scaling_factor;
    }
    if (moe.router_logit_softcapping != 0)
      json_["moe_router_logit_softcapping"] = moe.router_logit_softcapping;
    if (is_lfm2()) {
      json_["num_dense_layers"] = traits_.dense_layers.size();
      json_["use_expert_bias"] = true;
      return;
    }
    json_["mlp_only_layers"] = traits_.dense_layers;
    if (family_.name == "laguna") {
      Json kinds = Json::array();
      for (int64_t i = 0; i < config_.num_layers; ++i) {
        const bool is_dense = std::find(traits_.dense_layers.begin(), traits_.dense_layers.end(), i) !=
                              traits_.dense_layers.end();
        kinds.push_back(is_dense ? "dense" : "sparse");
      }
      json_["mlp_layer_types"] = std::move(kinds);
    } else {
      json_["decoder_sparse_step"] = 1;
    }
  }

  void PutGemma4() {
    json_["global_head_dim"] = config_.global_head_dim;
    json_["attention_k_eq_v"] = traits_.is_v_from_k;
    json_["num_global_key_value_heads"] =
        traits_.is_v_from_k ? Json(config_.num_global_kv_heads) : Json(nullptr);
    json_["hidden_size_per_layer_input"] = config_.hidden_size_per_layer_input;
    if (config_.hidden_size_per_layer_input > 0)
      json_["vocab_size_per_layer_input"] = config_.vocab_size_per_layer_input;
    json_["num_kv_shared_layers"] = config_.num_kv_shared_layers;
    json_["use_double_wide_mlp"] = traits_.is_double_wide;
    json_["enable_moe_block"] = false;
  }

  const ModelConfig& config_;
  const HfTraits& traits_;
  const HfFamily& family_;
  Json json_ = Json::object();
};

}  // namespace

std::string TextModelType(std::string_view family) {
  const bool is_multimodal =
      std::find(std::begin(kMultimodal), std::end(kMultimodal), family) != std::end(kMultimodal);
  return is_multimodal ? std::string(family) + "_text" : std::string(family);
}

std::string HfConfigText(const ModelConfig& config, const HfTraits& traits, const HfFamily& family,
                         std::string_view model_type, const ChatBundle* chat, std::string_view dtype) {
  return DumpJson(Writer(config, traits, family).Write(model_type, chat, dtype), 2) + "\n";
}

std::string HfGenerationConfigText(const ChatBundle& chat, const RecommendedSampling& sampling) {
  Json json = Json::object();
  Writer::PutIds(json, chat);
  const auto put = [&](const char* key, const auto& value) {
    if (value) json[key] = *value;
  };
  put("do_sample", sampling.do_sample);
  put("temperature", sampling.temperature);
  put("top_k", sampling.top_k);
  put("top_p", sampling.top_p);
  put("min_p", sampling.min_p);
  put("typical_p", sampling.typical_p);
  put("repetition_penalty", sampling.repetition_penalty);
  return DumpJson(json, 2) + "\n";
}

std::string HfTokenizerConfigText(const ChatBundle& chat,
                                  const std::vector<std::pair<std::string, std::string>>& special_tokens,
                                  int64_t max_length) {
  Json json = {{"tokenizer_class", "PreTrainedTokenizerFast"}, {"model_max_length", max_length}};
  for (const auto& [name, text] : special_tokens) json[name] = text;
  if (!chat.chat_template.empty()) json["chat_template"] = chat.chat_template;
  return DumpJson(json, 2) + "\n";
}

}  // namespace cmforge
