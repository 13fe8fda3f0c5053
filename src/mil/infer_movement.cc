// Result types of operations that move or make elements.
#include <algorithm>
#include <cmath>

#include "mil/infer.h"
#include "mil/slice.h"

namespace cmforge::mil {
namespace {

/// The known contents of a rank-1 integer parameter, checked to have `count` elements; nothing when they are
/// only known when the program runs.
Result<std::optional<std::vector<int64_t>>> List(const OpCall& call, std::string_view parameter,
                                                 size_t count) {
  const Shape& shape = call.Tensor(parameter).shape;
  auto values = call.Integers(parameter);
  const bool fits = values ? values->size() == count
                           : shape.size() == 1 && DimsAgree(shape[0], static_cast<int64_t>(count));
  if (!fits)
    return call.Wrong(fmt::format("'{}' is {}, wanted are {} numbers", parameter, ShapeText(shape), count));
  if (values) {
    for (const int64_t v : *values) {
      if (v < INT32_MIN || v > INT32_MAX) return call.Wrong(fmt::format("{} in '{}'", v, parameter));
    }
  }
  return values;
}

Result<std::vector<int64_t>> Mask(const OpCall& call, std::string_view parameter, size_t rank) {
  if (!call.Has(parameter)) return std::vector<int64_t>(rank, 0);
  auto values = call.Integers(parameter);
  if (values && values->size() == rank) return std::move(*values);
  return call.Wrong(fmt::format("'{}' needs {} flags known at compile time", parameter, rank));
}

/// The dimensions a rank-1 integer parameter lists; unknown ones where its contents are not known.
Result<Shape> ShapeFrom(const OpCall& call, std::string_view parameter) {
  const TensorType& type = call.Tensor(parameter);
  if (type.rank() != 1 || type.shape[0] == kUnknownDim) {
    return call.Wrong(fmt::format("'{}' is {}, wanted is a list of known length", parameter, TypeText(type)));
  }
  if (type.shape[0] > kMaxRank) return call.Wrong(fmt::format("a result of rank {}", type.shape[0]));
  if (auto values = call.Integers(parameter)) return std::move(*values);
  return Shape(static_cast<size_t>(type.shape[0]), kUnknownDim);
}

Result<void> CheckRank(const OpCall& call, size_t rank) {
  if (rank <= kMaxRank) return {};
  return call.Wrong(fmt::format("a result of rank {}, at most {} is possible", rank, kMaxRank));
}

}  // namespace

Types InferConcat(const OpCall& call) {
  const auto values = call.All("values");
  TensorType out = values[0].type->tensor;
  CMF_TRY(const int64_t axis, call.Axis("axis", out.rank(), 0));
  CMF_TRY(const bool interleaves, call.Flag("interleave", false));
  const auto a = static_cast<size_t>(axis);
  for (size_t v = 1; v < values.size(); ++v) {
    const Shape& shape = values[v].type->tensor.shape;
    bool fits = shape.size() == out.shape.size();
    for (size_t i = 0; fits && i < shape.size(); ++i) {
      if (i == a) continue;
      fits = DimsAgree(shape[i], out.shape[i]);
      if (out.shape[i] == kUnknownDim) out.shape[i] = shape[i];
    }
    if (fits && interleaves) fits = DimsAgree(shape[a], values[0].type->tensor.shape[a]);
    if (!fits) {
      return call.Wrong(fmt::format("{} and {} along axis {}", ShapeText(values[0].type->tensor.shape),
                                    ShapeText(shape), axis));
    }
    CMF_TRY(out.shape[a], DimPlus(out.shape[a], shape[a]));
  }
  return std::vector{std::move(out)};
}

Types InferStack(const OpCall& call) {
  const auto values = call.All("values");
  TensorType out = values[0].type->tensor;
  CMF_TRY(const int64_t axis, call.Axis("axis", out.rank() + 1, 0));
  for (const Operand& value : values) {
    const Shape& shape = value.type->tensor.shape;
    if (!std::equal(shape.begin(), shape.end(), out.shape.begin(), out.shape.end(), DimsAgree)) {
      return call.Wrong(fmt::format("{} on {}", ShapeText(shape), ShapeText(out.shape)));
    }
  }
  out.shape.insert(out.shape.begin() + axis, static_cast<int64_t>(values.size()));
  CMF_CHECK(CheckRank(call, out.shape.size()));
  return std::vector{std::move(out)};
}

Result<std::vector<int64_t>> SplitSizes(const OpCall& call, int64_t extent) {
  if (call.Has("split_sizes")) {
    auto sizes = call.Integers("split_sizes");
    if (!sizes) return call.Wrong("split_sizes are not known at compile time");
    int64_t sum = 0;
    for (const int64_t size : *sizes) {
      if (size < 0) return call.Wrong(fmt::format("a part of {}", size));
      CMF_TRY(sum, DimPlus(sum, size));
    }
    if (DimsAgree(sum, extent)) return std::move(*sizes);
    return call.Wrong(fmt::format("parts of {} together from an axis of {}", sum, extent));
  }
  CMF_TRY(const int64_t parts, call.Integer("num_splits", 0));
  if (parts < 1 || parts > 65536 || (extent != kUnknownDim && extent % parts != 0)) {
    return call.Wrong(fmt::format("an axis of {} in {} equal parts", extent, parts));
  }
  return std::vector<int64_t>(static_cast<size_t>(parts),
                              extent == kUnknownDim ? kUnknownDim : extent / parts);
}

Types InferSplit(const OpCall& call) {
  const TensorType& x = call.Tensor("x");
  CMF_TRY(const int64_t axis, call.Axis("axis", x.rank(), 0));
  CMF_TRY(const std::vector<int64_t> sizes, SplitSizes(call, x.shape[static_cast<size_t>(axis)]));
  std::vector<TensorType> types(sizes.size(), x);
  for (size_t i = 0; i < sizes.size(); ++i) types[i].shape[static_cast<size_t>(axis)] = sizes[i];
  return types;
}

Result<SlicePlan> PlanSlice(const OpCall& call, const Shape& x) {
  const size_t rank = x.size();
  CMF_TRY(const auto begin, List(call, "begin", rank));
  CMF_TRY(const auto end, List(call, "end", rank));
  SlicePlan plan;
  plan.stride.assign(rank, 1);
  if (call.Has("stride")) {
    CMF_TRY(const auto stride, List(call, "stride", rank));
    if (!stride) return call.Wrong("stride is not known at compile time");
    plan.stride = *stride;
  }
  CMF_TRY(const auto begin_mask, Mask(call, "begin_mask", rank));
  CMF_TRY(const auto end_mask, Mask(call, "end_mask", rank));
  CMF_TRY(const auto squeeze_mask, Mask(call, "squeeze_mask", rank));
  for (size_t i = 0; i < rank; ++i) {
    const SliceMasks masks{begin_mask[i] != 0, end_mask[i] != 0, squeeze_mask[i] != 0};
    if (plan.stride[i] == 0) return call.Wrong("stride 0");
    const bool begin_known = begin || (masks.begin && !masks.squeeze);
    const bool end_known = end || masks.end || masks.squeeze;
    SliceOfAxis part{kUnknownBegin, masks.squeeze ? 1 : kUnknownDim};
    if (begin_known && end_known && x[i] != kUnknownDim) {
      const auto known = SliceAxis(x[i], begin ? (*begin)[i] : 0, end ? (*end)[i] : 0, plan.stride[i], masks);
      if (!known) return call.Wrong(fmt::format("element {} of axis {} of {}", (*begin)[i], i, ShapeText(x)));
      part = *known;
    }
    plan.begin.push_back(part.begin);
    plan.extent.push_back(part.extent);
    if (!masks.squeeze) plan.shape.push_back(part.extent);
  }
  return plan;
}

Types InferSliceByIndex(const OpCall& call) {
  CMF_TRY(SlicePlan plan, PlanSlice(call, call.Tensor("x").shape));
  return std::vector{TensorType{call.Tensor("x").dtype, std::move(plan.shape)}};
}

Types InferSliceUpdate(const OpCall& call) {
  CMF_TRY(const SlicePlan plan, PlanSlice(call, call.Tensor("x").shape));
  const Shape& update = call.Tensor("update").shape;
  if (!std::equal(update.begin(), update.end(), plan.shape.begin(), plan.shape.end(), DimsAgree)) {
    return call.Wrong(fmt::format("update is {}, the slice of {} is {}", ShapeText(update),
                                  ShapeText(call.Tensor("x").shape), ShapeText(plan.shape)));
  }
  return InferLikeX(call);
}

Types InferSliceBySize(const OpCall& call) {
  TensorType out = call.Tensor("x");
  CMF_TRY(const auto begin, List(call, "begin", out.shape.size()));
  CMF_TRY(const auto size, List(call, "size", out.shape.size()));
  for (size_t i = 0; i < out.shape.size(); ++i) {
    int64_t& dim = out.shape[i];
    const int64_t x = dim;
    const int64_t wanted = size ? (*size)[i] : 0;
    int64_t at = begin ? (*begin)[i] : kUnknownBegin;
    if (begin && at < 0 && x != kUnknownDim) at += x;
    dim = kUnknownDim;
    if (size && wanted != -1) dim = wanted;
    if (size && wanted == -1 && begin && x != kUnknownDim) dim = x - at;
    const bool outside =
        begin && x != kUnknownDim && (at < 0 || at > x || (dim != kUnknownDim && dim > x - at));
    if ((size && wanted < -1) || outside) {
      return call.Wrong(fmt::format("{} elements from {} of axis {} of {}", wanted, at, i,
                                    ShapeText(call.Tensor("x").shape)));
    }
  }
  return std::vector{std::move(out)};
}

Types InferGather(const OpCall& call) {
  const TensorType& x = call.Tensor("x");
  const Shape& indices = call.Tensor("indices").shape;
  CMF_TRY(const int64_t axis, call.Axis("axis", x.rank(), 0));
  CMF_TRY(const int64_t batch, call.Integer("batch_dims", 0));
  bool fits = batch >= 0 && batch <= axis && batch <= static_cast<int64_t>(indices.size());
  for (size_t i = 0; fits && i < static_cast<size_t>(batch); ++i) fits = DimsAgree(x.shape[i], indices[i]);
  if (!fits) {
    return call.Wrong(fmt::format("indices {} into axis {} of {}, batch_dims {}", ShapeText(indices), axis,
                                  ShapeText(x.shape), batch));
  }
  TensorType out{x.dtype, Shape(x.shape.begin(), x.shape.begin() + axis)};
  out.shape.insert(out.shape.end(), indices.begin() + batch, indices.end());
  out.shape.insert(out.shape.end(), x.shape.begin() + axis + 1, x.shape.end());
  CMF_CHECK(CheckRank(call, out.shape.size()));
  return std::vector{std::move(out)};
}

Types InferGatherAlongAxis(const OpCall& call) {
  const TensorType& x = call.Tensor("x");
  const Shape& indices = call.Tensor("indices").shape;
  CMF_TRY(const int64_t axis, call.Axis("axis", x.rank(), 0));
  bool fits = indices.size() == x.shape.size();
  for (size_t i = 0; fits && i < indices.size(); ++i) {
    fits = static_cast<int64_t>(i) == axis || DimsAgree(indices[i], x.shape[i]);
  }
  if (!fits) {
    return call.Wrong(
        fmt::format("indices {} along axis {} of {}", ShapeText(indices), axis, ShapeText(x.shape)));
  }
  return std::vector{TensorType{x.dtype, indices}};
}

Types InferGatherNd(const OpCall& call) {
  const TensorType& x = call.Tensor("x");
  const Shape& indices = call.Tensor("indices").shape;
  CMF_TRY(const int64_t batch, call.Integer("batch_dims", 0));
  const int64_t depth = indices.empty() ? kUnknownDim : indices.back();
  bool fits =
      depth >= 1 && batch >= 0 && batch < static_cast<int64_t>(indices.size()) && depth <= x.rank() - batch;
  for (size_t i = 0; fits && i < static_cast<size_t>(batch); ++i) fits = DimsAgree(x.shape[i], indices[i]);
  if (!fits) {
    return call.Wrong(
        fmt::format("indices {} into {}, batch_dims {}", ShapeText(indices), ShapeText(x.shape), batch));
  }
  TensorType out{x.dtype, Shape(indices.begin(), indices.end() - 1)};
  out.shape.insert(out.shape.end(), x.shape.begin() + batch + depth, x.shape.end());
  CMF_CHECK(CheckRank(call, out.shape.size()));
  return std::vector{std::move(out)};
}

Types InferExpandDims(const OpCall& call) {
  const TensorType& x = call.Tensor("x");
  const auto listed = call.Integers("axes");
  if (!listed) return call.Wrong("axes are not known at compile time");
  CMF_CHECK(CheckRank(call, x.shape.size() + listed->size()));
  const int64_t rank = x.rank() + static_cast<int64_t>(listed->size());
  CMF_TRY(const std::vector<int64_t> axes, call.Axes("axes", rank));
  TensorType out{x.dtype, {}};
  auto next = x.shape.begin();
  for (int64_t i = 0; i < rank; ++i) {
    const bool is_new = std::find(axes.begin(), axes.end(), i) != axes.end();
    out.shape.push_back(is_new ? 1 : *next++);
  }
  return std::vector{std::move(out)};
}

Types InferSqueeze(const OpCall& call) {
  const TensorType& x = call.Tensor("x");
  CMF_TRY(const std::vector<int64_t> axes, call.Axes("axes", x.rank()));
  TensorType out{x.dtype, {}};
  for (int64_t i = 0; i < x.rank(); ++i) {
    const int64_t dim = x.shape[static_cast<size_t>(i)];
    const bool is_listed = std::find(axes.begin(), axes.end(), i) != axes.end();
    if (!is_listed || (!call.Has("axes") && dim != 1)) {
      if (is_listed && dim == kUnknownDim)
        return call.Wrong("axes are needed where dimensions are not known");
      out.shape.push_back(dim);
    } else if (!DimsAgree(dim, 1)) {
      return call.Wrong(fmt::format("axis {} of {} is not 1", i, ShapeText(x.shape)));
    }
  }
  return std::vector{std::move(out)};
}

Types InferReshape(const OpCall& call) {
  const TensorType& x = call.Tensor("x");
  CMF_TRY(Shape shape, ShapeFrom(call, "shape"));
  TensorType out{x.dtype, shape};
  if (!call.Integers("shape")) return std::vector{std::move(out)};
  int64_t known = 1, open = -1;
  for (size_t i = 0; i < shape.size(); ++i) {
    int64_t dim = shape[i];
    if (dim == 0) {  // copies the dimension at the same place from the right
      const size_t from_right = shape.size() - i;
      dim = from_right <= x.shape.size() ? x.shape[x.shape.size() - from_right] : 1;
    } else if (dim == -1 && open < 0) {
      open = static_cast<int64_t>(i);
      continue;
    } else if (dim < 0 || dim > INT32_MAX) {
      return call.Wrong(fmt::format("reshape to {}", ShapeText(shape)));
    }
    out.shape[i] = dim;
    CMF_TRY(known, DimTimes(known, dim));
  }
  const auto total = x.is_static() ? ElementCount(x.shape) : std::nullopt;
  if (!total) {
    // Without the input's size only the listed dimensions are known.
    if (open >= 0) out.shape[static_cast<size_t>(open)] = kUnknownDim;
    return std::vector{std::move(out)};
  }
  if (open >= 0 && known > 0 && *total % known == 0) {
    out.shape[static_cast<size_t>(open)] = *total / known;
    return std::vector{std::move(out)};
  }
  if (open >= 0 || known != *total) {
    return call.Wrong(fmt::format("{} elements of {} as {}", *total, ShapeText(x.shape), ShapeText(shape)));
  }
  return std::vector{std::move(out)};
}

Types InferTranspose(const OpCall& call) {
  const TensorType& x = call.Tensor("x");
  CMF_TRY(const std::vector<int64_t> perm, call.Axes("perm", x.rank()));
  if (perm.size() != x.shape.size())
    return call.Wrong(fmt::format("{} axes for {}", perm.size(), ShapeText(x.shape)));
  TensorType out{x.dtype, {}};
  for (const int64_t axis : perm) out.shape.push_back(x.shape[static_cast<size_t>(axis)]);
  return std::vector{std::move(out)};
}

Types InferTile(const OpCall& call) {
  TensorType out = call.Tensor("x");
  CMF_TRY(const auto reps, List(call, "reps", out.shape.size()));
  for (size_t i = 0; i < out.shape.size(); ++i) {
    if (reps && (*reps)[i] < 0) return call.Wrong(fmt::format("{} repetitions", (*reps)[i]));
    CMF_TRY(out.shape[i], DimTimes(out.shape[i], reps ? (*reps)[i] : kUnknownDim));
  }
  return std::vector{std::move(out)};
}

Types InferPad(const OpCall& call) {
  TensorType out = call.Tensor("x");
  const auto pad = call.Integers("pad");
  CMF_TRY(const std::string mode, call.Text("mode", "constant"));
  if (mode != "constant" && mode != "reflect" && mode != "replicate") {
    return call.Wrong(fmt::format("pad mode '{}' is not known", mode));
  }
  if (!pad || pad->size() % 2 != 0 || pad->size() > 2 * out.shape.size()) {
    return call.Wrong("pad needs two numbers for each of the last axes, known at compile time");
  }
  const size_t first = out.shape.size() - pad->size() / 2;
  for (size_t i = 0; i < pad->size(); ++i) {
    int64_t& dim = out.shape[first + i / 2];
    const int64_t x = call.Tensor("x").shape[first + i / 2];
    const int64_t amount = (*pad)[i];
    const bool too_far = mode == "reflect" && x != kUnknownDim && amount >= x;
    const bool nothing = mode == "replicate" && x == 0 && amount > 0;
    if (amount < 0 || too_far || nothing)
      return call.Wrong(fmt::format("{} elements of {} padding", amount, mode));
    CMF_TRY(dim, DimPlus(dim, amount));
  }
  return std::vector{std::move(out)};
}

Types InferBandPart(const OpCall& call) {
  if (call.Rank("x") < 2) return call.Wrong("x is no matrix");
  CMF_CHECK(call.Integer("lower", -1));
  CMF_CHECK(call.Integer("upper", -1));
  return InferLikeX(call);
}

Types InferFill(const OpCall& call) {
  CMF_TRY(Shape shape, ShapeFrom(call, "shape"));
  if (call.Integers("shape")) {
    for (const int64_t dim : shape) {
      if (dim < 0) return call.Wrong(fmt::format("fill of {}", ShapeText(shape)));
    }
  }
  if (call.Has("value")) CMF_CHECK(call.Number("value", 0));
  const DataType dtype = call.Has("value") ? call.Tensor("value").dtype : DataType::kFloat32;
  return std::vector{TensorType{dtype, std::move(shape)}};
}

Types InferRange(const OpCall& call) {
  TensorType out{call.Tensor("start").dtype, {kUnknownDim}};
  for (const std::string_view parameter : {"start", "end", "step"}) {
    const auto count = ElementCount(call.Tensor(parameter).shape);
    if (count != 1) return call.Wrong(fmt::format("'{}' is no scalar", parameter));
  }
  const auto start = call.Number("start", 0), end = call.Number("end", 0), step = call.Number("step", 1);
  if (!start || !end || !step) return std::vector{std::move(out)};
  const double count = std::ceil((*end - *start) / *step);
  if (!(*step != 0) || !(count < 2147483648.0)) {
    return call.Wrong(fmt::format("from {} to {} in steps of {}", *start, *end, *step));
  }
  out.shape[0] = count > 0 ? static_cast<int64_t>(count) : 0;
  return std::vector{std::move(out)};
}

Types InferShapeOf(const OpCall& call) { return std::vector{TensorType{DataType::kInt32, {call.Rank("x")}}}; }

Types InferOneHot(const OpCall& call) {
  TensorType out{DataType::kInt32, call.Tensor("indices").shape};
  CMF_TRY(const int64_t axis, call.Axis("axis", out.rank() + 1, -1));
  if (call.Has("on_value")) out.dtype = call.Tensor("on_value").dtype;
  if (call.Has("off_value")) out.dtype = call.Tensor("off_value").dtype;
  CMF_TRY(const int64_t size, call.Integer("one_hot_vector_size", 1));
  if (size < 1) return call.Wrong(fmt::format("vectors of {}", size));
  if (call.Has("on_value")) CMF_CHECK(call.Number("on_value", 1));
  if (call.Has("off_value")) CMF_CHECK(call.Number("off_value", 0));
  out.shape.insert(out.shape.begin() + axis, size);
  CMF_CHECK(CheckRank(call, out.shape.size()));
  return std::vector{std::move(out)};
}

}  // namespace cmforge::mil
