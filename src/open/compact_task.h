// A model cut to one task in memory (`--hot --task NAME`): of every feed-forward network the groups of 32 neurons that
// the mask leaves alive, copied side by side in their own encodings. What runs is then a smaller dense model, which
// reads exactly what it multiplies; masked in place, dead groups of the second projection still share cache lines with
// live ones. Logits are those of the mask in place, bit for bit; what it costs is a private copy of those weights.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/result.h"
#include "model/language_model.h"
#include "model/model_config.h"
#include "model/tensor_source.h"

namespace cmforge {

struct CompactTask {
  std::shared_ptr<const TensorSource> tensors;  // the whole source's names, some with fewer rows or columns
  std::shared_ptr<const ActiveSet> active;      // what the mask restricts besides neurons, or null
  uint64_t copied_bytes = 0;
};

/// Nothing where it cannot be done: mixtures of experts, looped models, feed-forward networks with biases, and encodings
/// without groups at fixed places (vbit, q1s, q1t, q2tp); or where no neuron is off. Fails: as reading the source.
Result<std::optional<CompactTask>> MakeCompactTask(std::shared_ptr<const TensorSource> source,
                                                   const ModelConfig& config, const ActiveSet& active);

}  // namespace cmforge
