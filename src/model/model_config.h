// What a model is, in one plain struct: parsed from a config.json, from the `arch` block of a .cmf header or
// from GGUF metadata, and written back to `arch`. Which operators a layer has is decided by its tensors;
// this struct holds only what tensors cannot say.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cmforge {

using TokenId = int32_t;

enum class LayerKind : uint8_t {
  kFullAttention,
  kSlidingAttention,  // causal attention over the last `sliding_window` positions
  kLinearAttention,   // gated delta net
  kShortConv,         // LFM2
};

/// How an RMS norm uses its weight: x̂·w or x̂·(1+w). An engine refuses kUnknown (spec 2).
enum class NormStyle : uint8_t { kUnknown, kPlain, kOnePlus };

enum class Activation : uint8_t { kSilu, kGeluTanh };

enum class RopeKind : uint8_t { kDefault, kLinear, kDynamic, kLlama3, kYarn, kLongRope, kProportional };

/// One rotary embedding: rotate-half over the first int(head_dim * partial) dims (facts: architectures, "RoPE").
struct RopeConfig {
  RopeKind kind = RopeKind::kDefault;
  double theta = 10000.0;
  double partial_rotary_factor = 1.0;
  double factor = 1.0;                            // linear, dynamic, llama3, yarn
  double low_freq_factor = 1.0;                   // llama3
  double high_freq_factor = 4.0;                  // llama3
  int64_t original_max_position_embeddings = 0;   // llama3, yarn, dynamic; 0 = max_position_embeddings
  double beta_fast = 32.0, beta_slow = 1.0;       // yarn
  std::optional<double> attention_factor;         // yarn; absent = 0.1 ln(factor) + 1
  std::optional<double> mscale, mscale_all_dim;   // yarn
  bool truncate = true;                           // yarn: round the ramp's bounds
  std::vector<double> long_factor, short_factor;  // longrope, one per rotated pair

  bool operator==(const RopeConfig&) const = default;
};

struct MoeConfig {
  int64_t num_experts = 0;
  int64_t top_k = 0;
  int64_t intermediate_size = 0;
  bool norm_topk_prob = false;
  int64_t shared_expert_intermediate_size = 0;  // 0 = no shared expert
  bool router_sigmoid = false;
  double routed_scaling_factor = 1.0;
  double router_logit_softcapping = 0.0;  // c: c tanh(l / c) on the router's logits; 0 = none

  bool operator==(const MoeConfig&) const = default;
};

struct MtpConfig {
  int64_t num_layers = 1;
  bool share_lm_head = true;
  bool share_embed = true;

  bool operator==(const MtpConfig&) const = default;
};

/// Gated delta net geometry; conv_kernel also serves LFM2 short convolutions.
struct LinearAttentionConfig {
  int64_t num_key_heads = 0, num_value_heads = 0;
  int64_t key_head_dim = 0, value_head_dim = 0;
  int64_t conv_kernel = 0;

  bool operator==(const LinearAttentionConfig&) const = default;
};

struct ModelConfig {
  std::string arch_name;  // the checkpoint's model_type; never decides what is computed
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;  // nominal: the tensors decide (spec 11)
  int64_t num_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;  // free of hidden_size / num_attention_heads
  int64_t vocab_size = 0;
  int64_t max_position_embeddings = 0;
  std::vector<LayerKind> layer_types;  // [num_layers]
  double rms_norm_eps = 1e-6;
  NormStyle norm_style = NormStyle::kUnknown;
  Activation hidden_act = Activation::kSilu;
  bool tie_word_embeddings = false;  // what the file says; a present lm_head.weight wins

  RopeConfig rope;                                 // full-attention layers
  std::optional<RopeConfig> rope_local;            // sliding layers where they differ
  std::optional<int64_t> sliding_window;           // positions seen, itself included
  std::optional<int64_t> sliding_window_pattern;   // older files: layer i is global iff (i+1) % pattern == 0
  std::vector<int64_t> attention_heads_per_layer;  // empty, or [num_layers]

  double embed_multiplier = 1.0;
  std::optional<double> query_pre_attn_scalar;  // scale 1/sqrt(it); absent: 1/sqrt(head_dim)
  std::optional<double> attn_logit_softcapping;
  std::optional<double> final_logit_softcapping;
  double logit_multiplier = 1.0;
  int64_t num_loops = 1;  // looped transformers (facts 11)
  bool loop_final_norm = false;

  // Gemma 4
  int64_t global_head_dim = 0, num_global_kv_heads = 0;
  double global_partial_rotary_factor = 1.0;
  bool attn_v_norm = false;
  int64_t hidden_size_per_layer_input = 0, vocab_size_per_layer_input = 0, num_kv_shared_layers = 0;

  std::optional<MoeConfig> moe;
  std::optional<MtpConfig> mtp;
  std::optional<LinearAttentionConfig> linear_attention;

  bool operator==(const ModelConfig&) const = default;
};

/// Chat behaviour that travels with the model (spec 6.1).
struct ChatBundle {
  std::string chat_template;  // empty: ChatML
  std::vector<TokenId> eos_token_ids;
  std::optional<TokenId> bos_token_id, pad_token_id;

  bool operator==(const ChatBundle&) const = default;
};

/// Sampling a checkpoint recommends (generation_config.json); absent fields fall to the program's defaults.
struct RecommendedSampling {
  std::optional<bool> do_sample;
  std::optional<double> temperature, top_p, min_p, typical_p, repetition_penalty;
  std::optional<int64_t> top_k;

  bool operator==(const RecommendedSampling&) const = default;
};

}  // namespace cmforge
