// Loading: one function per operator, each deciding by the tensors that are there.
#include "engine/network.h"

#include <algorithm>
#include <cmath>

#include "engine/model.h"
#include "model/config_limits.h"

namespace cmforge::engine {
namespace {

constexpr int64_t kMaxKeyHeadDim = 512;  // bounds the recurrent state that a small file can ask for

class Builder {
 public:
  Builder(std::shared_ptr<const TensorSource> source, ModelConfig config, const RunControl& run)
      : reader_(source), run_(run) {
    network_.source = std::move(source);
    network_.config = std::move(config);
  }

  Result<Network> Build();

 private:
  Result<void> CheckConfig();
  Result<void> BuildEnds();
  Result<Layer> BuildLayer(const std::string& prefix, int64_t index, bool is_draft);
  Result<Attention> BuildAttention(const std::string& prefix, int64_t index, bool is_draft);
  Result<DeltaNet> BuildDeltaNet(const std::string& prefix);
  Result<ShortConv> BuildShortConv(const std::string& prefix);
  Result<FeedForward> BuildFeedForward(const std::string& prefix, int64_t width = 0);
  Result<Mixture> BuildMixture(const std::string& prefix);
  Result<std::optional<DraftHead>> BuildDraftHead();
  Result<void> RefuseUnknownTensors() const;

  [[nodiscard]] bool IsSliding(int64_t layer) const;
  [[nodiscard]] std::optional<int64_t> SharedKvLayer(int64_t layer) const;
  Result<int64_t> RopeIndex(const RopeConfig& rope, int64_t head_dim);
  [[nodiscard]] std::string_view path() const { return reader_.source().path(); }
  [[nodiscard]] const ModelConfig& config() const { return network_.config; }

  WeightReader reader_;
  const RunControl& run_;
  Network network_;
};

Result<void> Builder::CheckConfig() {
  const ModelConfig& c = config();
  const auto bad = [&](std::string what) {
    return Fail(ErrorKind::kCorrupt, fmt::format("{}: config: {}", path(), what));
  };
  if (c.norm_style == NormStyle::kUnknown) {
    return Fail(
        ErrorKind::kUnsupported,
        fmt::format("{}: config: no norm_style: weights cannot be run without it: convert the model again",
                    path()));
  }
  struct Field {
    const char* name;
    int64_t value, least, most;
  };
  for (const auto& [name, value, least, most] :
       {Field{"hidden_size", c.hidden_size, 1, 1 << 20}, Field{"num_layers", c.num_layers, 1, 1 << 16},
        Field{"num_attention_heads", c.num_attention_heads, 1, 1 << 16},
        Field{"num_kv_heads", c.num_kv_heads, 1, 1 << 16}, Field{"head_dim", c.head_dim, 1, 1 << 16},
        Field{"max_position_embeddings", c.max_position_embeddings, 1, int64_t{1} << 40},
        Field{"num_loops", c.num_loops, 1, 1024}}) {
    if (value < least || value > most)
      return bad(fmt::format("{} {} is not within {}..{}", name, value, least, most));
  }
  if (auto numbers = CheckNumbers(c); !numbers)
    return Fail(std::move(numbers).error().In(fmt::format("{}: config", path())));
  const auto has_layers = [&](size_t n) { return n == 0 || n == static_cast<size_t>(c.num_layers); };
  if (!has_layers(c.layer_types.size())) {
    return bad(fmt::format("{} layer_types for {} layers", c.layer_types.size(), c.num_layers));
  }
  if (!has_layers(c.attention_heads_per_layer.size())) {
    return bad(fmt::format("{} attention_heads_per_layer for {} layers", c.attention_heads_per_layer.size(),
                           c.num_layers));
  }
  if (c.num_kv_shared_layers < 0 || c.num_kv_shared_layers >= c.num_layers) {
    return bad(fmt::format("num_kv_shared_layers {} of {} layers", c.num_kv_shared_layers, c.num_layers));
  }
  if (c.num_loops > 1 && c.num_kv_shared_layers > 0) {
    return Fail(ErrorKind::kUnsupported,
                fmt::format("{}: config: loops together with shared kv layers", path()));
  }
  if (c.moe && (c.moe->top_k < 1 || c.moe->num_experts < 1)) {
    return bad(fmt::format("moe with {} experts and top_k {}", c.moe->num_experts, c.moe->top_k));
  }
  return {};
}

bool Builder::IsSliding(int64_t layer) const {
  const ModelConfig& c = config();
  const auto is_tagged = [](LayerKind kind) { return kind == LayerKind::kSlidingAttention; };
  if (std::any_of(c.layer_types.begin(), c.layer_types.end(), is_tagged)) {
    return is_tagged(c.layer_types[static_cast<size_t>(layer)]);
  }
  // Older files carry only the rhythm.
  const int64_t pattern = c.sliding_window_pattern.value_or(0);
  return pattern > 0 && c.sliding_window && (layer + 1) % pattern != 0;
}

std::optional<int64_t> Builder::SharedKvLayer(int64_t layer) const {
  const int64_t first = config().num_layers - config().num_kv_shared_layers;
  if (layer < first) return std::nullopt;
  for (int64_t j = first - 1; j >= 0; --j) {
    if (IsSliding(j) == IsSliding(layer)) return j;
  }
  return std::nullopt;
}

Result<int64_t> Builder::RopeIndex(const RopeConfig& rope, int64_t head_dim) {
  auto& configs = network_.rope_configs;
  auto& dims = network_.rope_head_dims;
  for (size_t i = 0; i < configs.size(); ++i) {
    if (dims[i] == head_dim && configs[i] == rope) return static_cast<int64_t>(i);
  }
  // Said now rather than when the first sequence is made.
  auto check = RopeFrequencies::Make(rope, head_dim, config().max_position_embeddings,
                                     config().max_position_embeddings);
  if (!check) return Fail(std::move(check).error().In(path()));
  configs.push_back(rope);
  dims.push_back(head_dim);
  return static_cast<int64_t>(configs.size()) - 1;
}

Result<Attention> Builder::BuildAttention(const std::string& prefix, int64_t index, bool is_draft) {
  const ModelConfig& c = config();
  const std::string p = prefix + "self_attn.";
  const bool is_sliding = !is_draft && IsSliding(index);
  const bool is_global = !is_sliding && c.global_head_dim > 0 && !is_draft;
  Attention attention;
  attention.heads = is_draft || c.attention_heads_per_layer.empty()
                        ? c.num_attention_heads
                        : c.attention_heads_per_layer[static_cast<size_t>(index)];
  attention.head_dim = is_global ? c.global_head_dim : c.head_dim;
  attention.has_value_norm = c.attn_v_norm;
  const int64_t dim = attention.head_dim, hidden = c.hidden_size;

  RopeConfig rope = is_sliding && c.rope_local ? *c.rope_local : c.rope;
  if (is_global && rope.kind == RopeKind::kDefault && c.global_partial_rotary_factor < 1) {
    rope.kind = RopeKind::kProportional;
    rope.partial_rotary_factor = c.global_partial_rotary_factor;
  }
  CMF_TRY(attention.rope, RopeIndex(rope, dim));
  if (is_sliding) {
    if (c.sliding_window.value_or(0) < 1) {
      return Fail(
          ErrorKind::kCorrupt,
          fmt::format("{}: config: layer {} is a sliding one but sliding_window is missing", path(), index));
    }
    attention.window = *c.sliding_window;
  }
  const double scalar = c.query_pre_attn_scalar.value_or(static_cast<double>(dim));
  if (!(scalar > 0))
    return Fail(ErrorKind::kCorrupt, fmt::format("{}: config: query_pre_attn_scalar {}", path(), scalar));
  attention.scale = static_cast<float>(1.0 / std::sqrt(scalar));
  attention.softcap = static_cast<float>(c.attn_logit_softcapping.value_or(0));

  CMF_TRY(attention.q, reader_.ReadLinear(p + "q_proj", 0, hidden));
  const int64_t width = attention.heads * dim;
  if (attention.q.rows() == 2 * width && !is_global) {
    attention.has_query_gate = true;
  } else if (attention.q.rows() != width) {
    return Fail(
        ErrorKind::kCorrupt,
        fmt::format("{}: tensor '{}': shape [{}, {}], wanted [{}, {}] for {} heads of {}", path(),
                    attention.q.name, attention.q.rows(), hidden, width, hidden, attention.heads, dim));
  }
  attention.shares_kv_of = is_draft ? std::nullopt : SharedKvLayer(index);
  if (attention.shares_kv_of) {
    // Published files still carry these; the config says that they are dead.
    for (const char* name : {"k_proj.weight", "v_proj.weight", "k_norm.weight"}) reader_.Ignore(p + name);
    attention.kv_heads =
        std::get<Attention>(network_.layers[static_cast<size_t>(*attention.shares_kv_of)].mixer).kv_heads;
  } else {
    attention.is_value_key = !reader_.Has(p + "v_proj.weight");
    attention.kv_heads = is_global && attention.is_value_key && c.num_global_kv_heads > 0
                             ? c.num_global_kv_heads
                             : c.num_kv_heads;
    CMF_TRY(attention.k, reader_.ReadLinear(p + "k_proj", attention.kv_heads * dim, hidden));
    if (attention.is_value_key && !attention.has_value_norm) {
      return Fail(ErrorKind::kCorrupt,
                  fmt::format("{}: tensor '{}v_proj.weight': missing, wanted shape [{}, {}]", path(), p,
                              attention.kv_heads * dim, hidden),
                  kMissingTensor);
    }
    if (!attention.is_value_key) {
      CMF_TRY(attention.v, reader_.ReadLinear(p + "v_proj", attention.kv_heads * dim, hidden));
    }
    CMF_TRY(attention.k_norm, reader_.ReadOptionalNorm(p + "k_norm.weight", dim, c.norm_style));
  }
  if (attention.heads % attention.kv_heads != 0) {
    return Fail(ErrorKind::kCorrupt,
                fmt::format("{}: config: layer {}: {} query heads do not divide by {} kv heads", path(),
                            index, attention.heads, attention.kv_heads));
  }
  CMF_TRY(attention.q_norm, reader_.ReadOptionalNorm(p + "q_norm.weight", dim, c.norm_style));
  CMF_TRY(attention.o, reader_.ReadLinear(p + "o_proj", hidden, width));
  CMF_TRY(attention.g, reader_.ReadOptionalLinear(p + "g_proj", 0, hidden));
  if (attention.g && attention.g->rows() != attention.heads && attention.g->rows() != width) {
    return Fail(ErrorKind::kCorrupt,
                fmt::format("{}: tensor '{}': shape [{}, {}], wanted {} rows (a gate per head) or {}", path(),
                            attention.g->name, attention.g->rows(), hidden, attention.heads, width));
  }
  return attention;
}

/// [channels, 1, kernel] as [kernel][channels].
std::vector<float> TransposeTaps(const std::vector<float>& taps, int64_t channels, int64_t kernel) {
  std::vector<float> out(taps.size());
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t j = 0; j < kernel; ++j)
      out[static_cast<size_t>(j * channels + c)] = taps[static_cast<size_t>(c * kernel + j)];
  }
  return out;
}

Result<DeltaNet> Builder::BuildDeltaNet(const std::string& prefix) {
  const std::string p = prefix + "linear_attn.";
  if (!config().linear_attention) {
    return Fail(ErrorKind::kCorrupt,
                fmt::format("{}: config: '{}*' is there but its head counts are not", path(), p));
  }
  const LinearAttentionConfig& c = *config().linear_attention;
  DeltaNet net;
  net.key_heads = c.num_key_heads;
  net.value_heads = c.num_value_heads;
  net.key_dim = c.key_head_dim;
  net.value_dim = c.value_head_dim;
  net.kernel = c.conv_kernel;
  if (net.key_heads < 1 || net.value_heads < 1 || net.value_heads % net.key_heads != 0 ||
      net.value_heads > (1 << 16) || net.key_dim < 1 || net.key_dim > kMaxKeyHeadDim || net.value_dim < 1 ||
      net.value_dim > (1 << 16) || net.kernel < 1 || net.kernel > 64) {
    return Fail(
        ErrorKind::kUnsupported,
        fmt::format("{}: config: gated delta net with {} key heads of {}, {} value heads of {}, kernel {}",
                    path(), net.key_heads, net.key_dim, net.value_heads, net.value_dim, net.kernel));
  }
  const int64_t hidden = config().hidden_size, inner = net.value_heads * net.value_dim;
  CMF_TRY(net.qkv, reader_.ReadLinear(p + "in_proj_qkv", net.channels(), hidden));
  CMF_TRY(net.z, reader_.ReadLinear(p + "in_proj_z", inner, hidden));
  CMF_TRY(net.a, reader_.ReadLinear(p + "in_proj_a", net.value_heads, hidden));
  CMF_TRY(net.b, reader_.ReadLinear(p + "in_proj_b", net.value_heads, hidden));
  CMF_TRY(net.out, reader_.ReadLinear(p + "out_proj", hidden, inner));
  CMF_TRY(const auto taps, reader_.ReadVector(p + "conv1d.weight", net.channels() * net.kernel));
  net.taps = TransposeTaps(taps, net.channels(), net.kernel);
  CMF_TRY(net.decay_log, reader_.ReadVector(p + "A_log", net.value_heads));
  for (float& a : net.decay_log) a = static_cast<float>(std::exp(static_cast<double>(a)));
  CMF_TRY(net.dt_bias, reader_.ReadVector(p + "dt_bias", net.value_heads));
  CMF_TRY(net.norm, reader_.ReadNorm(p + "norm.weight", net.value_dim, NormStyle::kPlain));
  return net;
}

Result<ShortConv> Builder::BuildShortConv(const std::string& prefix) {
  const std::string p = prefix + "short_conv.";
  const int64_t hidden = config().hidden_size;
  ShortConv conv;
  CMF_TRY(conv.in, reader_.ReadLinear(p + "in_proj", 3 * hidden, hidden));
  CMF_TRY(conv.out, reader_.ReadLinear(p + "out_proj", hidden, hidden));
  const TensorInfo* taps = reader_.source().Find(p + "conv.weight");
  conv.kernel = taps != nullptr && taps->shape.size() == 3 ? taps->shape[2] : 0;
  if (taps != nullptr && (conv.kernel < 1 || conv.kernel > 64)) {
    return Fail(ErrorKind::kUnsupported, fmt::format("{}: tensor '{}': shape {}, wanted [{}, 1, 1..64]",
                                                     path(), taps->name, ShapeText(taps->shape), hidden));
  }
  CMF_TRY(const auto values, reader_.ReadVector(p + "conv.weight", hidden * conv.kernel));
  conv.taps = TransposeTaps(values, hidden, conv.kernel);
  return conv;
}

Result<FeedForward> Builder::BuildFeedForward(const std::string& prefix, int64_t width) {
  const int64_t hidden = config().hidden_size;
  FeedForward ffn;
  CMF_TRY(ffn.gate, reader_.ReadLinear(prefix + "gate_proj", width, hidden));
  CMF_TRY(ffn.up, reader_.ReadLinear(prefix + "up_proj", ffn.width(), hidden));
  CMF_TRY(ffn.down, reader_.ReadLinear(prefix + "down_proj", hidden, ffn.width()));
  return ffn;
}

Result<Mixture> Builder::BuildMixture(const std::string& prefix) {
  const std::string p = prefix + "mlp.";
  if (!config().moe) {
    return Fail(ErrorKind::kCorrupt,
                fmt::format("{}: config: '{}gate.weight' is there but the moe fields are not", path(), p));
  }
  const MoeConfig& c = *config().moe;
  Mixture moe;
  moe.is_sigmoid = c.router_sigmoid;
  moe.renormalizes = c.norm_topk_prob;
  moe.scaling = static_cast<float>(c.routed_scaling_factor);
  moe.softcap = static_cast<float>(c.router_logit_softcapping);
  int64_t count = 0;
  while (reader_.Has(fmt::format("{}experts.{}.gate_proj.weight", p, count))) ++count;
  if (count == 0) {
    return Fail(ErrorKind::kCorrupt,
                fmt::format("{}: tensor '{}experts.0.gate_proj.weight': missing beside a router", path(), p),
                kMissingTensor);
  }
  moe.top_k = std::min(c.top_k, count);
  CMF_TRY(moe.router, reader_.ReadLinear(p + "gate", count, config().hidden_size));
  moe.experts.reserve(static_cast<size_t>(count));
  for (int64_t e = 0; e < count; ++e) {
    CMF_TRY(FeedForward expert,
            BuildFeedForward(fmt::format("{}experts.{}.", p, e), e == 0 ? 0 : moe.experts.front().width()));
    moe.experts.push_back(std::move(expert));
  }
  for (const char* name :
       {"expert_bias", "gate.e_score_correction_bias", "experts.e_score_correction_bias"}) {
    if (reader_.Has(p + name)) {
      CMF_TRY(moe.bias, reader_.ReadVector(p + name, count));
      break;
    }
  }
  if (reader_.Has(p + "shared_expert.gate_proj.weight")) {
    CMF_TRY(FeedForward shared, BuildFeedForward(p + "shared_expert."));
    moe.shared = std::move(shared);
    CMF_TRY(moe.shared_gate, reader_.ReadOptionalLinear(p + "shared_expert_gate", 1, config().hidden_size));
  }
  return moe;
}

Result<Layer> Builder::BuildLayer(const std::string& prefix, int64_t index, bool is_draft) {
  const NormStyle style = config().norm_style;
  const int64_t hidden = config().hidden_size;
  Layer layer;
  CMF_TRY(layer.input_norm, reader_.ReadNorm(prefix + "input_layernorm.weight", hidden, style));
  if (reader_.Has(prefix + "linear_attn.out_proj.weight")) {
    CMF_TRY(layer.mixer, BuildDeltaNet(prefix));
  } else if (reader_.Has(prefix + "short_conv.in_proj.weight")) {
    CMF_TRY(layer.mixer, BuildShortConv(prefix));
  } else {
    CMF_TRY(layer.mixer, BuildAttention(prefix, index, is_draft));
  }
  // With four norms the two "post" ones sit on the branches, before the add.
  if (reader_.Has(prefix + "pre_feedforward_layernorm.weight")) {
    CMF_TRY(layer.mixer_out_norm,
            reader_.ReadNorm(prefix + "post_attention_layernorm.weight", hidden, style));
    CMF_TRY(layer.ffn_norm, reader_.ReadNorm(prefix + "pre_feedforward_layernorm.weight", hidden, style));
    CMF_TRY(layer.ffn_out_norm,
            reader_.ReadNorm(prefix + "post_feedforward_layernorm.weight", hidden, style));
  } else {
    CMF_TRY(layer.ffn_norm, reader_.ReadNorm(prefix + "post_attention_layernorm.weight", hidden, style));
  }
  if (reader_.Has(prefix + "mlp.gate.weight")) {
    CMF_TRY(layer.ffn, BuildMixture(prefix));
  } else {
    CMF_TRY(layer.ffn, BuildFeedForward(prefix + "mlp."));
  }
  if (network_.per_layer_width > 0 && !is_draft) {
    PerLayerInput input;
    CMF_TRY(input.gate,
            reader_.ReadLinear(prefix + "per_layer_input_gate", network_.per_layer_width, hidden));
    CMF_TRY(input.projection,
            reader_.ReadLinear(prefix + "per_layer_projection", hidden, network_.per_layer_width));
    CMF_TRY(input.norm, reader_.ReadNorm(prefix + "post_per_layer_input_norm.weight", hidden, style));
    layer.per_layer = std::move(input);
  }
  if (reader_.Has(prefix + "layer_scalar")) {
    CMF_TRY(const auto scalar, reader_.ReadVector(prefix + "layer_scalar", 1));
    layer.scalar = scalar[0];
  }
  return layer;
}

Result<std::optional<DraftHead>> Builder::BuildDraftHead() {
  struct Names {
    const char *prefix, *combine, *embedding_norm, *hidden_norm;
  };
  for (const auto& names : {Names{"model.mtp.", "eh_proj", "enorm", "hnorm"},
                            Names{"mtp.", "fc", "pre_fc_norm_embedding", "pre_fc_norm_hidden"}}) {
    const std::string p = names.prefix;
    if (!reader_.Has(p + names.combine + ".weight")) continue;
    const int64_t hidden = config().hidden_size;
    DraftHead head;
    CMF_TRY(head.combine, reader_.ReadLinear(p + names.combine, hidden, 2 * hidden));
    CMF_TRY(head.embedding_norm,
            reader_.ReadNorm(p + names.embedding_norm + ".weight", hidden, config().norm_style));
    CMF_TRY(head.hidden_norm,
            reader_.ReadNorm(p + names.hidden_norm + ".weight", hidden, config().norm_style));
    CMF_TRY(head.norm, reader_.ReadNorm(p + "norm.weight", hidden, config().norm_style));
    for (int64_t i = 0; reader_.Has(fmt::format("{}layers.{}.input_layernorm.weight", p, i)); ++i) {
      CMF_TRY(Layer layer, BuildLayer(fmt::format("{}layers.{}.", p, i), i, /*is_draft=*/true));
      if (!std::holds_alternative<Attention>(layer.mixer)) {
        run_.Warn(fmt::format("{}: the MTP head is left out: layer {} of it has no attention", path(), i));
        return std::optional<DraftHead>();
      }
      head.layers.push_back(std::move(layer));
    }
    if (head.layers.empty()) break;
    return std::optional<DraftHead>(std::move(head));
  }
  if (config().mtp)
    run_.Warn(fmt::format("{}: an MTP head is declared but its tensors are not there", path()));
  return std::optional<DraftHead>();
}

Result<void> Builder::BuildEnds() {
  const int64_t hidden = config().hidden_size;
  CMF_TRY(TensorView table, reader_.ReadTable("model.embed_tokens.weight", hidden));
  const int64_t vocab = table.rows();
  if (vocab != config().vocab_size) {
    run_.Warn(fmt::format("{}: config: vocab_size {}, but the embedding has {} rows: the rows count", path(),
                          config().vocab_size, vocab));
    network_.config.vocab_size = vocab;
  }
  auto rows = AsFloatRows(table);
  if (!rows)
    return Fail(std::move(rows).error().In(fmt::format("{}: tensor 'model.embed_tokens.weight'", path())));
  network_.embedding = std::move(*rows);
  CMF_TRY(network_.final_norm, reader_.ReadNorm("model.norm.weight", hidden, config().norm_style));
  // A head in the file wins over what the config says about tying.
  if (reader_.Has("lm_head.weight")) {
    CMF_TRY(network_.head, reader_.ReadLinear("lm_head", 0, hidden));
  } else if (config().tie_word_embeddings) {
    CMF_TRY(network_.head, reader_.ReadLinear("model.embed_tokens", vocab, hidden));
  } else {
    return Fail(
        ErrorKind::kCorrupt,
        fmt::format("{}: tensor 'lm_head.weight': missing, and the config does not tie it to the embedding",
                    path()),
        kMissingTensor);
  }
  if (config().hidden_size_per_layer_input > 0) {
    const int64_t width = config().hidden_size_per_layer_input;
    network_.per_layer_width = width;
    CMF_TRY(TensorView inputs,
            reader_.ReadTable("model.embed_tokens_per_layer.weight", config().num_layers * width));
    if (inputs.rows() < vocab) {
      return Fail(ErrorKind::kCorrupt,
                  fmt::format("{}: tensor 'model.embed_tokens_per_layer.weight': {} rows, wanted {}", path(),
                              inputs.rows(), vocab));
    }
    CMF_TRY(network_.per_layer_table, AsFloatRows(std::move(inputs)));
    CMF_TRY(network_.per_layer_projection,
            reader_.ReadLinear("model.per_layer_model_projection", config().num_layers * width, hidden));
    CMF_TRY(network_.per_layer_norm,
            reader_.ReadNorm("model.per_layer_projection_norm.weight", width, config().norm_style));
  }
  return {};
}

Result<void> Builder::RefuseUnknownTensors() const {
  const auto is_expected = [](std::string_view name) {
    // Skills are sources in front of this one; rope tables of old checkpoints are recomputed.
    return name.starts_with("skill.") || name.starts_with("mtp.") || name.starts_with("model.mtp.") ||
           name.ends_with("rotary_emb.inv_freq");
  };
  const TensorInfo* unknown = reader_.FindUnused(is_expected);
  if (unknown == nullptr) return {};
  return Fail(
      ErrorKind::kUnsupported,
      fmt::format("{}: tensor '{}': shape {}: no operator of this build takes it: the model cannot be run",
                  path(), unknown->name, ShapeText(unknown->shape)));
}

Result<Network> Builder::Build() {
  CMF_CHECK(CheckConfig());
  CMF_CHECK(BuildEnds());
  for (int64_t i = 0; i < config().num_layers; ++i) {
    CMF_CHECK(run_.CheckCancelled());
    CMF_TRY(Layer layer, BuildLayer(fmt::format("model.layers.{}.", i), i, /*is_draft=*/false));
    network_.layers.push_back(std::move(layer));
  }
  CMF_TRY(network_.draft, BuildDraftHead());
  CMF_CHECK(RefuseUnknownTensors());
  return std::move(network_);
}

}  // namespace

bool Network::has_recurrent_layers() const {
  return std::any_of(layers.begin(), layers.end(),
                     [](const Layer& layer) { return !std::holds_alternative<Attention>(layer.mixer); });
}

Result<Network> BuildNetwork(std::shared_ptr<const TensorSource> source, ModelConfig config,
                             const RunControl& run) {
  return Builder(std::move(source), std::move(config), run).Build();
}

}  // namespace cmforge::engine
