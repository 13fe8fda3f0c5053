// Reading and checking tensors by name.
#include "engine/weights.h"

#include "engine/model.h"
#include "quant/encoding.h"

namespace cmforge::engine {

Result<TensorView> WeightReader::Read(std::string_view name, std::string_view wanted) {
  if (!Has(name)) {
    return Fail(ErrorKind::kCorrupt,
                fmt::format("{}: tensor '{}': missing, wanted {}", source_->path(), name, wanted),
                kMissingTensor);
  }
  used_.emplace(name);
  return source_->Read(name);
}

Result<Linear> WeightReader::ReadLinear(std::string_view stem, int64_t rows, int64_t cols) {
  Linear linear;
  linear.name = fmt::format("{}.weight", stem);
  const std::string wanted =
      rows > 0 ? fmt::format("shape [{}, {}]", rows, cols) : fmt::format("shape [any, {}]", cols);
  CMF_TRY(TensorView view, Read(linear.name, wanted));
  if (view.shape.size() != 2 || view.shape[1] != cols || (rows > 0 && view.shape[0] != rows) ||
      view.shape[0] < 1) {
    return Fail(ErrorKind::kCorrupt, fmt::format("{}: tensor '{}': shape {}, wanted {}", source_->path(),
                                                 linear.name, ShapeText(view.shape), wanted));
  }
  const int64_t outputs = view.shape[0];
  auto weight = LinearWeight::Make(std::move(view), linear.name);
  if (!weight) return Fail(std::move(weight).error().In(source_->path()));
  linear.weight = std::move(*weight);
  if (const std::string bias = fmt::format("{}.bias", stem); Has(bias)) {
    CMF_TRY(linear.bias, ReadVector(bias, outputs));
  }
  return linear;
}

Result<std::optional<Linear>> WeightReader::ReadOptionalLinear(std::string_view stem, int64_t rows,
                                                               int64_t cols) {
  if (!Has(fmt::format("{}.weight", stem))) return std::optional<Linear>();
  CMF_TRY(Linear linear, ReadLinear(stem, rows, cols));
  return std::optional<Linear>(std::move(linear));
}

Result<std::vector<float>> WeightReader::ReadVector(std::string_view name, int64_t count) {
  CMF_TRY(const TensorView view, Read(name, fmt::format("{} elements", count)));
  if (ElementCount(view.shape) != count) {
    return Fail(ErrorKind::kCorrupt, fmt::format("{}: tensor '{}': shape {}, wanted {} elements",
                                                 source_->path(), name, ShapeText(view.shape), count));
  }
  auto values = Dequantize(view);
  if (!values)
    return Fail(std::move(values).error().In(fmt::format("{}: tensor '{}'", source_->path(), name)));
  return values;
}

Result<NormWeight> WeightReader::ReadNorm(std::string_view name, int64_t count, NormStyle style) {
  CMF_TRY(NormWeight weight, ReadVector(name, count));
  if (style == NormStyle::kOnePlus) {
    for (float& w : weight) w += 1.0f;
  }
  return weight;
}

Result<NormWeight> WeightReader::ReadOptionalNorm(std::string_view name, int64_t count, NormStyle style) {
  if (!Has(name)) return NormWeight();
  return ReadNorm(name, count, style);
}

Result<TensorView> WeightReader::ReadTable(std::string_view name, int64_t cols) {
  CMF_TRY(TensorView view, Read(name, fmt::format("shape [any, {}]", cols)));
  if (view.shape.size() != 2 || view.shape[1] != cols || view.shape[0] < 1) {
    return Fail(ErrorKind::kCorrupt, fmt::format("{}: tensor '{}': shape {}, wanted [any, {}]",
                                                 source_->path(), name, ShapeText(view.shape), cols));
  }
  return view;
}

}  // namespace cmforge::engine
