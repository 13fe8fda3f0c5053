// Rotary embedding settings of a config.json in all the places they have lived.
#pragma once

#include <optional>

#include "checkpoint/config_fields.h"
#include "model/model_config.h"

namespace cmforge {

struct RopePair {
  RopeConfig global;                // full-attention layers
  std::optional<RopeConfig> local;  // sliding layers, where the file gives them their own
  bool has_theta = false;           // some file or the family says theta
};

/// The layouts, newest first; a value of an inner one wins:
///   rope_parameters: {full_attention: {...}, sliding_attention: {...}}   each a complete set
///   rope_parameters: {rope_type, rope_theta, ...}
///   rope_theta, rope_scaling: null or {rope_type or type, ...}, rope_local_base_freq
/// `head_dim` is that of the full-attention layers.
/// Fails: kCorrupt (missing or impossible numbers), kUnsupported (a rope kind we do not know, by name).
Result<RopePair> ReadRope(const ConfigFields& config, int64_t head_dim, int64_t max_position_embeddings);

}  // namespace cmforge
