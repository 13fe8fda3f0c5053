// Deciding what to build, and refusing what cannot be.
#include "coreml/graphs/decoder_plan.h"

#include <algorithm>
#include <optional>

namespace cmforge::coreml {
namespace {

/// model_type without "_text".
std::string BareName(std::string name) {
  if (name.ends_with("_text")) name.resize(name.size() - 5);
  return name;
}

std::optional<Family> FamilyOf(const std::string& model_type) {
  const std::string name = BareName(model_type);
  if (name == "qwen3") return Family::kQwen3;
  if (name == "qwen3_5" || name == "qwen3_5_moe" || name == "qwen3_next") return Family::kQwen35;
  if (name == "gemma4") return Family::kGemma4;
  return std::nullopt;
}

class Planner {
 public:
  Planner(const TensorSource& source, const ModelConfig& config, const GraphOptions& options)
      : source_(source), config_(config) {
    plan_.config = config;
    plan_.options = options;
  }

  Result<DecoderPlan> Make() {
    const auto family = FamilyOf(config_.arch_name);
    if (!family) {
      return Refuse(
          fmt::format("no Core ML graph for models of type '{}': there are graphs for qwen3, qwen3_5, "
                      "qwen3_5_moe, qwen3_next and gemma4",
                      config_.arch_name));
    }
    plan_.family = *family;
    CMF_CHECK(CheckOptions());
    CMF_CHECK(CheckVariant());
    CMF_CHECK(plan_.family == Family::kGemma4 ? CheckGemma() : CheckQwen());
    if (plan_.family == Family::kGemma4) FillRhythm();
    for (int64_t i = 0; i < config_.num_layers; ++i) CMF_CHECK(PlanLayer(i));
    PlanStates();
    int64_t at = 0;
    for (const int64_t n : EvenParts(config_.num_layers, plan_.options.num_chunks)) {
      plan_.chunks.push_back({at, at + n});
      at += n;
    }
    plan_.head_parts = EvenParts(config_.vocab_size, plan_.options.split_lm_head);
    return std::move(plan_);
  }

 private:
  [[nodiscard]] tl::unexpected<Error> Refuse(std::string_view what) const {
    return Fail(ErrorKind::kUnsupported, fmt::format("{}: {}", source_.path(), what));
  }
  [[nodiscard]] tl::unexpected<Error> Misfit(std::string_view what) const {
    return Fail(ErrorKind::kUsage, fmt::format("{}: {}", source_.path(), what));
  }
  [[nodiscard]] const TensorInfo* Find(int64_t layer, std::string_view suffix) const {
    return source_.Find(fmt::format("model.layers.{}.{}", layer, suffix));
  }

  Result<void> CheckOptions() const {
    const GraphOptions& o = plan_.options;
    if (o.context_length < 1 || o.context_length > config_.max_position_embeddings) {
      return Misfit(fmt::format("context-length {}: the model knows positions up to {}: give 1 to {}",
                                o.context_length, config_.max_position_embeddings - 1,
                                config_.max_position_embeddings));
    }
    if (o.batch_size < 1 || o.batch_size > o.context_length) {
      return Misfit(
          fmt::format("batch-size {}: give 1 to the context length, {}", o.batch_size, o.context_length));
    }
    if (o.num_chunks < 1 || o.num_chunks > std::min<int64_t>(config_.num_layers, 99)) {
      return Misfit(
          fmt::format("chunks {}: the model has {} layers, file names hold two digits: give 1 to {}",
                      o.num_chunks, config_.num_layers, std::min<int64_t>(config_.num_layers, 99)));
    }
    if (o.split_lm_head < 1 || o.split_lm_head > config_.vocab_size) {
      return Misfit(fmt::format("split-lm-head {}: the vocabulary has {} tokens: give 1 to as many",
                                o.split_lm_head, config_.vocab_size));
    }
    return {};
  }

  /// What a configuration can say that these graphs do not compute.
  Result<void> CheckVariant() const {
    const ModelConfig& c = config_;
    if (c.norm_style == NormStyle::kUnknown) return Refuse("norm_style is not known");
    if (c.num_loops != 1) return Refuse(fmt::format("looped models ({} loops) have no graph", c.num_loops));
    if (!c.attention_heads_per_layer.empty())
      return Refuse("heads per layer differ: there is no graph for that");
    if (c.attn_logit_softcapping) return Refuse("attn_logit_softcapping has no graph here");
    if (c.num_kv_heads < 1 || c.num_attention_heads % c.num_kv_heads != 0) {
      return Fail(ErrorKind::kCorrupt, fmt::format("{}: {} attention heads over {} key-value heads",
                                                   source_.path(), c.num_attention_heads, c.num_kv_heads));
    }
    if (c.layer_types.size() != static_cast<size_t>(c.num_layers)) {
      return Fail(ErrorKind::kCorrupt, fmt::format("{}: {} layer types for {} layers", source_.path(),
                                                   c.layer_types.size(), c.num_layers));
    }
    return {};
  }

  Result<void> CheckQwen() const {
    const ModelConfig& c = config_;
    if (c.hidden_act != Activation::kSilu) return Refuse("an activation other than SiLU has no graph here");
    if (c.final_logit_softcapping) return Refuse("final_logit_softcapping has no graph for this family");
    if (c.hidden_size_per_layer_input > 0) return Refuse("per-layer inputs have no graph for this family");
    if (c.moe && (c.moe->router_sigmoid || c.moe->router_logit_softcapping != 0 ||
                  c.moe->routed_scaling_factor != 1)) {
      return Refuse("a sigmoid router, its soft cap or scaling factor has no graph here");
    }
    return RefuseTensors({".self_attn.g_proj.", ".pre_feedforward_layernorm.", ".post_feedforward_layernorm.",
                          ".short_conv.", ".mlp.expert_bias", ".layer_scalar"});
  }

  Result<void> CheckGemma() const {
    const ModelConfig& c = config_;
    if (c.hidden_act != Activation::kGeluTanh)
      return Refuse("an activation other than GELU (tanh) has no graph here");
    if (c.moe) return Refuse("the mixture of experts of gemma4 (enable_moe_block) has no graph");
    if (c.num_kv_shared_layers < 0 || c.num_kv_shared_layers >= c.num_layers)
      return Refuse(
          fmt::format("{} of {} layers share keys and values", c.num_kv_shared_layers, c.num_layers));
    if (c.hidden_size_per_layer_input > 0 && c.vocab_size_per_layer_input != c.vocab_size) {
      return Refuse(fmt::format("per-layer embeddings of {} tokens beside {}: there is no graph for that",
                                c.vocab_size_per_layer_input, c.vocab_size));
    }
    return RefuseTensors({".self_attn.g_proj.", ".short_conv.", ".mlp.gate.weight", ".mlp.experts."});
  }

  /// Operators that a family does not have would be left out silently otherwise.
  Result<void> RefuseTensors(std::initializer_list<std::string_view> foreign) const {
    for (const TensorInfo& info : source_.tensors()) {
      for (const std::string_view part : foreign) {
        if (info.name.find(part) != info.name.npos && info.name.find(".mtp.") == info.name.npos)
          return Refuse(fmt::format("tensor '{}' takes part in no graph of this family", info.name));
      }
    }
    return {};
  }

  Result<void> PlanLayer(int64_t i) {
    PlannedLayer layer;
    layer.kind = plan_.config.layer_types[static_cast<size_t>(i)];
    if (plan_.family == Family::kGemma4) return PlanGemmaLayer(i, layer);
    if (Find(i, "mlp.gate.weight")) {
      if (!config_.moe) return Refuse(fmt::format("layer {} has a router, the config knows no experts", i));
      if (plan_.family == Family::kQwen3)
        return Refuse(fmt::format("layer {} is a mixture of experts: only qwen3_5_moe ones have a graph", i));
      if (config_.moe->top_k < 1 || config_.moe->top_k > config_.moe->num_experts)
        return Refuse(fmt::format("{} of {} experts a token", config_.moe->top_k, config_.moe->num_experts));
      layer.is_mixture = true;
    }
    switch (layer.kind) {
      case LayerKind::kFullAttention: {
        const TensorInfo* q = Find(i, "self_attn.q_proj.weight");
        const int64_t rows = config_.num_attention_heads * config_.head_dim;
        layer.has_gate = q && q->shape == Shape{2 * rows, config_.hidden_size};
        layer.has_qk_norm = Find(i, "self_attn.q_norm.weight") != nullptr;
        layer.slot = plan_.attention_layers++;
        return Add(layer);
      }
      case LayerKind::kLinearAttention: {
        if (plan_.family != Family::kQwen35 || !config_.linear_attention)
          return Refuse(fmt::format("layer {} is linear attention: only qwen3_5 ones have a graph", i));
        const LinearAttentionConfig& linear = *config_.linear_attention;
        if (linear.num_key_heads < 1 || linear.num_value_heads % linear.num_key_heads != 0 ||
            linear.conv_kernel < 2) {
          return Refuse(fmt::format("layer {}: {} key heads, {} value heads, a convolution of {}", i,
                                    linear.num_key_heads, linear.num_value_heads, linear.conv_kernel));
        }
        layer.slot = linear_layers_++;
        return Add(layer);
      }
      case LayerKind::kSlidingAttention:
        return Refuse(
            fmt::format("layer {} attends to a window of {}: sliding windows have no graph for this "
                        "family",
                        i, config_.sliding_window.value_or(0)));
      case LayerKind::kShortConv:
        return Refuse(fmt::format("layer {} is a short convolution: it has no graph", i));
    }
    return {};
  }

  /// Files that only say every how many layers one is full.
  void FillRhythm() {
    std::vector<LayerKind>& kinds = plan_.config.layer_types;
    const int64_t pattern = config_.sliding_window_pattern.value_or(0);
    const bool is_tagged = std::find(kinds.begin(), kinds.end(), LayerKind::kSlidingAttention) != kinds.end();
    if (is_tagged || pattern <= 0 || !config_.sliding_window) return;
    for (int64_t i = 0; i < config_.num_layers; ++i) {
      if ((i + 1) % pattern != 0) kinds[static_cast<size_t>(i)] = LayerKind::kSlidingAttention;
    }
  }

  Result<void> PlanGemmaLayer(int64_t i, PlannedLayer layer) {
    const bool is_sliding = layer.kind == LayerKind::kSlidingAttention;
    if (!is_sliding && layer.kind != LayerKind::kFullAttention)
      return Refuse(fmt::format("layer {} does not attend: it has no graph in this family", i));
    if (is_sliding && config_.sliding_window.value_or(0) < 1)
      return Fail(ErrorKind::kCorrupt,
                  fmt::format("{}: layer {} slides, sliding_window is missing", source_.path(), i));
    layer.has_qk_norm = Find(i, "self_attn.q_norm.weight") != nullptr;
    if (i >= config_.num_layers - config_.num_kv_shared_layers) {
      for (int64_t j = config_.num_layers - config_.num_kv_shared_layers - 1; j >= 0; --j) {
        const PlannedLayer& owner = plan_.layers[static_cast<size_t>(j)];
        if (owner.kind != layer.kind) continue;
        layer.shares_kv_of = j;
        layer.slot = owner.slot;
        return Add(layer);
      }
      return Refuse(fmt::format("layer {} shares keys and values with no layer of its kind", i));
    }
    if (!Find(i, "self_attn.v_proj.weight"))
      return Refuse(fmt::format("layer {} uses keys as values (attention_k_eq_v): it has no graph", i));
    layer.slot = is_sliding ? sliding_layers_++ : plan_.attention_layers++;
    return Add(layer);
  }

  Result<void> Add(const PlannedLayer& layer) {
    plan_.layers.push_back(layer);
    return {};
  }

  [[nodiscard]] std::vector<int64_t> LayersOf(LayerKind kind) const {
    std::vector<int64_t> out;
    for (size_t i = 0; i < plan_.layers.size(); ++i) {
      if (plan_.layers[i].kind == kind && plan_.layers[i].shares_kv_of < 0)
        out.push_back(static_cast<int64_t>(i));
    }
    return out;
  }

  void PlanGemmaStates() {
    const GraphOptions& o = plan_.options;
    const int64_t window = config_.sliding_window.value_or(0);
    if (sliding_layers_ > 0) {
      const int64_t spare = o.window == GraphOptions::Window::kBlocks ? 2 * o.batch_size : o.batch_size;
      plan_.local_cache = std::min(o.context_length, window + spare);
      plan_.states.push_back(
          {std::string(kLocalState),
           {sliding_layers_, 2 * config_.num_kv_heads, plan_.local_cache, config_.head_dim},
           LayersOf(LayerKind::kSlidingAttention)});
    }
    if (plan_.attention_layers > 0) {
      PlannedLayer full;
      plan_.states.push_back(
          {std::string(kGlobalState),
           {plan_.attention_layers, 2 * config_.num_kv_heads, o.context_length, plan_.head_dim(full)},
           LayersOf(LayerKind::kFullAttention)});
    }
  }

  void PlanStates() {
    if (plan_.family == Family::kGemma4) return PlanGemmaStates();
    if (plan_.attention_layers > 0) {
      plan_.states.push_back(
          {std::string(kKvState),
           {2 * plan_.attention_layers, config_.num_kv_heads, plan_.options.context_length, config_.head_dim},
           LayersOf(LayerKind::kFullAttention)});
    }
    if (linear_layers_ == 0) return;
    const LinearAttentionConfig& linear = *config_.linear_attention;
    const int64_t channels =
        2 * linear.num_key_heads * linear.key_head_dim + linear.num_value_heads * linear.value_head_dim;
    const std::vector<int64_t> layers = LayersOf(LayerKind::kLinearAttention);
    plan_.states.push_back(
        {std::string(kDeltaState),
         {linear_layers_ * linear.num_value_heads, linear.key_head_dim, linear.value_head_dim},
         layers});
    plan_.states.push_back(
        {std::string(kConvState), {linear_layers_, linear.conv_kernel - 1, channels}, layers});
    // The inverse doubles blocks, so a chunk is a power of two; it must divide the batch.
    plan_.delta_chunk = 1;
    while (plan_.delta_chunk < 64 && plan_.options.batch_size % (2 * plan_.delta_chunk) == 0)
      plan_.delta_chunk *= 2;
  }

  const TensorSource& source_;
  const ModelConfig& config_;
  DecoderPlan plan_;
  int64_t linear_layers_ = 0, sliding_layers_ = 0;
};

}  // namespace

std::string_view DecoderPlan::architecture() const {
  switch (family) {
    case Family::kQwen3:
      return "qwen3";
    case Family::kQwen35:
      return "qwen3_5";
    case Family::kGemma4:
      return "gemma4";
  }
  return "";
}

std::string_view DecoderPlan::default_prefix() const {
  switch (family) {
    case Family::kQwen3:
      return "qwen";
    case Family::kQwen35:
      return "qwen35";
    case Family::kGemma4:
      return "gemma4";
  }
  return "";
}

std::vector<int64_t> EvenParts(int64_t total, int64_t parts) {
  std::vector<int64_t> out(static_cast<size_t>(parts), total / parts);
  for (int64_t i = 0; i < total % parts; ++i) ++out[static_cast<size_t>(i)];
  return out;
}

Result<DecoderPlan> PlanDecoder(const TensorSource& source, const ModelConfig& config,
                                const GraphOptions& options) {
  return Planner(source, config, options).Make();
}

}  // namespace cmforge::coreml
