// What a defragmented model keeps (spec 11): its feed-forward neurons, layer by layer, from a task mask, a keep-set file or
// the columns of down_proj that are all zero; and what else of a mask is baked into the weights.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
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

/// The neurons whose bits are set; in a layer that the mask skips, the first one. Fails: kUnsupported for what a smaller
/// file cannot express (experts switched off, visits of a looped model that differ, skipped layers of kinds that do more
/// than add to the residual stream) and for another layer without a live neuron; kUsage when no layer has a dense
/// feed-forward.
Result<FfnKeep> KeepFromMask(const cmf::TaskMask& mask, const TensorSource& tensors,
                             const ModelConfig& config);

/// Columns [begin, end) of output projections that give nothing under a mask, by tensor name: those of heads that are off,
/// all of them in layers that are skipped (biases too, as one column).
using DeadColumns = std::map<std::string, std::vector<std::pair<int64_t, int64_t>>, std::less<>>;
[[nodiscard]] DeadColumns DeadColumnsOf(const cmf::TaskMask& mask, const TensorSource& tensors,
                                        const ModelConfig& config);

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
