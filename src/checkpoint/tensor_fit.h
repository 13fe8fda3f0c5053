// Do the tensors fit the config? What a forward pass will need is there, with the shapes it will need, in
// float types.
#pragma once

#include "checkpoint/hf_config.h"
#include "model/tensor_source.h"

namespace cmforge {

/// `tensors` has plain names. Optional parts (biases, gates, norms on branches) are checked where they are
/// present or the family demands them. Sets `config.model` right where presence decides: tied head, MTP head,
/// the width of LFM2's MLP; adds a warning to `config.warnings` for each contradiction. Fails: kCorrupt
/// naming a missing tensor, or tensor, shape and wanted shape; kUnsupported for a weight that is not a float
/// type.
Result<void> FitTensors(const TensorSource& tensors, HfConfig& config);

}  // namespace cmforge
