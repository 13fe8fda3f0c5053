// FitTensors: the model's parts one after another.
#include "checkpoint/tensor_fit.h"

#include <algorithm>

#include "checkpoint/messages.h"

namespace cmforge {
namespace {

bool IsFloat(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF64;
}

class Fitter {
 public:
  Fitter(const TensorSource& tensors, HfConfig& config)
      : tensors_(tensors), config_(config), model_(config.model), hidden_(config.model.hidden_size) {}

  Result<void> Run() {
    CMF_CHECK(Ends());
    for (int64_t i = 0; i < model_.num_layers; ++i) {
      prefix_ = fmt::format("model.layers.{}.", i);
      CMF_CHECK(Layer(i));
    }
    CMF_CHECK(Mtp());
    if (lfm2_width_ > 0) model_.intermediate_size = lfm2_width_;
    return {};
  }

 private:
  [[nodiscard]] const TensorInfo* Find(std::string_view suffix) const {
    return tensors_.Find(prefix_ + std::string(suffix));
  }
  [[nodiscard]] bool Has(std::string_view suffix) const { return Find(suffix) != nullptr; }
  void Warn(std::string_view message) {
    config_.warnings.push_back(fmt::format("{}: {}", tensors_.path(), message));
  }

  [[nodiscard]] tl::unexpected<Error> Missing(std::string_view suffix) const {
    return Fail(
        ErrorKind::kCorrupt,
        fmt::format("{}: tensor '{}{}' is missing, the config calls for it: fetch the checkpoint again",
                    tensors_.path(), prefix_, suffix));
  }

  /// The tensor behind the current prefix, with exactly that shape.
  Result<void> Want(std::string_view suffix, const Shape& shape) const {
    const TensorInfo* info = Find(suffix);
    if (info == nullptr) return Missing(suffix);
    if (info->shape != shape) {
      return Fail(ErrorKind::kCorrupt,
                  fmt::format("{}: tensor '{}': shape {}, the config wants {}: fetch the checkpoint again",
                              tensors_.path(), info->name, ShapeText(info->shape), ShapeText(shape)));
    }
    if (!IsFloat(info->dtype)) {
      return Fail(ErrorKind::kUnsupported,
                  fmt::format("{}: tensor '{}': weights of dtype {} are packed, this build does not "
                              "read them: take the unquantized checkpoint",
                              tensors_.path(), info->name, DTypeName(info->dtype)));
    }
    return {};
  }
  Result<void> WantIfThere(std::string_view suffix, const Shape& shape) const {
    return Has(suffix) ? Want(suffix, shape) : Result<void>();
  }
  Result<void> WantIf(bool needed, std::string_view suffix, const Shape& shape) const {
    return needed ? Want(suffix, shape) : WantIfThere(suffix, shape);
  }

  /// Embedding, final norm, head, per-layer embeddings.
  Result<void> Ends() {
    prefix_ = "model.";
    CMF_CHECK(Want("embed_tokens.weight", {model_.vocab_size, hidden_}));
    CMF_CHECK(Want("norm.weight", {hidden_}));
    if (const int64_t width = model_.hidden_size_per_layer_input; width > 0) {
      CMF_CHECK(Want("embed_tokens_per_layer.weight",
                     {model_.vocab_size_per_layer_input, model_.num_layers * width}));
      CMF_CHECK(Want("per_layer_model_projection.weight", {model_.num_layers * width, hidden_}));
      CMF_CHECK(Want("per_layer_projection_norm.weight", {width}));
    }
    prefix_ = "";
    const bool has_head = Has("lm_head.weight");
    if (has_head) CMF_CHECK(Want("lm_head.weight", {model_.vocab_size, hidden_}));
    if (has_head && model_.tie_word_embeddings && !config_.tie_is_default) {
      Warn("tie_word_embeddings is true, yet lm_head.weight is there: it is used");
    }
    if (!has_head && !model_.tie_word_embeddings) {
      Warn("tie_word_embeddings is false, yet lm_head.weight is nowhere: the embedding serves as the head");
    }
    model_.tie_word_embeddings = !has_head;
    return {};
  }

  Result<void> Layer(int64_t i) {
    CMF_CHECK(Want("input_layernorm.weight", {hidden_}));
    CMF_CHECK(Want("post_attention_layernorm.weight", {hidden_}));
    CMF_CHECK(WantIf(config_.wants_four_norms, "pre_feedforward_layernorm.weight", {hidden_}));
    CMF_CHECK(WantIf(config_.wants_four_norms, "post_feedforward_layernorm.weight", {hidden_}));
    switch (model_.layer_types[static_cast<size_t>(i)]) {
      case LayerKind::kFullAttention:
      case LayerKind::kSlidingAttention:
        CMF_CHECK(Attention(i));
        break;
      case LayerKind::kLinearAttention:
        CMF_CHECK(LinearAttention());
        break;
      case LayerKind::kShortConv:
        CMF_CHECK(ShortConvolution());
        break;
    }
    CMF_CHECK(FeedForward(i));
    CMF_CHECK(WantIfThere("layer_scalar", {1}));
    if (const int64_t width = model_.hidden_size_per_layer_input; width > 0) {
      CMF_CHECK(Want("per_layer_input_gate.weight", {width, hidden_}));
      CMF_CHECK(Want("per_layer_projection.weight", {hidden_, width}));
      CMF_CHECK(Want("post_per_layer_input_norm.weight", {hidden_}));
    }
    return {};
  }

  /// Layer -1: the MTP head's, which is of the full kind.
  Result<void> Attention(int64_t i) {
    const bool is_full = i < 0 || model_.layer_types[static_cast<size_t>(i)] == LayerKind::kFullAttention;
    const bool is_global = is_full && model_.global_head_dim > 0;
    const int64_t heads = i >= 0 && !model_.attention_heads_per_layer.empty()
                              ? model_.attention_heads_per_layer[static_cast<size_t>(i)]
                              : model_.num_attention_heads;
    const int64_t dim = is_global ? model_.global_head_dim : model_.head_dim;
    const int64_t kv = (is_global ? model_.num_global_kv_heads : model_.num_kv_heads) * dim;
    // Hybrids double the query rows: an output gate beside each head's query.
    const bool may_gate =
        (model_.linear_attention && model_.linear_attention->num_key_heads > 0) || !config_.known_family;
    const TensorInfo* q = Find("self_attn.q_proj.weight");
    const bool is_gated = may_gate && q != nullptr && q->shape == Shape{2 * heads * dim, hidden_};
    const int64_t q_rows = is_gated ? 2 * heads * dim : heads * dim;
    const bool is_shared = i >= model_.num_layers - model_.num_kv_shared_layers;

    CMF_CHECK(Want("self_attn.q_proj.weight", {q_rows, hidden_}));
    CMF_CHECK(WantIf(!is_shared, "self_attn.k_proj.weight", {kv, hidden_}));
    // Dense Gemma 4: values are keys on full layers.
    CMF_CHECK(WantIf(!is_shared && !is_global, "self_attn.v_proj.weight", {kv, hidden_}));
    CMF_CHECK(Want("self_attn.o_proj.weight", {hidden_, heads * dim}));
    const bool has_bias = config_.wants_qkv_bias || Has("self_attn.q_proj.bias") ||
                          Has("self_attn.k_proj.bias") || Has("self_attn.v_proj.bias");
    if (has_bias) {
      CMF_CHECK(Want("self_attn.q_proj.bias", {q_rows}));
      CMF_CHECK(Want("self_attn.k_proj.bias", {kv}));
      CMF_CHECK(Want("self_attn.v_proj.bias", {kv}));
    }
    CMF_CHECK(WantIf(config_.wants_o_bias, "self_attn.o_proj.bias", {hidden_}));
    const bool has_norm =
        config_.wants_qk_norm || Has("self_attn.q_norm.weight") || Has("self_attn.k_norm.weight");
    CMF_CHECK(WantIf(has_norm, "self_attn.q_norm.weight", {dim}));
    CMF_CHECK(WantIf(has_norm && !is_shared, "self_attn.k_norm.weight", {dim}));
    if (const TensorInfo* gate = Find("self_attn.g_proj.weight"); gate != nullptr) {
      const bool per_channel = !gate->shape.empty() && gate->shape[0] == heads * dim;
      CMF_CHECK(Want("self_attn.g_proj.weight", {per_channel ? heads * dim : heads, hidden_}));
    }
    return {};
  }

  Result<void> LinearAttention() {
    const LinearAttentionConfig& linear = *model_.linear_attention;
    const int64_t values = linear.num_value_heads * linear.value_head_dim;
    const int64_t channels = 2 * linear.num_key_heads * linear.key_head_dim + values;
    CMF_CHECK(Want("linear_attn.in_proj_qkv.weight", {channels, hidden_}));
    CMF_CHECK(Want("linear_attn.in_proj_z.weight", {values, hidden_}));
    CMF_CHECK(Want("linear_attn.in_proj_b.weight", {linear.num_value_heads, hidden_}));
    CMF_CHECK(Want("linear_attn.in_proj_a.weight", {linear.num_value_heads, hidden_}));
    CMF_CHECK(Want("linear_attn.conv1d.weight", {channels, 1, linear.conv_kernel}));
    CMF_CHECK(Want("linear_attn.A_log", {linear.num_value_heads}));
    CMF_CHECK(Want("linear_attn.dt_bias", {linear.num_value_heads}));
    CMF_CHECK(Want("linear_attn.norm.weight", {linear.value_head_dim}));
    return Want("linear_attn.out_proj.weight", {hidden_, values});
  }

  Result<void> ShortConvolution() {
    CMF_CHECK(Want("short_conv.in_proj.weight", {3 * hidden_, hidden_}));
    CMF_CHECK(Want("short_conv.conv.weight", {hidden_, 1, model_.linear_attention->conv_kernel}));
    return Want("short_conv.out_proj.weight", {hidden_, hidden_});
  }

  Result<void> Matrices(std::string_view prefix, int64_t width, bool needs_bias = false) const {
    CMF_CHECK(Want(fmt::format("{}gate_proj.weight", prefix), {width, hidden_}));
    CMF_CHECK(Want(fmt::format("{}up_proj.weight", prefix), {width, hidden_}));
    CMF_CHECK(Want(fmt::format("{}down_proj.weight", prefix), {hidden_, width}));
    CMF_CHECK(WantIf(needs_bias, fmt::format("{}gate_proj.bias", prefix), {width}));
    CMF_CHECK(WantIf(needs_bias, fmt::format("{}up_proj.bias", prefix), {width}));
    return WantIf(needs_bias, fmt::format("{}down_proj.bias", prefix), {hidden_});
  }

  /// The router's presence tells a mixture of experts from a plain MLP.
  Result<void> FeedForward(int64_t i) {
    const bool is_dense = Has("mlp.gate_proj.weight");
    if (Has("mlp.gate.weight") || (model_.moe && !is_dense)) return Experts();
    int64_t width = model_.intermediate_size;
    const TensorInfo* gate = Find("mlp.gate_proj.weight");
    if (gate != nullptr && gate->shape.size() == 2) {
      // Gemma 4 doubles the width of layers that share keys and values; LFM2 files round it in ways of their
      // own.
      if (i >= model_.num_layers - model_.num_kv_shared_layers && gate->shape[0] == 2 * width) width *= 2;
      if (config_.model_type.starts_with("lfm2")) lfm2_width_ = width = gate->shape[0];
    }
    return Matrices("mlp.", width, config_.wants_mlp_bias);
  }

  Result<void> Experts() {
    if (!model_.moe) {
      return Fail(ErrorKind::kCorrupt, fmt::format("{}: tensor '{}mlp.gate.weight' is a router, the config "
                                                   "knows no experts: fetch config.json again",
                                                   tensors_.path(), prefix_));
    }
    const MoeConfig& moe = *model_.moe;
    CMF_CHECK(Want("mlp.gate.weight", {moe.num_experts, hidden_}));
    CMF_CHECK(WantIfThere("mlp.expert_bias", {moe.num_experts}));
    for (int64_t e = 0; e < moe.num_experts; ++e) {
      CMF_CHECK(Matrices(fmt::format("mlp.experts.{}.", e), moe.intermediate_size));
    }
    if (moe.shared_expert_intermediate_size > 0) {
      CMF_CHECK(Matrices("mlp.shared_expert.", moe.shared_expert_intermediate_size));
    }
    // Softmax routers gate the shared expert, sigmoid ones do not.
    const bool is_gated =
        moe.shared_expert_intermediate_size > 0 && !moe.router_sigmoid && config_.known_family;
    return WantIf(is_gated, "mlp.shared_expert_gate.weight", {1, hidden_});
  }

  Result<void> Mtp() {
    const auto all = tensors_.tensors();
    const bool is_there = std::any_of(
        all.begin(), all.end(), [](const TensorInfo& info) { return info.name.starts_with("model.mtp."); });
    if (!is_there) {
      if (model_.mtp) Warn("the config announces an MTP head, its tensors are not there: it is off");
      model_.mtp.reset();
      return {};
    }
    if (!model_.mtp) model_.mtp = MtpConfig{};
    prefix_ = "model.mtp.";
    CMF_CHECK(Want("eh_proj.weight", {hidden_, 2 * hidden_}));
    for (const char* norm : {"enorm.weight", "hnorm.weight", "norm.weight"}) CMF_CHECK(Want(norm, {hidden_}));
    for (int64_t i = 0; i < model_.mtp->num_layers; ++i) {
      prefix_ = fmt::format("model.mtp.layers.{}.", i);
      CMF_CHECK(Want("input_layernorm.weight", {hidden_}));
      CMF_CHECK(Want("post_attention_layernorm.weight", {hidden_}));
      CMF_CHECK(Attention(-1));
      CMF_CHECK(FeedForward(-1));
    }
    return {};
  }

  const TensorSource& tensors_;
  HfConfig& config_;
  ModelConfig& model_;
  const int64_t hidden_;
  std::string prefix_;
  int64_t lfm2_width_ = 0;
};

}  // namespace

Result<void> FitTensors(const TensorSource& tensors, HfConfig& config) {
  return Fitter(tensors, config).Run();
}

}  // namespace cmforge
