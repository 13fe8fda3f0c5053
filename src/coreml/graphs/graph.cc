// Building blocks of graphs.
#include "coreml/graphs/graph.h"

#include <cmath>
#include <numbers>

#include "coreml/graphs/half_factors.h"

namespace cmforge::coreml {
namespace {

size_t AxisOf(const Var& x, int axis) {
  return static_cast<size_t>(axis < 0 ? axis + static_cast<int>(x.type.shape.size()) : axis);
}

}  // namespace

Var Graph::Weight(const std::string& name, const Shape& shape,
                  const std::function<Result<WeightRows>()>& rows, WeightRole role) {
  if (!ok()) return {};
  auto stored = weights_.Add(name, shape, role, rows);
  if (!stored) {
    Fail(std::move(stored).error());
    return {};
  }
  if (stored->op == "const") return Const(stored->parameters[0].second, name);
  mil::Args parameters;
  for (const auto& [parameter, value] : stored->parameters) parameters.emplace_back(parameter, value);
  return Constexpr(stored->op, parameters, name + stored->suffix);
}

Var Graph::Tensor(const std::string& name, const Shape& shape, float scale, float offset, WeightRole role) {
  const auto rows = [&]() -> Result<WeightRows> {
    CMF_TRY(WeightRows all, Rows(name));
    return ScaleRows(std::move(all), scale, offset);
  };
  return Weight(name, shape, rows, role);
}

Var Graph::SigmoidOfHalf(const Var& half) { return Add(Scale(Unary("tanh", half), 0.5), Number(0.5)); }

Var Graph::GeluTanh(const Var& y) {
  const Var growth = Add(Scale(Mul(y, y), 0.044715), Number(1));
  const Var t = Unary("tanh", Mul(Scale(y, std::sqrt(2 / std::numbers::pi)), growth));
  return Mul(Scale(y, 0.5), Add(t, Number(1)));
}

Var Graph::Reshape(const Var& x, const Shape& shape) {
  return Op("reshape", {{"x", x}, {"shape", std::vector<int32_t>(shape.begin(), shape.end())}});
}

Var Graph::Slice(const Var& x, int axis, int64_t begin, int64_t end) {
  if (!ok()) return {};
  const size_t rank = x.type.shape.size(), a = AxisOf(x, axis);
  std::vector<int32_t> from(rank, 0), to(rank, 0);
  std::vector<bool> to_the_end(rank, true);
  from[a] = static_cast<int32_t>(begin);
  to[a] = static_cast<int32_t>(end);
  to_the_end[a] = false;
  return Op("slice_by_index", {{"x", x}, {"begin", from}, {"end", to}, {"end_mask", to_the_end}});
}

Var Graph::Row(const Var& x, int64_t row) {
  if (!ok()) return {};
  const size_t rank = x.type.shape.size();
  std::vector<int32_t> from(rank, 0), to(rank, 0);
  std::vector<bool> to_the_end(rank, true), squeezed(rank, false);
  from[0] = static_cast<int32_t>(row);
  to[0] = from[0] + 1;
  to_the_end[0] = false;
  squeezed[0] = true;
  return Op("slice_by_index",
            {{"x", x}, {"begin", from}, {"end", to}, {"end_mask", to_the_end}, {"squeeze_mask", squeezed}});
}

Var Graph::RepeatHeads(const Var& x, int64_t times) {
  if (!ok()) return {};
  const Shape& s = x.type.shape;
  if (times == 1) return Expand(x, {0});
  const Var tiled = Op(
      "tile", {{"x", Expand(x, {1})}, {"reps", std::vector<int32_t>{1, static_cast<int32_t>(times), 1, 1}}});
  return Reshape(tiled, {1, s[0] * times, s[1], s[2]});
}

Var Graph::Conv(const Var& x, const Var& weight, const std::optional<Var>& bias) {
  mil::Args args = {{"x", x},
                    {"weight", weight},
                    {"strides", std::vector<int32_t>{1, 1}},
                    {"pad_type", "valid"},
                    {"pad", std::vector<int32_t>{0, 0, 0, 0}},
                    {"dilations", std::vector<int32_t>{1, 1}},
                    {"groups", 1}};
  if (bias) args.emplace_back("bias", *bias);
  return Op("conv", args);
}

Var Graph::Linear(const Var& x, const std::string& prefix, int64_t out, int64_t in, WeightRole role) {
  std::optional<Var> bias;
  if (source().Find(prefix + ".bias")) bias = Tensor(prefix + ".bias", {out});
  return Conv(x, Tensor(prefix + ".weight", {out, in, 1, 1}, 1, 0, role), bias);
}

Var Graph::ToHeads(const Var& x, int64_t heads, int64_t dim) {
  if (!ok()) return {};
  return Transpose(Reshape(x, {1, heads, dim, x.type.shape[3]}), {0, 1, 3, 2});
}

Var Graph::FromHeads(const Var& x) {
  if (!ok()) return {};
  const Shape& s = x.type.shape;
  return Reshape(Transpose(x, {0, 1, 3, 2}), {1, s[1] * s[3], 1, s[2]});
}

Var Graph::Normed(const Var& x, int64_t width, double eps, const std::optional<Var>& gamma) {
  if (!ok()) return {};
  const int last = static_cast<int>(x.type.shape.size()) - 1;
  const Var mirrored = Concat({x, Scale(x, -1)}, last);
  mil::Args args = {{"x", mirrored}, {"axes", std::vector<int32_t>{-1}}, {"epsilon", Number(eps)}};
  if (gamma) args.emplace_back("gamma", *gamma);
  return Slice(Op("layer_norm", args), last, 0, width);
}

Var Graph::FineRmsNorm(const Var& x, int64_t width, double eps, const std::string& name, float offset) {
  const auto factors = [&](HalfFactor which, int times) {
    return [&, which, times]() -> Result<WeightRows> {
      CMF_TRY(const WeightRows rows, Rows(name));
      std::vector<float> values(static_cast<size_t>(rows.rows * rows.cols));
      rows.read(0, rows.rows, values.data());
      std::vector<double> wanted;
      for (int i = 0; i < times; ++i) {
        for (const float v : values) wanted.push_back(static_cast<double>(v) + static_cast<double>(offset));
      }
      return FactorRows(wanted, which);
    };
  };
  const Var gamma = Weight(name + "_gamma", {2 * width}, factors(&HalfFactors::near_one, 2));
  return Mul(Normed(x, width, eps, gamma), Weight(name, {width}, factors(&HalfFactors::rest, 1)));
}

Var Graph::Rotate(const Var& x, const Rotation& by) {
  if (!ok()) return {};
  const int last = static_cast<int>(x.type.shape.size()) - 1;
  const int64_t dims = x.type.shape.back();
  const Var first = Slice(x, last, 0, dims / 2), second = Slice(x, last, dims / 2, dims);
  const Var crossed = Concat({by.factors ? second : Scale(second, -1), first}, last);
  const Var turned = Add(Mul(x, by.cosines), Mul(crossed, by.sines));
  return by.factors ? Mul(turned, *by.factors) : turned;
}

}  // namespace cmforge::coreml
