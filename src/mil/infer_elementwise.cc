// Result types of elementwise operations.
#include <algorithm>

#include "mil/infer.h"

namespace cmforge::mil {

Result<int64_t> DimTimes(int64_t a, int64_t b) {
  if (a == kUnknownDim || b == kUnknownDim) return kUnknownDim;
  int64_t product = 0;
  if (!__builtin_mul_overflow(a, b, &product)) return product;
  return Fail(ErrorKind::kCorrupt, fmt::format("{} times {} elements are too many", a, b));
}

Result<int64_t> DimPlus(int64_t a, int64_t b) {
  if (a == kUnknownDim || b == kUnknownDim) return kUnknownDim;
  int64_t sum = 0;
  if (!__builtin_add_overflow(a, b, &sum)) return sum;
  return Fail(ErrorKind::kCorrupt, fmt::format("{} and {} elements are too many", a, b));
}

Result<Shape> BroadcastShapes(const Shape& a, const Shape& b) {
  Shape out(std::max(a.size(), b.size()));
  for (size_t i = 0; i < out.size(); ++i) {  // from the right
    const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t y = i < b.size() ? b[b.size() - 1 - i] : 1;
    int64_t dim = x;
    if (x == 1 || (x == kUnknownDim && y != 1)) {
      dim = y;
    } else if (y != 1 && !DimsAgree(x, y)) {
      return Fail(ErrorKind::kCorrupt,
                  fmt::format("shapes {} and {} do not broadcast", ShapeText(a), ShapeText(b)));
    }
    out[out.size() - 1 - i] = dim;
  }
  return out;
}

Types InferLikeX(const OpCall& call) { return std::vector{call.Tensor("x")}; }

Types InferBroadcast(const OpCall& call) {
  CMF_TRY(Shape shape, BroadcastShapes(call.Tensor("x").shape, call.Tensor("y").shape));
  return std::vector{TensorType{call.Tensor("x").dtype, std::move(shape)}};
}

Types InferCompare(const OpCall& call) {
  CMF_TRY(Shape shape, BroadcastShapes(call.Tensor("x").shape, call.Tensor("y").shape));
  return std::vector{TensorType{DataType::kBool, std::move(shape)}};
}

Types InferCast(const OpCall& call) {
  CMF_TRY(const std::string name, call.Text("dtype", ""));
  const auto dtype = DataTypeFromName(name);
  if (!dtype || IsSubByte(*dtype) || *dtype == DataType::kString) {
    return call.Wrong(fmt::format("cast to '{}' is not possible", name));
  }
  return std::vector{TensorType{*dtype, call.Tensor("x").shape}};
}

Types InferSelect(const OpCall& call) {
  CMF_TRY(const Shape values, BroadcastShapes(call.Tensor("a").shape, call.Tensor("b").shape));
  CMF_TRY(Shape shape, BroadcastShapes(values, call.Tensor("cond").shape));
  return std::vector{TensorType{call.Tensor("a").dtype, std::move(shape)}};
}

Types InferClip(const OpCall& call) {
  CMF_TRY(const double low, call.Number("alpha", 0));
  CMF_TRY(const double high, call.Number("beta", 0));
  if (!(low <= high)) return call.Wrong(fmt::format("clip from {} to {}", low, high));
  return InferLikeX(call);
}

Types InferGelu(const OpCall& call) {
  CMF_TRY(const std::string mode, call.Text("mode", "EXACT"));
  if (mode != "EXACT" && mode != "TANH_APPROXIMATION" && mode != "SIGMOID_APPROXIMATION") {
    return call.Wrong(fmt::format("gelu mode '{}' is not known", mode));
  }
  return InferLikeX(call);
}

}  // namespace cmforge::mil
