// Operations that pick elements by index. An index outside its axis is an error with its number, never a
// read.
#include <algorithm>

#include "coreml/interpreter/kernel.h"
#include "coreml/interpreter/strided.h"

namespace cmforge::coreml {
namespace {

tl::unexpected<Error> OutOfRange(int64_t index, int64_t extent) {
  return Fail(ErrorKind::kCorrupt, fmt::format("index {} of an axis of {}", index, extent));
}

/// x [batch, outer, extent, inner] by indices [batch, count] -> [batch, outer, count, inner]. Before iOS 17
/// negative indices count from the end.
Result<Kernel> Gather(OpContext& context) {
  const Shape &x = context.ShapeOf("x"), &indices = context.ShapeOf("indices");
  CMF_TRY(const int64_t axis, context.call.Axis("axis", context.call.Rank("x"), 0));
  CMF_TRY(const int64_t batch_dims, context.call.Integer("batch_dims", 0));
  struct Sizes {
    int64_t batch = 1, outer = 1, extent = 1, inner = 1, count = 1;
  } s;
  for (int64_t i = 0; i < static_cast<int64_t>(x.size()); ++i) {
    const int64_t dim = x[static_cast<size_t>(i)];
    if (i == axis) {
      s.extent = dim;
    } else {
      (i < batch_dims ? s.batch : i < axis ? s.outer : s.inner) *= dim;
    }
  }
  for (size_t i = static_cast<size_t>(batch_dims); i < indices.size(); ++i) s.count *= indices[i];
  WeightPtr table = context.Constant("x");  // rows of a table are decoded as they are looked up
  if (table && !IsFloatBuffer(table->type().dtype)) table = nullptr;
  const ValueId from = table ? kNoValue : context.Input("x");
  const bool counts_back = context.opset() < mil::Opset::kIos17;
  return [s, table, from, counts_back, index = context.Input("indices"),
          out = context.Output()](const Frame& frame) -> Result<void> {
    for (int64_t b = 0; b < s.batch; ++b) {
      const int32_t* picks = frame.InInts(index) + b * s.count;
      for (int64_t o = 0; o < s.outer; ++o) {
        for (int64_t i = 0; i < s.count; ++i) {
          const int64_t pick = picks[i] < 0 && counts_back ? picks[i] + s.extent : picks[i];
          if (pick < 0 || pick >= s.extent) return OutOfRange(pick, s.extent);
          const int64_t at = ((b * s.outer + o) * s.extent + pick) * s.inner;
          float* to = frame.Out(out) + ((b * s.outer + o) * s.count + i) * s.inner;
          if (table) {
            table->Decode(at, s.inner, to);
          } else {
            std::copy_n(frame.InInts(from) + at, s.inner, reinterpret_cast<int32_t*>(to));
          }
        }
      }
    }
    return {};
  };
}

Result<Kernel> GatherAlongAxis(OpContext& context) {
  const Shape &x = context.ShapeOf("x"), &shape = context.OutputType().shape;
  CMF_TRY(const int64_t axis, context.call.Axis("axis", context.call.Rank("x"), 0));
  std::vector<int64_t> strides = StridesOf(x);
  const int64_t step = strides[static_cast<size_t>(axis)], extent = x[static_cast<size_t>(axis)];
  strides[static_cast<size_t>(axis)] = 0;
  StridedLoop<2> loop(shape, {StridesOf(shape), strides});
  return [loop = std::move(loop), step, extent, from = context.Input("x"), index = context.Input("indices"),
          out = context.Output()](const Frame& frame) -> Result<void> {
    int64_t bad = 0;
    bool is_bad = false;
    const auto [so, sx] = loop.inner_strides();
    loop.ForRows(0, loop.outer_count(), [&, so = so, sx = sx](const std::array<int64_t, 2>& at) {
      for (int64_t i = 0; i < loop.inner_extent(); ++i) {
        const int64_t place = at[0] + i * so;
        int64_t pick = frame.InInts(index)[place];
        if (pick < 0) pick += extent;
        if (pick < 0 || pick >= extent) {
          is_bad = true;
          bad = pick;
          continue;
        }
        frame.OutInts(out)[place] = frame.InInts(from)[at[1] + i * sx + pick * step];
      }
    });
    if (is_bad) return OutOfRange(bad, extent);
    return {};
  };
}

/// The last axis of indices holds one index for each of x's axes after the batch ones.
Result<Kernel> GatherNd(OpContext& context) {
  const Shape &x = context.ShapeOf("x"), &indices = context.ShapeOf("indices");
  CMF_TRY(const int64_t batch_dims, context.call.Integer("batch_dims", 0));
  const auto b = static_cast<size_t>(batch_dims), depth = static_cast<size_t>(indices.back());
  const std::vector<int64_t> strides = StridesOf(x);
  int64_t batch = 1, picks = 1, inner = 1;
  for (size_t i = 0; i < b; ++i) batch *= x[i];
  for (size_t i = b; i + 1 < indices.size(); ++i) picks *= indices[i];
  for (size_t i = b + depth; i < x.size(); ++i) inner *= x[i];
  const int64_t batch_step = b > 0 ? strides[b - 1] : 0;
  const std::vector<int64_t> dims(x.begin() + batch_dims, x.begin() + batch_dims + indices.back());
  const std::vector<int64_t> steps(strides.begin() + batch_dims,
                                   strides.begin() + batch_dims + indices.back());
  return [batch, picks, inner, batch_step, dims, steps, from = context.Input("x"),
          index = context.Input("indices"), out = context.Output()](const Frame& frame) -> Result<void> {
    for (int64_t k = 0; k < batch * picks; ++k) {
      int64_t at = k / picks * batch_step;
      for (size_t i = 0; i < dims.size(); ++i) {
        int64_t pick = frame.InInts(index)[k * static_cast<int64_t>(dims.size()) + static_cast<int64_t>(i)];
        if (pick < 0) pick += dims[i];
        if (pick < 0 || pick >= dims[i]) return OutOfRange(pick, dims[i]);
        at += pick * steps[i];
      }
      std::copy_n(frame.InInts(from) + at, inner, frame.OutInts(out) + k * inner);
    }
    return {};
  };
}

/// Indices outside [0, size) give a vector of off values.
Result<Kernel> OneHot(OpContext& context) {
  const Shape& shape = context.OutputType().shape;
  CMF_TRY(const int64_t axis, context.call.Axis("axis", context.OutputType().rank(), -1));
  CMF_TRY(const double on, context.call.Number("on_value", 1));
  CMF_TRY(const double off, context.call.Number("off_value", 0));
  const bool is_float = IsFloatBuffer(context.OutputType().dtype);
  const auto bits = [&](double v) {
    return is_float ? std::bit_cast<int32_t>(static_cast<float>(v)) : static_cast<int32_t>(v);
  };
  int64_t inner = 1;
  for (size_t i = static_cast<size_t>(axis) + 1; i < shape.size(); ++i) inner *= shape[i];
  return [size = shape[static_cast<size_t>(axis)], inner, on = bits(on), off = bits(off),
          count = context.OutputCount(), index = context.Input("indices"),
          out = context.Output()](const Frame& frame) -> Result<void> {
    for (int64_t k = 0; k < count; ++k) {
      const int64_t place = k / inner % size, from = k / inner / size * inner + k % inner;
      frame.OutInts(out)[k] = frame.InInts(index)[from] == place ? on : off;
    }
    return {};
  };
}

}  // namespace

KernelMaker FindIndexKernel(std::string_view op) {
  if (op == "gather") return Gather;
  if (op == "gather_along_axis") return GatherAlongAxis;
  if (op == "gather_nd") return GatherNd;
  if (op == "one_hot") return OneHot;
  return nullptr;
}

}  // namespace cmforge::coreml
