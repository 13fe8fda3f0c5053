// TensorEncoder.
#include "convert/tensor_encoder.h"

#include "cmf/checked_source.h"
#include "quant/encoding.h"
#include "quant/least_error.h"
#include "quant/relayout.h"
#include "quant/row_blocks.h"

namespace cmforge {
namespace {

bool IsFloat(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16; }

}  // namespace

TensorEncoder::TensorEncoder(const TensorSource& source, const QuantPlan& plan,
                             const EncoderSettings& settings, ThreadPool& pool, const RunControl& control)
    : source_(source),
      file_(dynamic_cast<const cmf::File*>(&source)),
      settings_(settings),
      budget_(plan, settings.mean_bits.value_or(EncoderSettings::kMeanBits), settings.routing),
      pool_(pool),
      control_(control) {}

bool TensorEncoder::Changes(const PlannedTensor& tensor) const {
  const TensorInfo* info = source_.Find(tensor.name);
  if (info == nullptr || info->dtype != tensor.dtype) return true;
  const bool is_vbit = tensor.dtype == DType::kVbit || tensor.dtype == DType::kVbitRo;
  return is_vbit && settings_.mean_bits.has_value() && !tensor.is_kept;
}

Result<TensorView> TensorEncoder::Read(const PlannedTensor& tensor) {
  CMF_TRY(TensorView view, source_.Read(tensor.name));
  const auto in_tensor = [&](Error error) {
    return Fail(std::move(error).In(fmt::format("{}: tensor '{}'", source_.path(), tensor.name)));
  };
  if (file_ != nullptr) CMF_CHECK(cmf::CheckPayload(*file_, *file_->Find(tensor.name), view.bytes));
  if (!Changes(tensor)) {
    if (!IsFloat(view.dtype)) return view;
    auto rows = AsFloatRows(view);
    if (!rows) return in_tensor(std::move(rows).error());
    if (auto finite = CheckFinite(*rows, pool_); !finite) return in_tensor(std::move(finite).error());
    return view;
  }
  auto payload = std::make_shared<std::vector<std::byte>>();
  if (auto moved = settings_.mean_bits ? std::nullopt : Relayout(view, tensor.dtype)) {
    *payload = std::move(*moved);
  } else {
    EncodeOptions options;
    options.mean_bits = settings_.mean_bits.value_or(EncoderSettings::kMeanBits);
    options.error_diffusion = tensor.error_diffusion;
    CMF_TRY(options.row_bias_bits, budget_.BiasBits(tensor, source_, pool_, control_));
    auto rows = AsFloatRows(std::move(view));
    if (!rows) return in_tensor(std::move(rows).error());
    const EncodeFunction least_error = settings_.least_error ? LeastErrorEncoder(tensor.dtype) : nullptr;
    const EncodeFunction encode = least_error != nullptr ? least_error : FindEncoding(tensor.dtype)->encode;
    auto encoded = encode(*rows, options, pool_);
    if (!encoded) return in_tensor(std::move(encoded).error());
    *payload = std::move(*encoded);
  }
  const Bytes bytes(*payload);
  return TensorView{tensor.dtype, tensor.shape, bytes, std::move(payload)};
}

}  // namespace cmforge
