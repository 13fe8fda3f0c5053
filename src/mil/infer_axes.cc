// Result types of operations along axes: reductions, norms, sorting.
#include <algorithm>

#include "mil/infer.h"

namespace cmforge::mil {
namespace {

Result<void> CheckVector(const OpCall& call, std::string_view parameter, int64_t extent) {
  if (!call.Has(parameter)) return {};
  const Shape& shape = call.Tensor(parameter).shape;
  if (shape.size() == 1 && DimsAgree(shape[0], extent)) return {};
  return call.Wrong(fmt::format("'{}' is {}, wanted is [{}]", parameter, ShapeText(shape), extent));
}

Result<DataType> IndexType(const OpCall& call, std::string_view parameter) {
  CMF_TRY(const std::string name, call.Text(parameter, "int32"));
  const auto dtype = DataTypeFromName(name);
  if (!dtype || !IsInteger(*dtype) || IsSubByte(*dtype))
    return call.Wrong(fmt::format("indices of type '{}'", name));
  return *dtype;
}

}  // namespace

Types InferSoftmax(const OpCall& call) {
  CMF_CHECK(call.Axis("axis", call.Rank("x"), -1));
  return InferLikeX(call);
}

Types InferLayerNorm(const OpCall& call) {
  const Shape& x = call.Tensor("x").shape;
  CMF_TRY(std::vector<int64_t> axes, call.Axes("axes", call.Rank("x")));
  std::sort(axes.begin(), axes.end());
  for (const std::string_view parameter : {"gamma", "beta"}) {
    if (!call.Has(parameter)) continue;
    const Shape& shape = call.Tensor(parameter).shape;
    bool fits = shape.size() == axes.size();
    for (size_t i = 0; fits && i < axes.size(); ++i)
      fits = DimsAgree(shape[i], x[static_cast<size_t>(axes[i])]);
    if (!fits) {
      return call.Wrong(fmt::format("'{}' is {}, which is not the shape of the normalized axes of {}",
                                    parameter, ShapeText(shape), ShapeText(x)));
    }
  }
  return InferLikeX(call);
}

Types InferInstanceNorm(const OpCall& call) {
  const Shape& x = call.Tensor("x").shape;
  if (x.size() < 3) return call.Wrong(fmt::format("x is {}, wanted is rank 3 or more", ShapeText(x)));
  CMF_CHECK(CheckVector(call, "gamma", x[1]));
  CMF_CHECK(CheckVector(call, "beta", x[1]));
  return InferLikeX(call);
}

Types InferBatchNorm(const OpCall& call) {
  const Shape& x = call.Tensor("x").shape;
  if (x.size() < 3) return call.Wrong(fmt::format("x is {}, wanted is rank 3 or more", ShapeText(x)));
  for (const std::string_view parameter : {"mean", "variance", "gamma", "beta"}) {
    CMF_CHECK(CheckVector(call, parameter, x[1]));
  }
  return InferLikeX(call);
}

Types InferReduce(const OpCall& call) {
  const TensorType& x = call.Tensor("x");
  CMF_TRY(const std::vector<int64_t> axes, call.Axes("axes", x.rank()));
  CMF_TRY(const bool keeps, call.Flag("keep_dims", false));
  TensorType out{x.dtype, {}};
  for (int64_t i = 0; i < x.rank(); ++i) {
    const bool is_reduced = std::find(axes.begin(), axes.end(), i) != axes.end();
    if (!is_reduced) {
      out.shape.push_back(x.shape[static_cast<size_t>(i)]);
    } else if (keeps) {
      out.shape.push_back(1);
    }
  }
  return std::vector{std::move(out)};
}

Types InferArgReduce(const OpCall& call) {
  TensorType out = call.Tensor("x");
  CMF_TRY(const int64_t axis, call.Axis("axis", out.rank(), -1));
  CMF_TRY(const bool keeps, call.Flag("keep_dims", false));
  CMF_TRY(out.dtype, IndexType(call, "output_dtype"));
  if (out.shape[static_cast<size_t>(axis)] == 0) return call.Wrong("the axis is empty");
  if (keeps) {
    out.shape[static_cast<size_t>(axis)] = 1;
  } else {
    out.shape.erase(out.shape.begin() + axis);
  }
  return std::vector{std::move(out)};
}

Types InferCumsum(const OpCall& call) {
  CMF_CHECK(call.Axis("axis", call.Rank("x"), 0));
  return InferLikeX(call);
}

Types InferTopk(const OpCall& call) {
  TensorType out = call.Tensor("x");
  CMF_TRY(const int64_t axis, call.Axis("axis", out.rank(), -1));
  CMF_TRY(const int64_t k, call.Integer("k", 1));
  CMF_TRY(const bool wants_indices, call.Flag("return_indices", true));
  int64_t& extent = out.shape[static_cast<size_t>(axis)];
  if (k < 0 || (extent != kUnknownDim && k > extent)) {
    return call.Wrong(fmt::format("the {} largest of {}", k, extent));
  }
  extent = k;
  TensorType indices = out;
  CMF_TRY(indices.dtype, IndexType(call, "output_indices_dtype"));
  std::vector<TensorType> types{std::move(out)};
  if (wants_indices) types.push_back(std::move(indices));
  return types;
}

Types InferArgsort(const OpCall& call) {
  TensorType out = call.Tensor("x");
  CMF_CHECK(call.Axis("axis", out.rank(), -1));
  out.dtype = DataType::kInt32;
  return std::vector{std::move(out)};
}

}  // namespace cmforge::mil
