// Which feed-forward neurons a defragmented model keeps (spec 11), layer by layer, and the three places such a choice
// comes from: a task mask, a keep-set file, the columns of down_proj that are all zero.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/npy.h"
#include "base/progress.h"
#include "base/thread_pool.h"
#include "cmf/masks.h"
#include "model/model_config.h"
#include "model/tensor_source.h"

namespace cmforge {

/// [num_layers]; ascending neuron numbers, at least one a layer. Nothing for layers without a dense feed-forward.
using FfnKeep = std::vector<std::optional<std::vector<int32_t>>>;

/// The neurons whose bits are set. Fails: kUnsupported for what cutting neurons cannot express (heads, layers or experts
/// switched off, visits of a looped model that differ) and for a layer without a live neuron; kUsage when no layer has
/// a dense feed-forward.
Result<FfnKeep> KeepFromMask(const cmf::TaskMask& mask, const TensorSource& tensors, const ModelConfig& config);

/// A bool or float array [layers, intermediate size], not 0 = live. Fails: kCorrupt for another shape.
Result<FfnKeep> KeepFromArray(const NpyArray& array, const TensorSource& tensors, const ModelConfig& config);

/// A neuron is live when its column of down_proj has a value that is not 0.
Result<FfnKeep> KeepFromZeroColumns(const TensorSource& tensors, const ModelConfig& config, ThreadPool& pool,
                                    const RunControl& run = {});

struct FfnKeepSummary {
  int64_t widest_before = 0, widest_after = 0;
  std::vector<int64_t> kept_per_layer;  // 0 for layers without a dense feed-forward
  double pruned_ratio = 0;              // of all neurons
};
[[nodiscard]] FfnKeepSummary Summarize(const FfnKeep& keep, const TensorSource& tensors);

}  // namespace cmforge
