// config.json -> ModelConfig. The rules that no key tells come from the table of families.
#include "checkpoint/hf_config.h"

#include <algorithm>
#include <cmath>

#include "checkpoint/config_fields.h"
#include "checkpoint/hf_chat.h"
#include "checkpoint/hf_families.h"
#include "checkpoint/hf_rope.h"
#include "checkpoint/messages.h"
#include "model/config_limits.h"

namespace cmforge {
namespace {

constexpr int64_t kMaxLayers = 65536;
constexpr int64_t kMaxLoops = 1024;

/// The pieces that the readers below share.
struct Reading {
  const Json& outer;           // the whole file
  const ConfigFields& fields;  // the text model's part
  const HfFamily& family;
  HfConfig& result;

  ModelConfig& model() const { return result.model; }
  void Warn(std::string_view message) const {
    result.warnings.push_back(fmt::format("{}: {}", fields.what(), message));
  }
};

/// Packed weights are refused: their tensors would not be what the names say.
Result<void> RefuseQuantizedWeights(std::string_view what, const Json& config) {
  for (const char* key : {"quantization_config", "quantization", "compression_config"}) {
    const auto found = config.find(key);
    if (found == config.end() || !found->is_object() || found->empty()) continue;
    std::string method = found->contains("bits") || found->contains("group_size") ? "mlx" : "unnamed";
    for (const char* name : {"quant_method", "format"}) {
      const auto word = found->find(name);
      if (word == found->end() || !word->is_string()) continue;
      method = Shown(word->get<std::string>());
      break;
    }
    return Fail(
        ErrorKind::kUnsupported,
        fmt::format(
            "{}: {}: the weights are packed as '{}', which this build does not read: take the unquantized "
            "checkpoint",
            what, key, method));
  }
  return {};
}

Result<LayerKind> LayerKindOf(const ConfigFields& fields, const Json& word) {
  const std::string kind = word.is_string() ? word.get<std::string>() : "";
  if (kind == "full_attention" || kind == "attention") return LayerKind::kFullAttention;
  if (kind == "sliding_attention") return LayerKind::kSlidingAttention;
  if (kind == "linear_attention") return LayerKind::kLinearAttention;
  if (kind == "conv" || kind == "short_conv") return LayerKind::kShortConv;
  return fields.Unsupported("layer_types", fmt::format("{} is not a kind of layer this build runs",
                                                       Shown(DumpJson(word).substr(0, 60))));
}

/// The layers' kinds by the family's rule, for files without a list.
Result<std::vector<LayerKind>> LayersByRule(const Reading& in, bool has_window) {
  const ConfigFields& fields = in.fields;
  const int64_t count = in.model().num_layers;
  std::vector<LayerKind> kinds(static_cast<size_t>(count), LayerKind::kFullAttention);
  const auto set = [&](LayerKind kind, auto&& applies) {
    for (int64_t i = 0; i < count; ++i) {
      if (applies(i)) kinds[static_cast<size_t>(i)] = kind;
    }
  };
  CMF_TRY(const auto use, fields.Bool("use_sliding_window"));
  const bool switched_on = has_window && use.value_or(false);
  CMF_TRY(const int64_t max_window_layers, fields.IntOr("max_window_layers", 28));
  constexpr LayerKind kSliding = LayerKind::kSlidingAttention;
  switch (in.family.layers) {
    case LayerRule::kFull:
      break;
    case LayerRule::kEvery:
      if (has_window && use.value_or(true)) set(kSliding, [](int64_t) { return true; });
      break;
    case LayerRule::kUpper:
      if (switched_on) set(kSliding, [&](int64_t i) { return i >= max_window_layers; });
      break;
    case LayerRule::kEvenLower:
      if (switched_on) set(kSliding, [&](int64_t i) { return i % 2 == 0 && i < max_window_layers; });
      break;
    case LayerRule::kAllIfSwitchedOn:
      if (switched_on) set(kSliding, [](int64_t) { return true; });
      break;
    case LayerRule::kEvenLayers:
      if (has_window) set(kSliding, [](int64_t i) { return i % 2 == 0; });
      break;
    case LayerRule::kPattern:
    case LayerRule::kPatternLastFull: {
      CMF_TRY(const int64_t pattern, fields.NeededInt("sliding_window_pattern"));
      if (has_window) set(kSliding, [&](int64_t i) { return (i + 1) % pattern != 0; });
      break;
    }
    case LayerRule::kInterval: {
      CMF_TRY(const int64_t interval, fields.NeededInt("full_attention_interval"));
      set(LayerKind::kLinearAttention, [&](int64_t i) { return (i + 1) % interval != 0; });
      break;
    }
    case LayerRule::kConvolutions: {
      const Json* full = fields.Find("full_attn_idxs");
      if (full == nullptr || !full->is_array()) return fields.Missing("layer_types");
      set(LayerKind::kShortConv, [](int64_t) { return true; });
      for (const Json& value : *full) {
        CMF_TRY(const int64_t index, fields.AsInt("full_attn_idxs", value, 0, count - 1));
        kinds[static_cast<size_t>(index)] = LayerKind::kFullAttention;
      }
      break;
    }
  }
  return kinds;
}

Result<void> ReadLayers(const Reading& in) {
  ModelConfig& model = in.model();
  const ConfigFields& fields = in.fields;
  const Json* window_value = fields.FindUnlessNull("sliding_window");
  std::optional<int64_t> window;
  if (window_value != nullptr) {
    CMF_TRY(window, fields.AsInt("sliding_window", *window_value, 0));
    if (*window == 0) window.reset();
  }
  if (const Json* list = fields.Find("layer_types"); list != nullptr) {
    if (!list->is_array() || static_cast<int64_t>(list->size()) != model.num_layers) {
      return fields.Bad("layer_types",
                        fmt::format("not a list of num_hidden_layers = {} words", model.num_layers));
    }
    for (const Json& word : *list) {
      CMF_TRY(const LayerKind kind, LayerKindOf(fields, word));
      model.layer_types.push_back(kind);
    }
  } else {
    CMF_TRY(model.layer_types, LayersByRule(in, window.has_value()));
  }
  if (in.family.layers == LayerRule::kPatternLastFull) model.layer_types.back() = LayerKind::kFullAttention;

  const auto has = [&](LayerKind kind) {
    return std::find(model.layer_types.begin(), model.layer_types.end(), kind) != model.layer_types.end();
  };
  if (has(LayerKind::kSlidingAttention)) {
    if (!window) return fields.Missing("sliding_window");
    model.sliding_window = window;
  }
  LinearAttentionConfig linear;
  if (has(LayerKind::kLinearAttention)) {
    CMF_TRY(linear.num_key_heads, fields.NeededInt("linear_num_key_heads"));
    CMF_TRY(linear.num_value_heads, fields.NeededInt("linear_num_value_heads"));
    CMF_TRY(linear.key_head_dim, fields.NeededInt("linear_key_head_dim"));
    CMF_TRY(linear.value_head_dim, fields.NeededInt("linear_value_head_dim"));
    CMF_TRY(linear.conv_kernel, fields.NeededInt("linear_conv_kernel_dim"));
    if (linear.num_value_heads % linear.num_key_heads != 0) {
      return fields.Bad("linear_num_value_heads",
                        fmt::format("{} is not a multiple of linear_num_key_heads = {}",
                                    linear.num_value_heads, linear.num_key_heads));
    }
    model.linear_attention = linear;
  } else if (has(LayerKind::kShortConv)) {
    CMF_TRY(linear.conv_kernel, fields.NeededInt("conv_L_cache"));
    model.linear_attention = linear;
  }
  return {};
}

/// `sliding_window_pattern` as older readers of the container want it: only where it tells the layers' true
/// kinds.
void NotePattern(ModelConfig& model) {
  if (!model.sliding_window) return;
  const auto first_full =
      std::find(model.layer_types.begin(), model.layer_types.end(), LayerKind::kFullAttention);
  if (first_full == model.layer_types.end()) return;
  const int64_t pattern = first_full - model.layer_types.begin() + 1;
  for (int64_t i = 0; i < model.num_layers; ++i) {
    const bool is_full = model.layer_types[static_cast<size_t>(i)] == LayerKind::kFullAttention;
    if (is_full != ((i + 1) % pattern == 0)) return;
  }
  if (pattern > 1) model.sliding_window_pattern = pattern;
}

Result<void> ReadHeads(const Reading& in) {
  ModelConfig& model = in.model();
  const ConfigFields& fields = in.fields;
  CMF_TRY(model.num_attention_heads, fields.NeededInt("num_attention_heads"));
  CMF_TRY(model.num_kv_heads, fields.IntOr("num_key_value_heads", model.num_attention_heads, 1));
  CMF_TRY(model.head_dim, fields.IntOr("head_dim", 0, 1));
  if (model.head_dim == 0) {
    if (model.hidden_size % model.num_attention_heads != 0) {
      return fields.Bad("head_dim",
                        fmt::format("absent, and hidden_size {} is not a multiple of num_attention_heads {}",
                                    model.hidden_size, model.num_attention_heads));
    }
    model.head_dim = model.hidden_size / model.num_attention_heads;
  }
  const auto divisible = [&](std::string_view key, int64_t heads) -> Result<void> {
    if (heads % model.num_kv_heads == 0) return {};
    return fields.Bad(key, fmt::format("{} heads are not a multiple of num_key_value_heads = {}", heads,
                                       model.num_kv_heads));
  };
  CMF_CHECK(divisible("num_attention_heads", model.num_attention_heads));
  if (const Json* list = fields.Find("num_attention_heads_per_layer"); list != nullptr) {
    constexpr std::string_view kKey = "num_attention_heads_per_layer";
    if (!list->is_array() || static_cast<int64_t>(list->size()) != model.num_layers) {
      return fields.Bad(kKey, fmt::format("not a list of num_hidden_layers = {} counts", model.num_layers));
    }
    for (const Json& value : *list) {
      CMF_TRY(const int64_t heads, fields.AsInt(kKey, value, 1));
      CMF_CHECK(divisible(kKey, heads));
      model.attention_heads_per_layer.push_back(heads);
    }
  }
  return {};
}

Result<void> ReadActivation(const Reading& in) {
  // The library of the first Gemma used the tanh form whatever hidden_act said.
  const bool is_first_gemma = in.family.name == "gemma";
  for (const char* key : {"hidden_activation", "hidden_act"}) {
    CMF_TRY(const auto word, in.fields.Text(key));
    if (!word) continue;
    if (*word == "silu" || *word == "swish") {
      in.model().hidden_act = Activation::kSilu;
    } else if (*word == "gelu_pytorch_tanh" || *word == "gelu_tanh" || *word == "gelu_new" ||
               (is_first_gemma && *word == "gelu")) {
      in.model().hidden_act = Activation::kGeluTanh;
    } else {
      return in.fields.Unsupported(key,
                                   fmt::format("'{}' is not an activation this build runs", Shown(*word)));
    }
    return {};
  }
  return {};
}

Result<void> ReadMoe(const Reading& in) {
  const ConfigFields& fields = in.fields;
  MoeConfig moe;
  for (const char* key : {"num_experts", "n_routed_experts"}) {
    CMF_TRY(moe.num_experts, fields.IntOr(key, 0));
    if (moe.num_experts > 0) break;
  }
  if (moe.num_experts == 0) return {};
  for (const char* key : {"num_experts_per_tok", "top_k_experts", "num_experts_per_token"}) {
    CMF_TRY(moe.top_k, fields.IntOr(key, 0));
    if (moe.top_k > 0) break;
  }
  if (moe.top_k == 0) return fields.Missing("num_experts_per_tok");
  if (moe.top_k > moe.num_experts) {
    return fields.Bad("num_experts_per_tok", fmt::format("{} of {} experts", moe.top_k, moe.num_experts));
  }
  CMF_TRY(moe.intermediate_size, fields.NeededInt("moe_intermediate_size"));
  CMF_TRY(const bool renormalize, fields.BoolOr("moe_renormalize", false));
  CMF_TRY(moe.norm_topk_prob, fields.BoolOr("norm_topk_prob", renormalize));
  if (in.family.always_renormalizes) moe.norm_topk_prob = true;
  CMF_TRY(const int64_t shared, fields.IntOr("n_shared_experts", 0));
  CMF_TRY(moe.shared_expert_intermediate_size,
          fields.IntOr("shared_expert_intermediate_size", shared * moe.intermediate_size));
  moe.router_sigmoid = in.family.sigmoid_router;
  for (const char* key : {"moe_router_activation_func", "scoring_func"}) {
    CMF_TRY(const auto word, fields.Text(key));
    if (!word) continue;
    if (*word != "sigmoid" && *word != "softmax") {
      return fields.Unsupported(key, fmt::format("'{}' is not a router this build runs", Shown(*word)));
    }
    moe.router_sigmoid = *word == "sigmoid";
  }
  for (const char* key : {"routed_scaling_factor", "moe_routed_scaling_factor"}) {
    CMF_TRY(moe.routed_scaling_factor, fields.NumberOr(key, moe.routed_scaling_factor));
  }
  CMF_TRY(moe.router_logit_softcapping, fields.NumberOr("moe_router_logit_softcapping", 0.0));
  in.model().moe = moe;
  return {};
}

/// intermediate_size: a number, or a list of one number repeated; MoE files may have none.
Result<void> ReadIntermediateSize(const Reading& in) {
  ModelConfig& model = in.model();
  const ConfigFields& fields = in.fields;
  constexpr std::string_view kKey = "intermediate_size";
  const bool is_lfm2 = in.family.layers == LayerRule::kConvolutions;
  const Json* value = is_lfm2 ? fields.Find("block_ff_dim") : nullptr;
  if (value == nullptr) value = fields.Find(kKey);
  if (value == nullptr) {
    if (!model.moe) return fields.Missing(kKey);
    model.intermediate_size = model.moe->intermediate_size;
    return {};
  }
  if (value->is_array()) {
    if (value->empty()) return fields.Bad(kKey, "an empty list");
    for (const Json& width : *value) {
      if (width != value->front()) return fields.Unsupported(kKey, "layers of different widths");
    }
    value = &value->front();
  }
  CMF_TRY(model.intermediate_size, fields.AsInt(kKey, *value, 1));

  // LFM2 names the width before its own rounding: two thirds, times a factor, up to a multiple.
  CMF_TRY(const bool adjust, fields.BoolOr("block_auto_adjust_ff_dim", false));
  if (is_lfm2 && adjust) {
    CMF_TRY(const double multiplier, fields.PositiveOr("block_ffn_dim_multiplier", 1.0));
    CMF_TRY(const int64_t unit, fields.IntOr("block_multiple_of", 256, 1));
    const int64_t two_thirds = 2 * model.intermediate_size / 3;
    const auto width = static_cast<int64_t>(multiplier * static_cast<double>(two_thirds));
    if (width > kMaxConfigCount) return fields.Bad("block_ffn_dim_multiplier", "absurdly large");
    model.intermediate_size = (width + unit - 1) / unit * unit;
  }
  return {};
}

Result<void> ReadMtpAndLoops(const Reading& in) {
  for (const char* key : {"mtp_num_hidden_layers", "num_nextn_predict_layers"}) {
    CMF_TRY(const int64_t layers, in.fields.IntOr(key, 0));
    if (layers > 0) in.model().mtp = MtpConfig{.num_layers = layers};
  }
  CMF_TRY(const auto loops, in.fields.Int("num_loops", 1, kMaxLoops));
  in.model().num_loops = loops.value_or(1);
  CMF_TRY(const bool skip, in.fields.BoolOr("skip_loop_final_norm", true));
  in.model().loop_final_norm = in.model().num_loops > 1 && !skip;
  return {};
}

Result<void> ReadScales(const Reading& in) {
  ModelConfig& model = in.model();
  if (in.family.scales_embedding) model.embed_multiplier = std::sqrt(static_cast<double>(model.hidden_size));
  CMF_TRY(model.query_pre_attn_scalar, in.fields.Number("query_pre_attn_scalar"));
  if (model.query_pre_attn_scalar && !(*model.query_pre_attn_scalar > 0)) {
    return in.fields.Bad("query_pre_attn_scalar", "not above 0");
  }
  const auto cap = [&](std::string_view key) -> Result<std::optional<double>> {
    const Json* value = in.fields.FindUnlessNull(key);
    if (value == nullptr) return std::nullopt;
    CMF_TRY(const double number, in.fields.AsNumber(key, *value));
    if (number < 0) return in.fields.Bad(key, "below 0");
    return number == 0 ? std::nullopt : std::optional(number);
  };
  CMF_TRY(model.final_logit_softcapping, cap("final_logit_softcapping"));
  if (in.family.applies_score_cap) {
    CMF_TRY(model.attn_logit_softcapping, cap("attn_logit_softcapping"));
  }
  return {};
}

Result<void> ReadGemma4(const Reading& in) {
  ModelConfig& model = in.model();
  const ConfigFields& fields = in.fields;
  model.query_pre_attn_scalar = 1.0;
  model.attn_v_norm = true;
  CMF_TRY(model.global_head_dim, fields.IntOr("global_head_dim", model.head_dim, 1));
  // The separate count holds for layers without a v_proj only.
  CMF_TRY(const bool k_eq_v, fields.BoolOr("attention_k_eq_v", false));
  model.num_global_kv_heads = model.num_kv_heads;
  if (k_eq_v) {
    CMF_TRY(model.num_global_kv_heads, fields.IntOr("num_global_key_value_heads", model.num_kv_heads, 1));
    if (model.num_attention_heads % model.num_global_kv_heads != 0) {
      return fields.Bad("num_global_key_value_heads",
                        fmt::format("{} does not divide num_attention_heads = {}", model.num_global_kv_heads,
                                    model.num_attention_heads));
    }
  }
  if (const Json* width = fields.FindUnlessNull("hidden_size_per_layer_input"); width != nullptr) {
    CMF_TRY(model.hidden_size_per_layer_input, fields.AsInt("hidden_size_per_layer_input", *width, 0));
  }
  if (model.hidden_size_per_layer_input > 0) {
    CMF_TRY(model.vocab_size_per_layer_input,
            fields.IntOr("vocab_size_per_layer_input", model.vocab_size, 1));
  }
  CMF_TRY(model.num_kv_shared_layers, fields.IntOr("num_kv_shared_layers", 0));
  if (model.num_kv_shared_layers >= model.num_layers && model.num_kv_shared_layers > 0) {
    return fields.Bad("num_kv_shared_layers", fmt::format("{} of {} layers: none is left to share from",
                                                          model.num_kv_shared_layers, model.num_layers));
  }
  return {};
}

/// The whole file's flag first, then the text model's, then the family's habit.
Result<void> ReadTie(const Reading& in) {
  const ConfigFields outer(in.fields.what(), in.outer);
  for (const ConfigFields* fields : {&outer, &in.fields}) {
    for (const char* key : {"tie_word_embeddings", "tie_embedding"}) {
      const Json* written = fields->Raw(key);
      if (written == nullptr || written->is_null()) continue;
      CMF_TRY(in.model().tie_word_embeddings, fields->BoolOr(key, false));
      return {};
    }
  }
  in.result.tie_is_default = true;
  CMF_TRY(in.model().tie_word_embeddings, in.fields.BoolOr("tie_word_embeddings", false));
  return {};
}

Result<void> ReadWants(const Reading& in) {
  HfConfig& result = in.result;
  CMF_TRY(const bool attention_bias, in.fields.BoolOr("attention_bias", false));
  CMF_TRY(const bool qkv_bias, in.fields.BoolOr("qkv_bias", in.family.has_qkv_bias));
  // Gemma's files say so or not; its layers have none.
  result.wants_qkv_bias = qkv_bias || (attention_bias && !in.family.scales_embedding);
  result.wants_o_bias = attention_bias && !qkv_bias && !in.family.scales_embedding;
  CMF_TRY(const bool mlp_bias, in.fields.BoolOr("mlp_bias", false));
  result.wants_mlp_bias = mlp_bias && !in.family.scales_embedding;
  result.wants_qk_norm = in.family.has_qk_norm;
  result.wants_four_norms = in.family.has_four_norms;
  return {};
}

Result<void> ReadModel(const Reading& in) {
  ModelConfig& model = in.model();
  const ConfigFields& fields = in.fields;
  model.norm_style = in.family.norm_style;
  CMF_TRY(model.hidden_size, fields.NeededInt("hidden_size"));
  CMF_TRY(model.num_layers, fields.NeededInt("num_hidden_layers", 1, kMaxLayers));
  CMF_TRY(model.vocab_size, fields.NeededInt("vocab_size"));
  CMF_CHECK(ReadHeads(in));
  CMF_CHECK(ReadMoe(in));
  CMF_CHECK(ReadIntermediateSize(in));

  CMF_TRY(const double norm_eps, fields.PositiveOr("norm_eps", 1e-6));
  CMF_TRY(model.rms_norm_eps, fields.PositiveOr("rms_norm_eps", norm_eps));
  CMF_TRY(model.max_position_embeddings, fields.IntOr("max_position_embeddings", 0, 1));
  if (model.max_position_embeddings == 0) {
    model.max_position_embeddings = 32768;
    in.Warn("max_position_embeddings is absent: 32768 is used");
  }
  CMF_CHECK(ReadActivation(in));
  CMF_CHECK(ReadScales(in));
  CMF_CHECK(ReadLayers(in));
  NotePattern(model);
  if (in.family.name == "gemma4") CMF_CHECK(ReadGemma4(in));

  const int64_t full_dim = model.global_head_dim > 0 ? model.global_head_dim : model.head_dim;
  CMF_TRY(RopePair rope, ReadRope(fields, full_dim, model.max_position_embeddings));
  model.rope = std::move(rope.global);
  if (rope.local != model.rope) model.rope_local = std::move(rope.local);
  if (model.rope.kind == RopeKind::kProportional)
    model.global_partial_rotary_factor = model.rope.partial_rotary_factor;
  if (!rope.has_theta) in.Warn("no rope_theta anywhere: 10000 is used");

  CMF_CHECK(ReadMtpAndLoops(in));
  CMF_CHECK(ReadTie(in));
  CMF_CHECK(ReadWants(in));
  if (auto numbers = CheckNumbers(model); !numbers) return Fail(std::move(numbers).error().In(fields.what()));
  const Json* dtype = fields.Find("dtype");
  if (dtype == nullptr) dtype = fields.Find("torch_dtype");
  if (dtype != nullptr && dtype->is_string()) in.result.dtype = dtype->get<std::string>();
  return {};
}

}  // namespace

Result<HfConfig> ParseHfConfig(const HfConfigFiles& files) {
  const std::string what = files.folder.empty() ? "config.json" : files.folder + "/config.json";
  auto parsed = ParseJson(files.config, what);
  if (!parsed || !parsed->is_object()) {
    return Fail(ErrorKind::kCorrupt,
                fmt::format("{}: correct it, or fetch the file again",
                            parsed ? fmt::format("{}: not an object", what) : parsed.error().message));
  }
  const Json& outer = *parsed;

  HfConfig result;
  const auto nested = outer.find("text_config");
  const bool is_nested = nested != outer.end() && nested->is_object();
  const Json& text = is_nested ? *nested : outer;
  const std::string text_what = is_nested ? what + ": text_config" : what;
  result.is_multimodal = is_nested || outer.contains("vision_config") || outer.contains("audio_config");

  const ConfigFields outer_fields(what, outer);
  CMF_TRY(const auto outer_type, outer_fields.Text("model_type"));
  CMF_TRY(const auto text_type, ConfigFields(text_what, text).Text("model_type"));
  if (!outer_type && !text_type) return outer_fields.Missing("model_type");
  result.model_type = text_type ? *text_type : *outer_type;
  result.model.arch_name = outer_type ? *outer_type : *text_type;

  auto found = FindHfFamily(result.model_type);
  if (!found) return Fail(std::move(found).error().In(what));
  result.known_family = *found != nullptr;
  const HfFamily& family = result.known_family ? **found : CommonHfFamily();
  CMF_CHECK(RefuseQuantizedWeights(what, outer));
  if (is_nested) CMF_CHECK(RefuseQuantizedWeights(text_what, text));
  CMF_CHECK(CheckNeutralKeys(text_what, text));

  const Json defaults = Json::parse(family.defaults);
  const ConfigFields fields(text_what, text, &defaults);
  const Reading in{outer, fields, family, result};
  if (!result.known_family) {
    in.Warn(fmt::format("model_type '{}' is not a family we know: read as a plain decoder",
                        Shown(result.model_type)));
  }
  CMF_CHECK(ReadModel(in));
  ReadChat(files, outer, text, result);
  return result;
}

}  // namespace cmforge
