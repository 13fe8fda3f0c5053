// A model in the layout and dtype of a Hugging Face folder, as a source: tensors are put together and converted when they
// are read.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/thread_pool.h"
#include "checkpoint/hf_layout.h"
#include "model/tensor_source.h"

namespace cmforge {

class HfSource final : public TensorSource {
 public:
  /// `plain` and `pool` must outlive the result. `dtype`: f32, f16 or bf16; what real folders keep in float32 whatever the
  /// rest is (decay rates, router biases) stays so.
  HfSource(const TensorSource& plain, std::vector<HfTensor> layout, DType dtype, ThreadPool& pool);

  [[nodiscard]] std::span<const TensorInfo> tensors() const override { return tensors_; }
  [[nodiscard]] const TensorInfo* Find(std::string_view name) const override;
  /// Values that have the wanted dtype already are copied bit for bit. Fails: kUsage for values beyond f16, and as the
  /// plain source reads and decodes.
  Result<TensorView> Read(std::string_view name) const override;
  [[nodiscard]] std::string_view path() const override { return plain_.path(); }

 private:
  const TensorSource& plain_;
  const std::vector<HfTensor> layout_;
  ThreadPool& pool_;
  std::vector<TensorInfo> tensors_;  // parallel to layout_
  std::unordered_map<std::string_view, size_t> by_name_;
};

}  // namespace cmforge
