// From a checkpoint's tensor name to the plain one, by name alone.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "checkpoint/hf_config.h"

namespace cmforge {

/// What becomes of a tensor.
struct PlainName {
  bool is_skipped = false;  // not a part of the text model
  std::string name;         // model.layers.0.mlp.gate_proj.weight
  std::string prefix;  // of layers: up to and with the dot behind the index, "model.layers.0."; else empty
  int64_t layer = -1;  // of layers of the model itself (not of MTP); of skipped tensors: beyond the last one

  /// The name behind `prefix`.
  [[nodiscard]] std::string_view suffix() const { return std::string_view(name).substr(prefix.size()); }
};

/// Fused tensors keep their fused name. Tensors outside of the text model are skipped; for an unknown family
/// only those of towers and projectors are, others are refused (kUnsupported, naming the tensor).
Result<PlainName> ToPlainName(std::string_view raw, const HfConfig& config);

/// True for the tensors outside of layers: "model.embed_tokens.weight".
[[nodiscard]] bool IsKnownPart(std::string_view name);

/// True when a layer may have a tensor of that suffix, fused ones apart: "self_attn.q_proj.weight".
[[nodiscard]] bool IsKnownLayerTensor(std::string_view suffix);

}  // namespace cmforge
