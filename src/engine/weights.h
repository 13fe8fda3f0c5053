// Typed access to a model's tensors while it is being loaded: shapes are checked against what the operator
// needs, small vectors are decoded, and what nobody asked for can be named afterwards.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/result.h"
#include "kernels/kernels.h"
#include "model/model_config.h"
#include "model/tensor_source.h"

namespace cmforge::engine {

/// y = W x + b.
struct Linear {
  std::string name;         // of the weight tensor
  LinearWeight weight;      // [out, in]
  std::vector<float> bias;  // [out], or empty

  [[nodiscard]] int64_t rows() const { return weight.rows(); }
  [[nodiscard]] int64_t cols() const { return weight.cols(); }
};

/// RMS norm weight as it is multiplied: the 1 of the one-plus style is already added.
using NormWeight = std::vector<float>;

class WeightReader {
 public:
  explicit WeightReader(std::shared_ptr<const TensorSource> source) : source_(std::move(source)) {}

  [[nodiscard]] const TensorSource& source() const { return *source_; }
  [[nodiscard]] bool Has(std::string_view name) const { return source_->Find(name) != nullptr; }

  /// `stem` + ".weight" of shape [rows, cols], and `stem` + ".bias" [rows] where present. 0 rows: any number.
  /// Fails: kCorrupt naming the tensor, its shape and the wanted one.
  Result<Linear> ReadLinear(std::string_view stem, int64_t rows, int64_t cols);
  Result<std::optional<Linear>> ReadOptionalLinear(std::string_view stem, int64_t rows, int64_t cols);

  /// Any tensor of `count` elements as f32.
  Result<std::vector<float>> ReadVector(std::string_view name, int64_t count);

  Result<NormWeight> ReadNorm(std::string_view name, int64_t count, NormStyle style);
  /// Empty when the tensor is absent.
  Result<NormWeight> ReadOptionalNorm(std::string_view name, int64_t count, NormStyle style);

  /// The view of a 2-D tensor with `cols` columns, for row-wise reading.
  Result<TensorView> ReadTable(std::string_view name, int64_t cols);

  /// Marks a tensor as known although it takes no part.
  void Ignore(std::string_view name) { used_.emplace(name); }

  /// The first tensor that nobody read or ignored and that `is_expected` does not excuse; nullptr if none.
  template <class Predicate>
  [[nodiscard]] const TensorInfo* FindUnused(Predicate is_expected) const {
    for (const auto& tensor : source_->tensors()) {
      if (!used_.contains(tensor.name) && !is_expected(std::string_view(tensor.name))) return &tensor;
    }
    return nullptr;
  }

 private:
  Result<TensorView> Read(std::string_view name, std::string_view wanted);

  std::shared_ptr<const TensorSource> source_;
  std::unordered_set<std::string> used_;
};

}  // namespace cmforge::engine
