// Compile-time tensors as the interpreter holds them: in their stored form, decoded to f32 in pieces where
// they are used. Palettes, blockwise scales and their chains are each one small class.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "kernels/stored.h"
#include "mil/ops.h"
#include "mil/weights.h"

namespace cmforge::coreml {

/// Immutable; any thread may decode.
class Weight {
 public:
  virtual ~Weight() = default;

  [[nodiscard]] const mil::TensorType& type() const { return type_; }
  [[nodiscard]] int64_t count() const { return count_; }

  /// Elements [begin, begin + count) in row-major order, as f32 (integers too: exact to 2^24).
  virtual void Decode(int64_t begin, int64_t count, float* out) const = 0;

  /// The bytes of a tensor that is stored as it is; empty for compressed ones.
  [[nodiscard]] virtual Bytes stored() const { return {}; }

  /// The elements in their order as a matrix that kernels multiply as it is stored; nothing when its form is none of
  /// theirs. Lives as long as the weight.
  [[nodiscard]] virtual std::optional<StoredMatrix> Matrix(int64_t rows, int64_t cols) const {
    (void)rows, (void)cols;
    return std::nullopt;
  }

 protected:
  explicit Weight(mil::TensorType type) : type_(std::move(type)), count_(*ElementCount(type_.shape)) {}

 private:
  mil::TensorType type_;
  int64_t count_ = 0;
};

using WeightPtr = std::shared_ptr<const Weight>;

/// A stored tensor. `bytes` lie in a mapping or in the program, and outlive the weight.
/// Fails: kUnsupported for strings.
Result<WeightPtr> MakeDenseWeight(const mil::TensorType& type, Bytes bytes);

/// The results of a constexpr operation. `operand(parameter)` gives the weight of a parameter that is a
/// tensor. Fails: kUnsupported for forms no reader knows, kCorrupt for sparse data that does not fit its
/// mask.
Result<std::vector<WeightPtr>> MakeConstexpr(
    const mil::OpCall& call, const std::vector<mil::TensorType>& types,
    const std::function<Result<WeightPtr>(std::string_view)>& operand,
    const std::function<Result<Bytes>(std::string_view)>& bytes);

/// f16 bits to f32, four to sixteen at a time where the machine can.
void HalvesToFloats(const std::byte* halves, int64_t count, float* out);
/// Each number rounded to the nearest f16, in place.
void RoundToHalves(float* values, int64_t count);

}  // namespace cmforge::coreml
