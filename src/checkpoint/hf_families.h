// The table of model families: what a config.json means beyond what it says. A row holds the rules that no
// key tells and the values that absent keys have in the family's own library.
#pragma once

#include <span>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "model/model_config.h"

namespace cmforge {

/// Which layers slide where the file has no `layer_types`.
enum class LayerRule {
  kFull,             // none, whatever the window key says
  kEvery,            // all, when there is a window
  kUpper,            // with use_sliding_window: layers from max_window_layers on
  kEvenLower,        // with use_sliding_window: even layers below max_window_layers
  kAllIfSwitchedOn,  // with use_sliding_window: all
  kEvenLayers,       // layers 0, 2, 4, ...
  kPattern,          // all but every sliding_window_pattern-th
  kPatternLastFull,  // the same, and the last layer is full even if the list says otherwise
  kInterval,         // linear attention but for every full_attention_interval-th
  kConvolutions,     // short convolutions but for full_attn_idxs
};

struct HfFamily {
  std::string_view name;  // model_type without a trailing "_text"
  NormStyle norm_style = NormStyle::kPlain;
  LayerRule layers = LayerRule::kFull;
  bool scales_embedding = false;   // times sqrt(hidden_size)
  bool applies_score_cap = false;  // attn_logit_softcapping is more than decoration
  bool sigmoid_router = false;
  bool always_renormalizes = false;  // expert weights, whatever norm_topk_prob says
  bool has_qkv_bias = false;         // always, without a key
  bool has_qk_norm = false;
  bool has_four_norms = false;       // on the branches too
  std::string_view defaults = "{}";  // JSON, keys as in config.json
};

/// The row of `model_type`, or nullptr for a type that is in no table. Fails: kUnsupported for families that
/// are known to compute something we do not.
Result<const HfFamily*> FindHfFamily(std::string_view model_type);

/// The rules for a type that is in no table: a llama-like decoder, as far as its tensors allow.
[[nodiscard]] const HfFamily& CommonHfFamily();

/// All rows, in a fixed order.
[[nodiscard]] std::span<const HfFamily> HfFamilies();

/// Names of all rows, for messages.
[[nodiscard]] std::string HfFamilyNames();

/// Keys that change the computation in ways we do not follow; each must be absent, null or neutral.
/// Fails: kUnsupported naming the key and its value.
Result<void> CheckNeutralKeys(std::string_view what, const Json& config);

}  // namespace cmforge
