// Choosing what is kept, and the source that has it.
#include "open/compact_task.h"

#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "base/huge_memory.h"
#include "cmf/masks.h"
#include "open/tasks.h"
#include "quant/encoding.h"
#include "quant/slice.h"

namespace cmforge {
namespace {

constexpr int64_t kGroup = 32;
constexpr uint64_t kAlignment = 64;

/// What a mask leaves of one layer's neurons.
struct LayerKeep {
  std::vector<int32_t> groups;  // with a live neuron
  std::vector<int64_t> dead;    // neurons of these groups that are off
};

LayerKeep KeepOf(const std::vector<uint8_t>& bits, int64_t width) {
  LayerKeep keep;
  for (int64_t g = 0; g < width / kGroup; ++g) {
    bool is_live = false;
    for (int64_t i = g * kGroup; i < (g + 1) * kGroup; ++i) is_live = is_live || cmf::TestBit(bits, i);
    if (is_live) keep.groups.push_back(static_cast<int32_t>(g));
  }
  // The engine runs a mask that leaves more than seven eighths on whole rows: so do we, for the same bits. Where nothing
  // is left, a group of zeros stands for it.
  if (static_cast<int64_t>(keep.groups.size()) * 8 > width / kGroup * 7) {
    keep.groups.clear();
    for (int64_t g = 0; g < width / kGroup; ++g) keep.groups.push_back(static_cast<int32_t>(g));
  } else if (keep.groups.empty()) {
    keep.groups.push_back(0);
  }
  for (const int32_t g : keep.groups) {
    for (int64_t i = g * kGroup; i < (g + 1) * kGroup; ++i) {
      if (!cmf::TestBit(bits, i)) keep.dead.push_back(i);
    }
  }
  return keep;
}

struct Cut {
  TensorView whole;
  MatrixSlice slice;
  Shape shape;
  uint64_t offset = 0, size = 0;  // in the memory of all
};

class CompactSource final : public TensorSource {
 public:
  CompactSource(std::shared_ptr<const TensorSource> source, std::unordered_map<std::string, TensorView> cut)
      : source_(std::move(source)), cut_(std::move(cut)) {
    for (TensorInfo info : source_->tensors()) {
      if (const auto it = cut_.find(info.name); it != cut_.end()) {
        info.shape = it->second.shape;
        info.nbytes = it->second.bytes.size();
      }
      by_name_.emplace(info.name, tensors_.size());
      tensors_.push_back(std::move(info));
    }
  }
  [[nodiscard]] std::span<const TensorInfo> tensors() const override { return tensors_; }
  [[nodiscard]] const TensorInfo* Find(std::string_view name) const override {
    const auto it = by_name_.find(std::string(name));
    return it == by_name_.end() ? nullptr : &tensors_[it->second];
  }
  Result<TensorView> Read(std::string_view name) const override {
    const auto it = cut_.find(std::string(name));
    return it == cut_.end() ? source_->Read(name) : Result<TensorView>(it->second);
  }
  [[nodiscard]] std::span<const std::string> skipped() const override { return source_->skipped(); }
  [[nodiscard]] std::string_view path() const override { return source_->path(); }

 private:
  std::shared_ptr<const TensorSource> source_;
  std::unordered_map<std::string, TensorView> cut_;
  std::vector<TensorInfo> tensors_;
  std::unordered_map<std::string, size_t> by_name_;
};

}  // namespace

Result<std::optional<CompactTask>> MakeCompactTask(std::shared_ptr<const TensorSource> source,
                                                   const ModelConfig& config, const ActiveSet& active) {
  const auto layers = static_cast<size_t>(config.num_layers);
  if (config.moe || config.num_loops != 1 || active.ffn.size() != layers || active.ffn_width % kGroup != 0)
    return std::nullopt;
  std::vector<LayerKeep> keeps;
  for (const auto& bits : active.ffn) keeps.push_back(KeepOf(bits, active.ffn_width));
  std::vector<std::string> names;
  std::vector<Cut> cuts;
  uint64_t total = 0;
  for (size_t layer = 0; layer < layers; ++layer) {
    const LayerKeep& keep = keeps[layer];
    const bool is_whole = static_cast<int64_t>(keep.groups.size()) == active.ffn_width / kGroup;
    if (is_whole && keep.dead.empty()) continue;
    const std::string mlp = fmt::format("model.layers.{}.mlp.", layer);
    for (const std::string_view matrix : {"gate_proj", "up_proj", "down_proj"}) {
      const bool is_down = matrix == "down_proj";
      const std::string stem = fmt::format("{}{}", mlp, matrix);
      const TensorInfo* info = source->Find(stem + ".weight");
      if (info == nullptr || source->Find(stem + ".bias") != nullptr || info->shape.size() != 2 ||
          info->shape[is_down ? 1 : 0] != active.ffn_width) {
        return std::nullopt;
      }
      if (is_down && is_whole) continue;
      Cut cut;
      (is_down ? cut.slice.column_groups : cut.slice.row_groups) = keep.groups;
      if (!is_down) cut.slice.zero_rows = keep.dead;
      if (!CanSlice(info->dtype, info->shape, cut.slice)) return std::nullopt;
      CMF_TRY(cut.whole, source->Read(info->name));
      cut.shape = SlicedShape(info->shape, cut.slice);
      cut.offset = total;
      cut.size = FindEncoding(info->dtype)->payload_size(cut.shape).value_or(0);
      total += AlignUp(cut.size, kAlignment);
      names.push_back(info->name);
      cuts.push_back(std::move(cut));
    }
  }
  if (cuts.empty()) return std::nullopt;
  const std::shared_ptr<std::byte> memory(NewHugeMemory(total), HugeMemoryFree{total});
  for (const Cut& cut : cuts) SliceMatrix(cut.whole, cut.slice, {memory.get() + cut.offset, cut.size});
  std::unordered_map<std::string, TensorView> views;
  for (size_t i = 0; i < cuts.size(); ++i) {
    views.emplace(names[i], TensorView{cuts[i].whole.dtype, cuts[i].shape,
                                       Bytes(memory.get() + cuts[i].offset, cuts[i].size), memory});
  }
  CompactTask task;
  task.tensors = std::make_shared<CompactSource>(std::move(source), std::move(views));
  task.copied_bytes = total;
  ActiveSet rest = active;
  rest.ffn.clear();
  if (!ForbidsNothing(rest, config.num_layers))
    task.active = std::make_shared<const ActiveSet>(std::move(rest));
  return task;
}

}  // namespace cmforge
