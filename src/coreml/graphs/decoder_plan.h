// What the graphs of a package compute, decided once from configuration and tensors: the family, every layer's
// operators, the states and who owns which rows of them, the ranges of the chunks and the parts of the head.
#pragma once

#include <string>
#include <vector>

#include "model/model_config.h"
#include "model/tensor_source.h"

namespace cmforge::coreml {

enum class Family : uint8_t { kQwen3, kQwen35, kGemma4 };

struct GraphOptions {
  int64_t context_length = 512;  // largest position + 1
  int64_t batch_size = 64;       // tokens of a prefill call
  int64_t num_chunks = 1;
  int64_t split_lm_head = 16;
  /// How the window of sliding layers moves: by blocks of the batch size, or, as in packages of the first form of this
  /// layout, by the tokens of each call. Converters write blocks; the other form is for testing runtimes.
  enum class Window : uint8_t { kBlocks, kTokens } window = Window::kBlocks;
};

struct PlannedState {
  std::string name;
  Shape shape;                  // fp16
  std::vector<int64_t> layers;  // in the order of their rows
};

struct PlannedLayer {
  LayerKind kind = LayerKind::kFullAttention;
  int64_t slot = 0;       // among the layers that keep their state together
  bool has_gate = false;  // attention: an output gate packed behind every head's query
  bool has_qk_norm = false;
  bool is_mixture = false;    // experts instead of one MLP
  int64_t shares_kv_of = -1;  // the layer whose keys and values it reads; -1: its own
};

struct LayerRange {
  int64_t begin = 0, end = 0;
};

struct DecoderPlan {
  Family family = Family::kQwen3;
  ModelConfig config;
  GraphOptions options;
  std::vector<PlannedLayer> layers;
  std::vector<LayerRange> chunks;
  std::vector<int64_t> head_parts;  // logits of each output of the head
  std::vector<PlannedState> states;
  int64_t attention_layers = 0;  // that own rows of the KV cache
  int64_t delta_chunk = 0;       // tokens of one chunk of the delta rule; 0: no such layers
  int64_t local_cache = 0;       // positions of the sliding layers' cache; 0: no such layers

  [[nodiscard]] bool is_recurrent() const { return delta_chunk > 0; }
  /// The cache of the sliding layers holds a window that moves by blocks, not the whole context.
  [[nodiscard]] bool local_cache_shifts() const {
    return local_cache > 0 && local_cache < options.context_length;
  }
  /// Sliding layers have heads of their own size.
  [[nodiscard]] int64_t head_dim(const PlannedLayer& layer) const {
    const bool is_global = family == Family::kGemma4 && layer.kind == LayerKind::kFullAttention;
    return is_global && config.global_head_dim > 0 ? config.global_head_dim : config.head_dim;
  }
  /// What norm weights are stored less than they mean.
  [[nodiscard]] float norm_offset() const { return config.norm_style == NormStyle::kOnePlus ? 1.0f : 0.0f; }
  [[nodiscard]] std::string_view architecture() const;    // "qwen3", as meta.yaml says it
  [[nodiscard]] std::string_view default_prefix() const;  // "qwen"
};

inline constexpr std::string_view kKvState = "model_model_kv_cache_0";
inline constexpr std::string_view kDeltaState = "model_model_gdn_state_0";
inline constexpr std::string_view kConvState = "model_model_conv_state_0";
inline constexpr std::string_view kLocalState = "model_model_kv_cache_local";
inline constexpr std::string_view kGlobalState = "model_model_kv_cache_global";

/// `total` cut into `parts`, the first ones one larger where it does not divide.
[[nodiscard]] std::vector<int64_t> EvenParts(int64_t total, int64_t parts);

/// Fails: kUnsupported (a family or variant that has no graph here: what of it, with its value), kUsage
/// (options that do not fit the model: both numbers), kCorrupt (a configuration that contradicts itself).
Result<DecoderPlan> PlanDecoder(const TensorSource& source, const ModelConfig& config,
                                const GraphOptions& options);

}  // namespace cmforge::coreml
