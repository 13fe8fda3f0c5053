// The plain names that engine and container know, over a checkpoint as its makers wrote it: wrapper prefixes
// taken off, MTP, LFM2 and router names mapped, fused projections and expert banks split when they are read.
//
//   model.language_model.layers.0.X        -> model.layers.0.X          (language_model.model.,
//   language_model.) mtp.fc, mtp.pre_fc_norm_{embedding,hidden} -> model.mtp.{eh_proj, enorm, hnorm}
//   self_attn.qkv_proj, mlp.gate_up_proj   -> q/k/v_proj, gate/up_proj: row slices, views into the mapping
//   linear_attn.in_proj_{qkvz, ba}         -> in_proj_{qkv, z, b, a}: rows grouped by key head, gathered
//   mlp.experts.gate_up_proj [E, 2I, H]    -> mlp.experts.{e}.{gate,up}_proj.weight: views; [E, H, 2I]
//   transposed towers (vision, audio), projectors     -> skipped(), listed by their original names
#pragma once

#include <memory>

#include "checkpoint/hf_config.h"
#include "model/tensor_source.h"

namespace cmforge {

/// `raw` is shared by the result. Fails: kCorrupt (two tensors that map to one plain name; a fused tensor
/// whose shape does not fit the config: name, shape and wanted shape), kUnsupported (unknown family: a tensor
/// of unknown kind, by name).
Result<std::shared_ptr<const TensorSource>> MakeCanonicalSource(std::shared_ptr<const TensorSource> raw,
                                                                const HfConfig& config);

}  // namespace cmforge
