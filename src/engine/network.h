// A loaded model: which operators each layer has, and their weights. Built once by network.cc, then
// read-only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/progress.h"
#include "engine/weights.h"
#include "kernels/rope.h"
#include "model/model_config.h"
#include "quant/encoding.h"

namespace cmforge::engine {

/// Softmax attention. D = head_dim, Hq = heads, Hkv = kv_heads.
struct Attention {
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int64_t window = 0;  // positions seen, itself included; 0 = all
  int64_t rope = 0;    // index into Network::ropes
  float scale = 1, softcap = 0;
  bool has_query_gate = false;          // q rows per head: [query D | gate D], output times sigmoid(gate)
  bool has_value_norm = false;          // values get an RMS norm without weight
  bool is_value_key = false;            // no v_proj: values are the raw keys
  std::optional<int64_t> shares_kv_of;  // layer whose cache is read; this one stores nothing

  Linear q;                   // [Hq * D, hidden], or [Hq * 2 D, hidden] with a query gate
  std::optional<Linear> k;    // [Hkv * D, hidden]
  std::optional<Linear> v;    // [Hkv * D, hidden]
  Linear o;                   // [hidden, Hq * D]
  std::optional<Linear> g;    // output times softplus(g x): [Hq, hidden] or [Hq * D, hidden]
  NormWeight q_norm, k_norm;  // [D], or empty
};

/// Gated delta net. Nk, Nv heads of Dk, Dv; channels C = 2 Nk Dk + Nv Dv.
struct DeltaNet {
  int64_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0, kernel = 0;

  Linear qkv;                    // [C, hidden]: q | k | v
  Linear z;                      // [Nv * Dv, hidden]
  Linear a, b;                   // [Nv, hidden]
  Linear out;                    // [hidden, Nv * Dv]
  std::vector<float> taps;       // [kernel, C], the last row belongs to the current token
  std::vector<float> decay_log;  // [Nv]: exp(A_log)
  std::vector<float> dt_bias;    // [Nv]
  NormWeight norm;               // [Dv], always the plain style

  [[nodiscard]] int64_t channels() const { return 2 * key_heads * key_dim + value_heads * value_dim; }
};

/// LFM2: y = C * conv(B * x), in_proj gives [B | C | x].
struct ShortConv {
  int64_t kernel = 0;
  Linear in;                // [3 * hidden, hidden]
  Linear out;               // [hidden, hidden]
  std::vector<float> taps;  // [kernel, hidden]
};

/// down(act(gate x) * up x).
struct FeedForward {
  Linear gate, up;  // [width, hidden]
  Linear down;      // [hidden, width]

  [[nodiscard]] int64_t width() const { return gate.rows(); }
};

struct Mixture {
  int64_t top_k = 0;
  bool is_sigmoid = false, renormalizes = false;
  float scaling = 1;
  float softcap = 0;                 // c: c tanh(l / c) on the router's logits; 0 = none
  Linear router;                     // [experts, hidden]
  std::vector<float> bias;           // [experts] or empty: only for choosing
  std::vector<FeedForward> experts;  // of equal width
  std::optional<FeedForward> shared;
  std::optional<Linear> shared_gate;  // [1, hidden]
};

/// Per-layer embeddings (Gemma 4): x += norm(projection(gelu(gate x) * ple[layer])).
struct PerLayerInput {
  Linear gate;        // [P, hidden]
  Linear projection;  // [hidden, P]
  NormWeight norm;    // [hidden]
};

struct Layer {
  NormWeight input_norm;  // [hidden]
  std::variant<Attention, DeltaNet, ShortConv> mixer;
  NormWeight mixer_out_norm;  // on the branch before the add, or empty
  NormWeight ffn_norm;        // before the feed-forward
  std::variant<FeedForward, Mixture> ffn;
  NormWeight ffn_out_norm;  // on the branch before the add, or empty
  std::optional<PerLayerInput> per_layer;
  float scalar = 1;  // the stream is multiplied by it at the end
};

/// Drafts the token after next from the trunk's last hidden state and the next token.
struct DraftHead {
  NormWeight embedding_norm, hidden_norm;  // [hidden]
  Linear combine;                          // [hidden, 2 * hidden]: embedding first
  std::vector<Layer> layers;               // attention only
  NormWeight norm;                         // [hidden]
};

struct Network {
  ModelConfig config;
  std::shared_ptr<const TensorSource> source;  // keeps the views alive
  std::vector<RopeConfig> rope_configs;        // distinct (config, head_dim) pairs
  std::vector<int64_t> rope_head_dims;
  std::vector<Layer> layers;  // physical
  FloatRows embedding;        // [vocab, hidden]
  NormWeight final_norm;
  Linear head;  // [vocab, hidden]; the embedding again when tied
  std::optional<DraftHead> draft;

  // Per-layer embeddings, or none
  int64_t per_layer_width = 0;
  FloatRows per_layer_table;                   // [vocab, layers * P]
  std::optional<Linear> per_layer_projection;  // [layers * P, hidden]
  NormWeight per_layer_norm;                   // [P]

  /// Layers times loops: each visit has its own state.
  [[nodiscard]] int64_t visits() const { return static_cast<int64_t>(layers.size()) * config.num_loops; }
  [[nodiscard]] const Layer& LayerOfVisit(int64_t visit) const {
    return layers[static_cast<size_t>(visit % static_cast<int64_t>(layers.size()))];
  }
  [[nodiscard]] bool has_recurrent_layers() const;
};

/// Fails: see Model::Load.
Result<Network> BuildNetwork(std::shared_ptr<const TensorSource> source, ModelConfig config,
                             const RunControl& run);

}  // namespace cmforge::engine
