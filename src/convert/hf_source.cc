// HfSource: slices of rows decoded in parallel, straight into the place they have in the folder's tensor.
#include "convert/hf_source.h"

#include <atomic>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "quant/encoding.h"

namespace cmforge {
namespace {

constexpr float kRoundsToInfinity = 65520.0f;  // as f16

bool StaysF32(std::string_view name) {
  return name.ends_with("linear_attn.A_log") || name.ends_with("linear_attn.norm.weight") ||
         name.ends_with("e_score_correction_bias") || name.ends_with("expert_bias");
}

}  // namespace

HfSource::HfSource(const TensorSource& plain, std::vector<HfTensor> layout, DType dtype, ThreadPool& pool)
    : plain_(plain), layout_(std::move(layout)), pool_(pool) {
  for (const HfTensor& tensor : layout_) {
    const DType stored = StaysF32(tensor.name) ? DType::kF32 : dtype;
    const auto count = static_cast<uint64_t>(ElementCount(tensor.shape).value_or(0));
    tensors_.push_back(
        {tensor.name, stored, tensor.shape, count * static_cast<uint64_t>(ElementBytes(stored))});
  }
  for (size_t i = 0; i < tensors_.size(); ++i) by_name_.emplace(tensors_[i].name, i);
}

const TensorInfo* HfSource::Find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

Result<TensorView> HfSource::Read(std::string_view name) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end())
    return Fail(ErrorKind::kNotFound, fmt::format("{}: no tensor '{}'", path(), name));
  const HfTensor& tensor = layout_[found->second];
  const TensorInfo& info = tensors_[found->second];
  const auto element = static_cast<size_t>(ElementBytes(info.dtype));
  const size_t row_bytes = static_cast<size_t>(tensor.row_length) * element;
  auto bytes = std::make_shared<std::vector<std::byte>>(info.nbytes);  // zeros where a slice is of no tensor
  size_t at = 0;
  for (const RowSlice& slice : tensor.slices) {
    const auto slice_bytes = static_cast<size_t>(slice.end - slice.begin) * row_bytes;
    std::byte* const to = bytes->data() + at;
    at += slice_bytes;
    if (slice.tensor.empty()) continue;
    CMF_TRY(const TensorView view, plain_.Read(slice.tensor));
    CMF_TRY(const FloatRows rows, AsFloatRows(view));
    const auto given = static_cast<size_t>(rows.cols);
    if (view.dtype == info.dtype && given == static_cast<size_t>(tensor.row_length)) {
      std::memcpy(to, view.bytes.data() + static_cast<size_t>(slice.begin) * row_bytes, slice_bytes);
      continue;
    }
    std::atomic<bool> is_too_large{false};
    pool_.ForRanges(slice.end - slice.begin, 1, [&](int64_t begin, int64_t end) {
      std::vector<float> values(given);
      for (int64_t row = begin; row < end; ++row) {
        rows.Read(slice.begin + row, slice.begin + row + 1, values.data());
        std::byte* out = to + static_cast<size_t>(row) * row_bytes;
        for (size_t i = 0; i < given; ++i, out += element) {
          if (info.dtype == DType::kF32) {
            StoreLe(out, values[i]);
          } else if (info.dtype == DType::kBF16) {
            StoreLe(out, F32ToBf16(values[i]));
          } else {
            if (std::abs(values[i]) >= kRoundsToInfinity && std::isfinite(values[i])) is_too_large = true;
            StoreLe(out, F32ToF16(values[i]));
          }
        }
      }
    });
    if (is_too_large) {
      return Fail(ErrorKind::kUsage,
                  fmt::format("{}: tensor '{}': has values beyond f16's 65504: use --dtype bf16 or f32",
                              path(), slice.tensor));
    }
  }
  TensorView view{info.dtype, info.shape, *bytes, nullptr};
  view.owner = std::move(bytes);
  return view;
}

}  // namespace cmforge
