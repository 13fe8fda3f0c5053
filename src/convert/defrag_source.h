// A model without the feed-forward neurons that its keep-set drops: a source in front of a source. gate_proj and up_proj
// lose rows, down_proj loses columns, in the model and in its skills; the shapes alone say so (spec 11). Cut tensors
// appear as float32, since scales of quantized ones hold for the whole row or group: whoever writes them encodes them
// anew. Everything else passes through.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/npy.h"
#include "convert/ffn_keep.h"
#include "model/tensor_source.h"

namespace cmforge {

class DefragSource final : public TensorSource {
 public:
  /// Checks the triple of every layer: gate and up have as many rows as down has columns, and every kept neuron is there.
  /// `inner` must outlive the result. Fails: kCorrupt naming the tensor.
  /// `dead`: columns that become zero, in the model and in its skills.
  static Result<DefragSource> Create(const TensorSource& inner, FfnKeep keep, DeadColumns dead = {});

  /// The same model at its full size: columns that give nothing under the mask are zero, so that without the mask it
  /// computes what it does with it. `inner` must outlive the result. Fails: as KeepFromMask.
  static Result<DefragSource> Zeroed(const TensorSource& inner, const cmf::TaskMask& mask,
                                     const ModelConfig& config);

  [[nodiscard]] std::span<const TensorInfo> tensors() const override { return tensors_; }
  [[nodiscard]] const TensorInfo* Find(std::string_view name) const override;
  Result<TensorView> Read(std::string_view name) const override;
  [[nodiscard]] std::span<const std::string> skipped() const override { return inner_->skipped(); }
  [[nodiscard]] std::string_view path() const override { return inner_->path(); }

  /// Whether a tensor of that name is cut, or has columns that are zero now.
  [[nodiscard]] bool IsCut(std::string_view name) const;

 private:
  DefragSource() = default;

  const TensorSource* inner_ = nullptr;
  FfnKeep keep_;
  DeadColumns dead_;
  std::vector<TensorInfo> tensors_;  // in the order of `inner`
  std::unordered_map<std::string, size_t> by_name_;
};

/// The keep-set of a skill's folder: ffn_keep.npy, or without it the columns of down_proj that are not all zero.
Result<FfnKeep> KeepFromFolder(const std::filesystem::path& folder, const TensorSource& tensors,
                               const ModelConfig& config, ThreadPool& pool, const RunControl& run = {});

/// Tensors of a folder of .npy files (name = file name without suffix) in front of a source: only feed-forward weights
/// are taken, with the shape they have below. Fails: kNotFound (no such folder), kCorrupt (an array of another shape or
/// type, or for a tensor that is not there: a misspelt name must not pass unnoticed).
Result<std::unique_ptr<TensorSource>> OverlayNpyFolder(const TensorSource& inner,
                                                       const std::filesystem::path& folder);

}  // namespace cmforge
