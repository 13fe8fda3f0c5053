// What graphs are written in: the operations they use, with their parameters filled in the way converters of
// the field do, and the building blocks of decoders made of them (linear layers as 1x1 convolutions, norms
// through layer_norm, sigmoids through tanh, rotary embeddings).
//
// Activations are fp16, [1, T, C] between layers and [1, C, 1, T] around convolutions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "coreml/graphs/weight_store.h"
#include "mil/builder.h"

namespace cmforge::coreml {

using mil::Arg;
using mil::Var;

/// What turns the halves of a head, [1, 1, T, dims] each.
struct Rotation {
  Var cosines, sines;
  std::optional<Var> factors;  // of both; sines of the first half are negative then
};

class Graph : public mil::FunctionBuilder {
 public:
  explicit Graph(WeightStore& weights) : weights_(weights) {}

  [[nodiscard]] const TensorSource& source() const { return weights_.source(); }
  [[nodiscard]] Result<WeightRows> Rows(const std::string& name) const { return weights_.Rows(name); }

  // ---- constants
  [[nodiscard]] static mil::Value Number(double value) {
    return mil::Float(mil::DataType::kFloat16, static_cast<float>(value));
  }
  /// A weight of the store; `name` is unique in the model.
  Var Weight(const std::string& name, const Shape& shape, const std::function<Result<WeightRows>()>& rows,
             WeightRole role = WeightRole::kPlain);
  /// The tensor of that name as it is, times `scale`, plus `offset`.
  Var Tensor(const std::string& name, const Shape& shape, float scale = 1, float offset = 0,
             WeightRole role = WeightRole::kPlain);
  /// The matrix of a linear operator, [out, in, 1, 1], times `scale`.
  Var Matrix(const std::string& name, int64_t out, int64_t in, float scale = 1) {
    return Tensor(name, {out, in, 1, 1}, scale, 0, WeightRole::kMatrix);
  }

  // ---- elementwise
  Var Add(const Arg& x, const Arg& y) { return Op("add", {{"x", x}, {"y", y}}); }
  Var Sub(const Arg& x, const Arg& y) { return Op("sub", {{"x", x}, {"y", y}}); }
  Var Mul(const Arg& x, const Arg& y) { return Op("mul", {{"x", x}, {"y", y}}); }
  Var Scale(const Var& x, double by) { return Mul(x, Number(by)); }
  Var Unary(std::string_view op, const Var& x) { return Op(op, {{"x", x}}); }
  Var Select(const Var& condition, const Arg& a, const Arg& b) {
    return Op("select", {{"cond", condition}, {"a", a}, {"b", b}});
  }
  /// 0.5 + 0.5 tanh(y / 2), given y / 2: the Neural Engine's own sigmoid is coarse.
  Var SigmoidOfHalf(const Var& half);
  Var Sigmoid(const Var& y) { return SigmoidOfHalf(Scale(y, 0.5)); }
  Var Silu(const Var& y) { return Mul(y, Sigmoid(y)); }
  /// The tanh form, factored so that fp16 overflows only where tanh has long saturated.
  Var GeluTanh(const Var& y);

  // ---- moving
  Var Reshape(const Var& x, const Shape& shape);
  Var Transpose(const Var& x, const std::vector<int32_t>& perm) {
    return Op("transpose", {{"x", x}, {"perm", perm}});
  }
  Var Expand(const Var& x, const std::vector<int32_t>& axes) {
    return Op("expand_dims", {{"x", x}, {"axes", axes}});
  }
  Var Squeeze(const Var& x, const std::vector<int32_t>& axes) {
    return Op("squeeze", {{"x", x}, {"axes", axes}});
  }
  Var Concat(const std::vector<Var>& values, int axis) {
    return Op("concat", {{"values", values}, {"axis", axis}, {"interleave", false}});
  }
  std::vector<Var> Split(const Var& x, const std::vector<int32_t>& sizes, int axis) {
    return Ops("split", {{"x", x}, {"split_sizes", sizes}, {"axis", axis}});
  }
  /// x[..., begin:end, ...] along one axis.
  Var Slice(const Var& x, int axis, int64_t begin, int64_t end);
  /// x[row], the first axis dropped.
  Var Row(const Var& x, int64_t row);
  Var Gather(const Arg& table, const Var& indices) {
    return Op(
        "gather",
        {{"x", table}, {"indices", indices}, {"axis", 0}, {"batch_dims", 0}, {"validate_indices", false}});
  }
  /// Each of the first axis' items `times` times in a row: [n, a, b] -> [1, n * times, a, b].
  Var RepeatHeads(const Var& x, int64_t times);

  // ---- products and reductions
  Var Matmul(const Var& x, const Var& y, bool transpose_x = false, bool transpose_y = false) {
    return Op("matmul", {{"x", x}, {"y", y}, {"transpose_x", transpose_x}, {"transpose_y", transpose_y}});
  }
  Var Reduce(std::string_view op, const Var& x, int axis, bool keep = true) {
    return Op(op, {{"x", x}, {"axes", std::vector<int32_t>{axis}}, {"keep_dims", keep}});
  }
  Var Softmax(const Var& x, int axis) { return Op("softmax", {{"x", x}, {"axis", axis}}); }

  // ---- decoders
  /// [1, T, C] -> [1, C, 1, T] and back.
  Var ToChannels(const Var& x) { return Expand(Transpose(x, {0, 2, 1}), {2}); }
  Var FromChannels(const Var& x) { return Transpose(Squeeze(x, {2}), {0, 2, 1}); }
  /// 1x1 convolution: weight [out, in, 1, 1], bias [out] or nothing.
  Var Conv(const Var& x, const Var& weight, const std::optional<Var>& bias = std::nullopt);
  /// The linear operator `prefix`.weight with `prefix`.bias where the source has one.
  Var Linear(const Var& x, const std::string& prefix, int64_t out, int64_t in,
             WeightRole role = WeightRole::kMatrix);
  /// [1, n * D, 1, T] -> [1, n, T, D] and back.
  Var ToHeads(const Var& x, int64_t heads, int64_t dim);
  Var FromHeads(const Var& x);
  /// x / sqrt(mean x^2 + eps) over the last axis, of `width`: layer_norm of [x, -x], whose mean is 0.
  Var RmsNorm(const Var& x, int64_t width, double eps) { return Normed(x, width, eps, std::nullopt); }
  /// The same times a weight [width].
  Var RmsNorm(const Var& x, int64_t width, double eps, const Var& weight) {
    return Mul(RmsNorm(x, width, eps), weight);
  }
  /// The same times `offset` + the tensor of that name [width], which fp16 does not hold: a factor near 1 is the
  /// layer_norm's gamma, the rest is multiplied behind it, and their roundings cancel.
  Var FineRmsNorm(const Var& x, int64_t width, double eps, const std::string& name, float offset);
  /// Rotates the halves of the last axis.
  Var Rotate(const Var& x, const Rotation& by);

 private:
  /// `gamma` is that of [x, -x].
  Var Normed(const Var& x, int64_t width, double eps, const std::optional<Var>& gamma);

  WeightStore& weights_;
};

}  // namespace cmforge::coreml
