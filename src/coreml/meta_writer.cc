// meta.yaml, written by hand: the order of keys and the flow lists are those of the specification.
#include "coreml/meta_writer.h"

#include <fmt/ranges.h>

namespace cmforge::coreml {
namespace {

/// A scalar that YAML reads back as this text: quoted unless it is plain beyond doubt.
std::string Quoted(const std::string& text) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  };
  bool plain = !text.empty() && ((text[0] >= 'a' && text[0] <= 'z') || (text[0] >= 'A' && text[0] <= 'Z'));
  for (const char c : text) plain = plain && is_plain(c);
  if (plain) return text;
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\x{:02x}", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

/// A number that is read as one with a fraction: "1.0".
std::string Fraction(double value) {
  std::string text = fmt::format("{}", value);
  return text.find_first_of(".en") == text.npos ? text + ".0" : text;
}

/// What the checkpoint recommends, or nothing. Readers need three of the keys; the library that checkpoints
/// are made for means 1.0, 1.0 and 50 where it says nothing.
std::string SamplingText(const RecommendedSampling& s) {
  if (!s.do_sample && !s.temperature && !s.top_p && !s.top_k && !s.min_p && !s.repetition_penalty) return "";
  std::string text = fmt::format("{{do_sample: {}, temperature: {}, top_p: {}, top_k: {}",
                                 s.do_sample.value_or(true), Fraction(s.temperature.value_or(1.0)),
                                 Fraction(s.top_p.value_or(1.0)), s.top_k.value_or(50));
  if (s.min_p) text += ", min_p: " + Fraction(*s.min_p);
  if (s.repetition_penalty) text += ", repetition_penalty: " + Fraction(*s.repetition_penalty);
  return text + "}";
}

/// The keys of a part's weights: lut_PART, and what its form needs besides.
std::string WeightKeys(std::string_view part, const WeightForm& form, std::string_view method) {
  switch (form.kind) {
    case WeightForm::Kind::kHalf:
      return fmt::format("    lut_{}: none\n", part);
    case WeightForm::Kind::kScaled:
      return fmt::format("    lut_{0}: none\n    quant_{0}: {1}\n", part, FormText(form));
    case WeightForm::Kind::kPalette:
      return fmt::format("    lut_{0}: {1} # {2}\n    lut_{0}_per_channel: {3}\n", part, form.bits, method,
                         form.group);
  }
  return "";
}

std::string_view LayerTypeName(LayerKind kind) {
  switch (kind) {
    case LayerKind::kFullAttention:
      return "full";
    case LayerKind::kSlidingAttention:
      return "sliding";
    case LayerKind::kLinearAttention:
      return "linear";
    case LayerKind::kShortConv:
      return "conv";
  }
  return "";
}

}  // namespace

std::string MetaText(const MetaInput& input) {
  const DecoderPlan& plan = *input.plan;
  const ModelConfig& c = plan.config;
  std::string out = "model_info:\n";
  const auto info = [&](std::string_view key, std::string_view value) {
    out += fmt::format("  {}: {}\n", key, value);
  };
  const auto parameter = [&](std::string_view key, const auto& value) {
    out += fmt::format("    {}: {}\n", key, value);
  };
  const auto list = [](const auto& values) { return fmt::format("[{}]", fmt::join(values, ", ")); };

  info("name", Quoted(fmt::format("anemll-{}-ctx{}", input.name, plan.options.context_length)));
  info("version", kAnemllVersion);
  out += "  description: |\n";
  out += fmt::format("    {} with a context of {} tokens, prompts in batches of {}\n", input.name,
                     plan.options.context_length, plan.options.batch_size);
  info("license", "MIT");
  info("author", "Anemll");
  info("framework", "Core ML");
  info("language", "C++");
  info("architecture", plan.architecture());
  out += "  parameters:\n";
  parameter("context_length", plan.options.context_length);
  parameter("batch_size", plan.options.batch_size);
  const Compression& compression = *input.compression;
  out += WeightKeys("embeddings", compression.embeddings, "kmeans");  // no activations meet a looked-up table
  out += WeightKeys("ffn", compression.ffn, compression.method_name());
  if (compression.ffn_mixed)
    out += fmt::format("    lut_ffn_mixed: {:.2f} # {:.3f} bits on average\n", *compression.ffn_mixed,
                       input.ffn_average);
  out += WeightKeys("lmhead", compression.lmhead, compression.method_name());
  parameter("num_chunks", plan.options.num_chunks);
  parameter("model_prefix", Quoted(input.prefix));
  parameter("embeddings", Quoted(input.embeddings));
  parameter("lm_head", Quoted(input.lm_head));
  parameter("ffn", Quoted(input.ffn));
  parameter("split_lm_head", plan.options.split_lm_head);
  parameter("vocab_size", c.vocab_size);
  parameter("lm_head_chunk_sizes", list(plan.head_parts));
  parameter("prefill_dynamic_slice", true);
  parameter("prefill_last_token_output", true);
  parameter("hidden_size", c.hidden_size);
  parameter("num_layers", c.num_layers);
  if (const std::string sampling = SamplingText(input.sampling); !sampling.empty())
    parameter("recommended_sampling", sampling);
  if (plan.is_recurrent()) {
    parameter("recurrent_state", true);
    parameter("prefill_full_batches_only", true);
    parameter("gdn_chunk_size", plan.delta_chunk);
    if (c.moe) {
      parameter("moe", fmt::format("{{experts: {}, experts_per_token: {}, evaluation: dense}}",
                                   c.moe->num_experts, c.moe->top_k));
    }
  }
  if (plan.family == Family::kQwen3) return out;
  if (plan.family == Family::kGemma4) {
    if (plan.local_cache > 0) parameter("local_attention_window", c.sliding_window.value_or(0));
    if (plan.local_cache_shifts()) parameter("local_cache_length", plan.local_cache);
    if (c.final_logit_softcapping) parameter("final_logit_softcap", Fraction(*c.final_logit_softcapping));
    if (c.hidden_size_per_layer_input > 0)
      parameter("per_layer_inputs", c.num_layers * c.hidden_size_per_layer_input);
    std::vector<std::string> shared;
    for (size_t i = 0; i < plan.layers.size(); ++i) {
      if (plan.layers[i].shares_kv_of >= 0)
        shared.push_back(fmt::format("{}: {}", i, plan.layers[i].shares_kv_of));
    }
    if (!shared.empty()) parameter("kv_shared_layers", fmt::format("{{{}}}", fmt::join(shared, ", ")));
  }
  std::vector<std::string_view> types;
  for (const PlannedLayer& layer : plan.layers) types.push_back(LayerTypeName(layer.kind));
  parameter("layer_types", list(types));
  out += "    states:\n";
  for (const PlannedState& state : plan.states) {
    out += fmt::format("    - name: {}\n      shape: {}\n      dtype: float16\n      layers: {}\n",
                       state.name, list(state.shape), list(state.layers));
  }
  return out;
}

}  // namespace cmforge::coreml
