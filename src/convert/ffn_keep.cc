// The three sources of a keep-set.
#include "convert/ffn_keep.h"

#include <algorithm>

#include "quant/encoding.h"

namespace cmforge {
namespace {

std::string DownName(int64_t layer) { return fmt::format("model.layers.{}.mlp.down_proj.weight", layer); }

// Width of a layer's dense feed-forward, or 0.
int64_t WidthOf(const TensorSource& tensors, int64_t layer) {
  const TensorInfo* down = tensors.Find(DownName(layer));
  return down != nullptr && down->shape.size() == 2 ? down->shape[1] : 0;
}

template <class IsLive>
Result<FfnKeep> Collect(const TensorSource& tensors, const ModelConfig& config, IsLive&& is_live) {
  FfnKeep keep(static_cast<size_t>(config.num_layers));
  bool is_any = false;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const int64_t width = WidthOf(tensors, layer);
    if (width == 0) continue;
    is_any = true;
    auto& neurons = keep[static_cast<size_t>(layer)].emplace();
    for (int64_t neuron = 0; neuron < width; ++neuron) {
      if (is_live(layer, neuron)) neurons.push_back(static_cast<int32_t>(neuron));
    }
    if (neurons.empty()) {
      return Fail(ErrorKind::kUnsupported,
                  fmt::format("{}: layer {}: none of {} neurons is live: a layer keeps at least one",
                              tensors.path(), layer, width));
    }
  }
  if (!is_any)
    return Fail(ErrorKind::kUsage,
                fmt::format("{}: no layer has a dense feed-forward to cut", tensors.path()));
  return keep;
}

bool IsFull(std::span<const uint8_t> row, int64_t bits) { return cmf::CountBits(row) == bits; }

bool IsSkipped(const cmf::TaskMask& mask, int64_t layer) {
  const auto& gates = mask.bits.layer_gates;
  return layer / 8 < static_cast<int64_t>(gates.size()) && !cmf::TestBit(gates, layer);
}

}  // namespace

Result<FfnKeep> KeepFromMask(const cmf::TaskMask& mask, const TensorSource& tensors,
                             const ModelConfig& config) {
  const cmf::MaskGeometry geometry = cmf::MaskGeometry::Of(config);
  const auto refuse = [&](std::string_view what) {
    return Fail(ErrorKind::kUnsupported, fmt::format("{}: mask '{}': {}, and weights alone cannot say that",
                                                     tensors.path(), mask.name, what));
  };
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    if (!IsSkipped(mask, layer)) continue;
    const bool is_more = config.num_loops > 1 || config.hidden_size_per_layer_input > 0 ||
                         tensors.Find(fmt::format("model.layers.{}.mlp.gate.weight", layer)) != nullptr ||
                         tensors.Find(fmt::format("model.layers.{}.layer_scalar", layer)) != nullptr;
    if (is_more)
      return refuse(fmt::format("it skips layer {}, which does more than add to the residual stream", layer));
  }
  for (const auto& row : mask.bits.experts) {
    if (!IsFull(row, geometry.experts)) return refuse("it switches experts off (see `cmforge moe-defrag`)");
  }
  const auto& rows = mask.bits.ffn;
  for (size_t visit = static_cast<size_t>(config.num_layers); visit < rows.size(); ++visit) {
    if (rows[visit] != rows[visit % static_cast<size_t>(config.num_layers)])
      return refuse("the passes of this looped model have masks of their own");
  }
  return Collect(tensors, config, [&](int64_t layer, int64_t neuron) {
    if (IsSkipped(mask, layer)) return neuron == 0;
    if (rows.empty()) return true;
    const auto& row = rows[static_cast<size_t>(layer)];
    return neuron / 8 < static_cast<int64_t>(row.size()) && cmf::TestBit(row, neuron);
  });
}

DeadColumns DeadColumnsOf(const cmf::TaskMask& mask, const TensorSource& tensors, const ModelConfig& config) {
  DeadColumns dead;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    if (IsSkipped(mask, layer)) {
      for (const char* suffix :
           {"self_attn.o_proj.weight", "self_attn.o_proj.bias", "linear_attn.out_proj.weight",
            "short_conv.out_proj.weight", "mlp.down_proj.weight", "mlp.down_proj.bias"}) {
        if (const TensorInfo* info = tensors.Find(prefix + suffix))
          dead[info->name] = {{0, info->shape.size() == 2 ? info->shape[1] : 1}};
      }
      continue;
    }
    const TensorInfo* output = tensors.Find(prefix + "self_attn.o_proj.weight");
    if (output == nullptr || output->shape.size() != 2 || mask.bits.heads.empty()) continue;
    const auto& row = mask.bits.heads[static_cast<size_t>(layer) % mask.bits.heads.size()];
    const int64_t heads = config.attention_heads_per_layer.empty()
                              ? config.num_attention_heads
                              : config.attention_heads_per_layer[static_cast<size_t>(layer)];
    const int64_t width = heads > 0 ? output->shape[1] / heads : 0;
    for (int64_t head = 0; head < heads; ++head) {
      const bool is_on = head / 8 < static_cast<int64_t>(row.size()) && cmf::TestBit(row, head);
      if (!is_on) dead[output->name].emplace_back(head * width, (head + 1) * width);
    }
  }
  return dead;
}

Result<FfnKeep> KeepFromArray(const NpyArray& array, const TensorSource& tensors, const ModelConfig& config) {
  int64_t width = 0;
  for (int64_t layer = 0; layer < config.num_layers; ++layer)
    width = std::max(width, WidthOf(tensors, layer));
  if (array.shape != std::vector<int64_t>{config.num_layers, width}) {
    return Fail(ErrorKind::kCorrupt, fmt::format("keep-set: shape {}, the model has {} layers of {} neurons",
                                                 ShapeText(array.shape), config.num_layers, width));
  }
  const std::vector<float> values = array.ToFloats();
  return Collect(tensors, config, [&](int64_t layer, int64_t neuron) {
    return values[static_cast<size_t>(layer * width + neuron)] != 0;
  });
}

Result<FfnKeep> KeepFromZeroColumns(const TensorSource& tensors, const ModelConfig& config, ThreadPool& pool,
                                    const RunControl& run) {
  std::vector<std::vector<uint8_t>> live(static_cast<size_t>(config.num_layers));
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    CMF_CHECK(run.CheckCancelled());
    run.Report("looking for dead neurons", layer, config.num_layers);
    if (WidthOf(tensors, layer) == 0) continue;
    CMF_TRY(const TensorView view, tensors.Read(DownName(layer)));
    CMF_TRY(const FloatRows rows, AsFloatRows(view));
    const auto cols = static_cast<size_t>(rows.cols);
    std::vector<std::vector<uint8_t>> seen(static_cast<size_t>(pool.threads()));
    pool.Run(rows.rows, [&](int64_t row, int worker) {
      auto& mine = seen[static_cast<size_t>(worker)];
      mine.resize(cols);
      std::vector<float> values(cols);
      rows.Read(row, row + 1, values.data());
      for (size_t i = 0; i < cols; ++i) mine[i] = static_cast<uint8_t>(mine[i] | (values[i] != 0 ? 1 : 0));
    });
    auto& all = live[static_cast<size_t>(layer)];
    all.resize(cols);
    for (const auto& mine : seen) {
      for (size_t i = 0; i < mine.size(); ++i) all[i] = static_cast<uint8_t>(all[i] | mine[i]);
    }
  }
  return Collect(tensors, config, [&](int64_t layer, int64_t neuron) {
    return live[static_cast<size_t>(layer)][static_cast<size_t>(neuron)] != 0;
  });
}

FfnKeepSummary Summarize(const FfnKeep& keep, const TensorSource& tensors) {
  FfnKeepSummary summary;
  int64_t before = 0, after = 0;
  for (size_t layer = 0; layer < keep.size(); ++layer) {
    const int64_t width = keep[layer] ? WidthOf(tensors, static_cast<int64_t>(layer)) : 0;
    const int64_t kept = keep[layer] ? static_cast<int64_t>(keep[layer]->size()) : 0;
    summary.kept_per_layer.push_back(kept);
    summary.widest_before = std::max(summary.widest_before, width);
    summary.widest_after = std::max(summary.widest_after, kept);
    before += width;
    after += kept;
  }
  if (before > 0) summary.pruned_ratio = 1.0 - static_cast<double>(after) / static_cast<double>(before);
  return summary;
}

}  // namespace cmforge
