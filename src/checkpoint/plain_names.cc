// Name mapping, step by step: towers, MTP, wrappers, parts of the model, layers.
#include "checkpoint/plain_names.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <vector>

#include "checkpoint/messages.h"

namespace cmforge {
namespace {

bool IsOneOf(std::string_view word, std::span<const std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

constexpr std::string_view kTowers[] = {"visual",
                                        "vision_tower",
                                        "vision_model",
                                        "vision_encoder",
                                        "vision_embed_tokens",
                                        "vit",
                                        "audio_tower",
                                        "audio_model",
                                        "audio_encoder",
                                        "audio_embed",
                                        "speech",
                                        "image_newline",
                                        "embed_vision",
                                        "embed_audio",
                                        "multi_modal_projector",
                                        "mm_projector",
                                        "connector",
                                        "resampler",
                                        "vision_resampler",
                                        "vision_projection",
                                        "audio_projection"};

/// Longer ones first.
constexpr std::string_view kWrappers[] = {"model.language_model.",
                                          "language_model.model.",
                                          "language_model.",
                                          "model.text_model.",
                                          "text_model.",
                                          "_orig_mod.",
                                          "module."};

constexpr std::string_view kParts[] = {"embed_tokens",
                                       "layers",
                                       "norm",
                                       "lm_head",
                                       "embed_tokens_per_layer",
                                       "per_layer_model_projection",
                                       "per_layer_projection_norm"};

std::string_view FirstSegment(std::string_view name) { return name.substr(0, name.find('.')); }

bool LiesInATower(std::string_view name) {
  for (int i = 0; i < 3 && !name.empty(); ++i) {
    const std::string_view segment = FirstSegment(name);
    if (IsOneOf(segment, kTowers)) return true;
    name.remove_prefix(std::min(name.size(), segment.size() + 1));
  }
  return false;
}

/// What follows an "mtp." within the first segments.
std::optional<std::string_view> BehindMtp(std::string_view name) {
  for (int i = 0; i < 3 && !name.empty(); ++i) {
    const std::string_view segment = FirstSegment(name);
    name.remove_prefix(std::min(name.size(), segment.size() + 1));
    if (segment == "mtp") return name;
  }
  return std::nullopt;
}

bool Replace(std::string& text, std::string_view from, std::string_view to) {
  if (!text.starts_with(from)) return false;
  text.replace(0, from.size(), to);
  return true;
}

/// Layer suffixes in the words of other families.
void RenameSuffix(std::string& suffix, bool is_lfm2) {
  if (is_lfm2) {
    Replace(suffix, "operator_norm.", "input_layernorm.");
    Replace(suffix, "ffn_norm.", "post_attention_layernorm.");
    Replace(suffix, "self_attn.out_proj.", "self_attn.o_proj.");
    Replace(suffix, "self_attn.q_layernorm.", "self_attn.q_norm.");
    Replace(suffix, "self_attn.k_layernorm.", "self_attn.k_norm.");
    Replace(suffix, "conv.", "short_conv.");
    if (Replace(suffix, "feed_forward.", "mlp.")) {
      constexpr std::pair<std::string_view, std::string_view> kMatrices[] = {
          {"w1.weight", "gate_proj.weight"},
          {"w3.weight", "up_proj.weight"},
          {"w2.weight", "down_proj.weight"}};
      for (const auto& [from, to] : kMatrices) {
        if (suffix.ends_with(from) && suffix[suffix.size() - from.size() - 1] == '.') {
          suffix.replace(suffix.size() - from.size(), from.size(), to);
        }
      }
    }
  }
  Replace(suffix, "mlp.shared_experts.", "mlp.shared_expert.");
  if (suffix == "mlp.experts.e_score_correction_bias" || suffix == "mlp.gate.e_score_correction_bias") {
    suffix = "mlp.expert_bias";
  }
}

/// "layers.3.X" -> 3 and X.
std::optional<std::pair<int64_t, std::string>> SplitLayer(std::string_view name) {
  constexpr std::string_view kLayers = "layers.";
  if (!name.starts_with(kLayers)) return std::nullopt;
  name.remove_prefix(kLayers.size());
  int64_t index = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
  if (error != std::errc() || index < 0 || end == name.data() + name.size() || *end != '.')
    return std::nullopt;
  return std::pair(index, std::string(end + 1, name.data() + name.size()));
}

PlainName Skipped() { return {.is_skipped = true, .name = {}, .prefix = {}}; }

PlainName InLayer(std::string_view stack, int64_t layer, std::string_view suffix) {
  PlainName plain;
  plain.prefix = fmt::format("{}{}.", stack, layer);
  plain.name = fmt::format("{}{}", plain.prefix, suffix);
  return plain;
}

}  // namespace

Result<PlainName> ToPlainName(std::string_view raw, const HfConfig& config) {
  const bool is_lfm2 = config.model_type.starts_with("lfm2");
  if (LiesInATower(raw) || raw.ends_with("rotary_emb.inv_freq")) return Skipped();

  if (const auto behind = BehindMtp(raw)) {
    std::string rest(*behind);
    if (auto layer = SplitLayer(rest)) {
      RenameSuffix(layer->second, is_lfm2);
      return InLayer("model.mtp.layers.", layer->first, layer->second);
    }
    Replace(rest, "fc.", "eh_proj.");
    Replace(rest, "pre_fc_norm_embedding.", "enorm.");
    Replace(rest, "pre_fc_norm_hidden.", "hnorm.");
    PlainName plain;
    plain.name = "model.mtp." + rest;
    return IsKnownPart(plain.name) ? plain : Skipped();
  }

  std::string_view name = raw;
  const auto strip_one = [&name] {
    for (const std::string_view wrapper : kWrappers) {
      if (!name.starts_with(wrapper)) continue;
      name.remove_prefix(wrapper.size());
      return true;
    }
    return false;
  };
  while (strip_one()) {
  }
  if (name.starts_with("model.")) name.remove_prefix(6);
  if (is_lfm2 && name.starts_with("embedding_norm.")) name.remove_prefix(10);  // leaves "norm."

  if (!IsOneOf(FirstSegment(name), kParts)) {
    if (config.known_family || config.is_multimodal) return Skipped();
    return Fail(
        ErrorKind::kUnsupported,
        fmt::format(
            "tensor '{}' is of a kind this build does not run, and model_type '{}' is not one it knows",
            Shown(raw), Shown(config.model_type)));
  }
  if (auto layer = SplitLayer(name)) {
    if (layer->first >= config.model.num_layers) {
      PlainName plain = Skipped();
      plain.layer = layer->first;
      return plain;
    }
    RenameSuffix(layer->second, is_lfm2);
    PlainName plain = InLayer("model.layers.", layer->first, layer->second);
    plain.layer = layer->first;
    return plain;
  }
  if (FirstSegment(name) == "layers") return Skipped();  // of no layer that can be counted
  PlainName plain;
  plain.name = name.starts_with("lm_head.") ? std::string(name) : fmt::format("model.{}", name);
  return plain;
}

bool IsKnownPart(std::string_view name) {
  static constexpr std::string_view kKnown[] = {"lm_head.weight",
                                                "model.embed_tokens.weight",
                                                "model.norm.weight",
                                                "model.embed_tokens_per_layer.weight",
                                                "model.per_layer_model_projection.weight",
                                                "model.per_layer_projection_norm.weight",
                                                "model.mtp.eh_proj.weight",
                                                "model.mtp.enorm.weight",
                                                "model.mtp.hnorm.weight",
                                                "model.mtp.norm.weight"};
  return IsOneOf(name, kKnown);
}

bool IsKnownLayerTensor(std::string_view suffix) {
  static constexpr std::string_view kKnown[] = {"input_layernorm.weight",
                                                "post_attention_layernorm.weight",
                                                "pre_feedforward_layernorm.weight",
                                                "post_feedforward_layernorm.weight",
                                                "self_attn.q_proj.weight",
                                                "self_attn.q_proj.bias",
                                                "self_attn.k_proj.weight",
                                                "self_attn.k_proj.bias",
                                                "self_attn.v_proj.weight",
                                                "self_attn.v_proj.bias",
                                                "self_attn.o_proj.weight",
                                                "self_attn.o_proj.bias",
                                                "self_attn.g_proj.weight",
                                                "self_attn.q_norm.weight",
                                                "self_attn.k_norm.weight",
                                                "mlp.gate_proj.weight",
                                                "mlp.gate_proj.bias",
                                                "mlp.up_proj.weight",
                                                "mlp.up_proj.bias",
                                                "mlp.down_proj.weight",
                                                "mlp.down_proj.bias",
                                                "mlp.gate.weight",
                                                "mlp.expert_bias",
                                                "mlp.shared_expert.gate_proj.weight",
                                                "mlp.shared_expert.up_proj.weight",
                                                "mlp.shared_expert.down_proj.weight",
                                                "mlp.shared_expert_gate.weight",
                                                "linear_attn.in_proj_qkv.weight",
                                                "linear_attn.in_proj_z.weight",
                                                "linear_attn.in_proj_b.weight",
                                                "linear_attn.in_proj_a.weight",
                                                "linear_attn.conv1d.weight",
                                                "linear_attn.A_log",
                                                "linear_attn.dt_bias",
                                                "linear_attn.norm.weight",
                                                "linear_attn.out_proj.weight",
                                                "short_conv.in_proj.weight",
                                                "short_conv.conv.weight",
                                                "short_conv.out_proj.weight",
                                                "per_layer_input_gate.weight",
                                                "per_layer_projection.weight",
                                                "post_per_layer_input_norm.weight",
                                                "layer_scalar"};
  if (IsOneOf(suffix, kKnown)) return true;
  constexpr std::string_view kExperts = "mlp.experts.";
  if (!suffix.starts_with(kExperts)) return false;
  suffix.remove_prefix(kExperts.size());
  const size_t digits = suffix.find_first_not_of("0123456789");
  if (digits == 0 || digits == suffix.npos) return false;
  constexpr std::string_view kMatrices[] = {".gate_proj.weight", ".up_proj.weight", ".down_proj.weight"};
  return IsOneOf(suffix.substr(digits), kMatrices);
}

}  // namespace cmforge
