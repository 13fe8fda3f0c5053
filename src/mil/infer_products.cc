// Result types of matrix products, convolutions and attention.
#include <algorithm>

#include "mil/infer.h"

namespace cmforge::mil {
namespace {

Result<std::vector<int64_t>> SpatialList(const OpCall& call, std::string_view parameter, size_t count,
                                         int64_t absent, int64_t least) {
  if (!call.Has(parameter)) return std::vector<int64_t>(count, absent);
  const auto values = call.Integers(parameter);
  if (!values || values->size() != count) {
    return call.Wrong(fmt::format("'{}' needs {} numbers known at compile time", parameter, count));
  }
  for (const int64_t v : *values) {
    if (v < least || v > INT32_MAX) return call.Wrong(fmt::format("{} in '{}'", v, parameter));
  }
  return *values;
}

bool IsEquationLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

}  // namespace

Types InferMatmul(const OpCall& call) {
  TensorType x = call.Tensor("x"), y = call.Tensor("y");
  CMF_TRY(const bool transpose_x, call.Flag("transpose_x", false));
  CMF_TRY(const bool transpose_y, call.Flag("transpose_y", false));
  const auto conflict = [&] {
    return call.Wrong(fmt::format("{}{} times {}{}", ShapeText(call.Tensor("x").shape),
                                  transpose_x ? "^T" : "", ShapeText(call.Tensor("y").shape),
                                  transpose_y ? "^T" : ""));
  };
  if (x.shape.empty() || y.shape.empty()) return conflict();
  // A vector stands for a row on the left and a column on the right; its axis leaves the result.
  const bool is_row = x.rank() == 1, is_column = y.rank() == 1;
  if (is_row) x.shape.insert(x.shape.begin(), 1);
  if (is_column) y.shape.push_back(1);
  if (transpose_x && !is_row) std::swap(x.shape.end()[-1], x.shape.end()[-2]);
  if (transpose_y && !is_column) std::swap(y.shape.end()[-1], y.shape.end()[-2]);
  if (!DimsAgree(x.shape.end()[-1], y.shape.end()[-2])) return conflict();
  const auto shape =
      BroadcastShapes(Shape(x.shape.begin(), x.shape.end() - 2), Shape(y.shape.begin(), y.shape.end() - 2));
  if (!shape) return conflict();
  TensorType out{x.dtype, *shape};
  if (!is_row) out.shape.push_back(x.shape.end()[-2]);
  if (!is_column) out.shape.push_back(y.shape.end()[-1]);
  return std::vector{std::move(out)};
}

Types InferLinear(const OpCall& call) {
  TensorType out = call.Tensor("x");
  const Shape& weight = call.Tensor("weight").shape;
  if (out.shape.empty() || weight.size() != 2 || !DimsAgree(out.shape.back(), weight[1])) {
    return call.Wrong(fmt::format("x is {}, weight is {}", ShapeText(out.shape), ShapeText(weight)));
  }
  if (call.Has("bias")) {
    const Shape& bias = call.Tensor("bias").shape;
    if (bias.size() != 1 || !DimsAgree(bias[0], weight[0])) {
      return call.Wrong(fmt::format("bias is {}, weight is {}", ShapeText(bias), ShapeText(weight)));
    }
  }
  out.shape.back() = weight[0];
  return std::vector{std::move(out)};
}

Result<EinsumPlan> PlanEinsum(const OpCall& call) {
  CMF_TRY(std::string equation, call.Text("equation", ""));
  std::erase(equation, ' ');
  const auto values = call.All("values");
  const size_t comma = equation.find(','), arrow = equation.find("->");
  if (values.size() != 2 || comma == std::string::npos || arrow == std::string::npos || comma > arrow) {
    return call.Wrong(fmt::format("equation '{}' over {} values: two are possible", equation, values.size()));
  }
  EinsumPlan plan;
  plan.a = equation.substr(0, comma);
  plan.b = equation.substr(comma + 1, arrow - comma - 1);
  plan.out = equation.substr(arrow + 2);
  for (size_t side = 0; side < 2; ++side) {
    const std::string& letters = side ? plan.b : plan.a;
    const Shape& shape = values[side].type->tensor.shape;
    if (letters.size() != shape.size()) {
      return call.Wrong(fmt::format("equation '{}' for a value of shape {}", equation, ShapeText(shape)));
    }
    for (size_t i = 0; i < letters.size(); ++i) {
      if (!IsEquationLetter(letters[i]) || letters.find(letters[i], i + 1) != std::string::npos) {
        return call.Wrong(fmt::format("equation '{}'", equation));
      }
      int64_t& extent = plan.extents.emplace(letters[i], shape[i]).first->second;
      if (!DimsAgree(extent, shape[i])) {
        return call.Wrong(
            fmt::format("axis '{}' of '{}' is both {} and {}", letters[i], equation, extent, shape[i]));
      }
      if (extent == kUnknownDim) extent = shape[i];
    }
  }
  for (size_t i = 0; i < plan.out.size(); ++i) {
    if (!plan.extents.contains(plan.out[i]) || plan.out.find(plan.out[i], i + 1) != std::string::npos) {
      return call.Wrong(fmt::format("equation '{}'", equation));
    }
  }
  return plan;
}

Types InferEinsum(const OpCall& call) {
  CMF_TRY(const EinsumPlan plan, PlanEinsum(call));
  TensorType out{call.All("values")[0].type->tensor.dtype, {}};
  for (const char letter : plan.out) out.shape.push_back(plan.extents.at(letter));
  return std::vector{std::move(out)};
}

Result<ConvPlan> PlanConv(const OpCall& call) {
  const Shape& x = call.Tensor("x").shape;
  const Shape& weight = call.Tensor("weight").shape;
  const auto shapes = [&] { return fmt::format("x is {}, weight is {}", ShapeText(x), ShapeText(weight)); };
  if (x.size() < 3 || x.size() > 5 || weight.size() != x.size()) return call.Wrong(shapes());
  const size_t spatial = x.size() - 2;
  ConvPlan plan;
  CMF_TRY(plan.groups, call.Integer("groups", 1));
  CMF_TRY(plan.strides, SpatialList(call, "strides", spatial, 1, 1));
  CMF_TRY(plan.dilations, SpatialList(call, "dilations", spatial, 1, 1));
  CMF_TRY(const std::string pad_type, call.Text("pad_type", "valid"));
  std::vector<int64_t> pad(2 * spatial, 0);
  if (pad_type == "custom") {
    CMF_TRY(pad, SpatialList(call, "pad", 2 * spatial, 0, 0));
  } else if (pad_type != "valid" && pad_type != "same" && pad_type != "same_lower") {
    return call.Wrong(fmt::format("pad_type '{}' is not known", pad_type));
  }
  CMF_TRY(const int64_t channels, DimTimes(weight[1], plan.groups));
  if (plan.groups < 1 || !DimsAgree(x[1], channels) ||
      (weight[0] != kUnknownDim && weight[0] % plan.groups != 0)) {
    return call.Wrong(fmt::format("{}, groups {}", shapes(), plan.groups));
  }
  if (call.Has("bias")) {
    const Shape& bias = call.Tensor("bias").shape;
    if (bias.size() != 1 || !DimsAgree(bias[0], weight[0])) {
      return call.Wrong(fmt::format("bias is {}, weight is {}", ShapeText(bias), ShapeText(weight)));
    }
  }
  for (size_t i = 0; i < spatial; ++i) {
    const int64_t extent = x[i + 2], kernel = weight[i + 2];
    if (kernel == kUnknownDim || kernel < 1 || kernel > INT32_MAX) return call.Wrong(shapes());
    const int64_t reach = (kernel - 1) * plan.dilations[i] + 1;  // both below 2^31
    int64_t before = pad[2 * i], after = pad[2 * i + 1], out = kUnknownDim;
    if (extent != kUnknownDim && extent > INT32_MAX) return call.Wrong(shapes());
    if (extent != kUnknownDim && pad_type.starts_with("same")) {
      out = (extent + plan.strides[i] - 1) / plan.strides[i];
      const int64_t total = std::max<int64_t>(0, (out - 1) * plan.strides[i] + reach - extent);
      before = pad_type == "same" ? total / 2 : total - total / 2;
      after = total - before;
    } else if (extent != kUnknownDim) {
      const int64_t room = extent + before + after - reach;
      if (room < 0)
        return call.Wrong(fmt::format("{}: the kernel is larger than the padded input", shapes()));
      out = room / plan.strides[i] + 1;
    }
    plan.kernel.push_back(kernel);
    plan.pad_before.push_back(before);
    plan.pad_after.push_back(after);
    plan.out.push_back(out);
  }
  return plan;
}

Types InferConv(const OpCall& call) {
  CMF_TRY(const ConvPlan plan, PlanConv(call));
  TensorType out{call.Tensor("x").dtype, {call.Tensor("x").shape[0], call.Tensor("weight").shape[0]}};
  out.shape.insert(out.shape.end(), plan.out.begin(), plan.out.end());
  return std::vector{std::move(out)};
}

Types InferAttention(const OpCall& call) {
  const Shape& q = call.Tensor("query").shape;
  const Shape& k = call.Tensor("key").shape;
  const Shape& v = call.Tensor("value").shape;
  bool fits = q.size() >= 3 && k.size() == q.size() && v.size() == q.size();
  for (size_t i = 0; fits && i + 2 < q.size(); ++i) fits = DimsAgree(q[i], k[i]) && DimsAgree(q[i], v[i]);
  fits = fits && DimsAgree(q.back(), k.back()) && DimsAgree(k.end()[-2], v.end()[-2]);
  if (!fits) {
    return call.Wrong(fmt::format("query {}, key {}, value {}", ShapeText(q), ShapeText(k), ShapeText(v)));
  }
  TensorType out{call.Tensor("query").dtype, q};
  out.shape.back() = v.back();
  if (call.Has("attn_mask")) {
    Shape scores = q;
    scores.back() = k.end()[-2];
    const auto masked = BroadcastShapes(scores, call.Tensor("attn_mask").shape);
    if (!masked || masked->size() != scores.size() ||
        !std::equal(masked->begin(), masked->end(), scores.begin(), DimsAgree)) {
      return call.Wrong(
          fmt::format("mask {} for scores {}", ShapeText(call.Tensor("attn_mask").shape), ShapeText(scores)));
    }
  }
  return std::vector{std::move(out)};
}

}  // namespace cmforge::mil
