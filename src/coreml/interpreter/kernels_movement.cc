// Operations that move elements without looking at them: every element is 4 bytes, whatever it means.
#include <algorithm>

#include "coreml/interpreter/kernel.h"
#include "coreml/interpreter/strided.h"
#include "mil/infer.h"
#include "mil/slice.h"

namespace cmforge::coreml {
namespace {

/// A loop that copies: tensor 0 is written, tensor 1 read.
struct Copy {
  StridedLoop<2> loop;

  Copy(const Shape& dims, std::vector<int64_t> to, std::vector<int64_t> from)
      : loop(dims, {std::move(to), std::move(from)}) {}

  void Run(ThreadPool& pool, int32_t* to, const int32_t* from) const {
    const int64_t n = loop.inner_extent();
    const auto [st, sf] = loop.inner_strides();
    loop.Run(pool, [&, st = st, sf = sf](const std::array<int64_t, 2>& at) {
      int32_t* t = to + at[0];
      const int32_t* f = from + at[1];
      if (st == 1 && sf == 1) {
        std::copy_n(f, n, t);
      } else if (st == 1 && sf == 0) {
        std::fill_n(t, n, *f);
      } else {
        for (int64_t i = 0; i < n; ++i) t[i * st] = f[i * sf];
      }
    });
  }
};

Result<Kernel> CopyAll(OpContext& context) {
  return [x = context.Input("x"), out = context.Output(),
          count = context.OutputCount()](const Frame& frame) -> Result<void> {
    std::copy_n(frame.InInts(x), count, frame.OutInts(out));
    return {};
  };
}

/// Inputs side by side along an axis: place i of input k is place first_k + i * step of the output.
struct Piece {
  Copy copy;
  ValueId in;
  int64_t offset;
};

Kernel CopyPieces(OpContext& context, std::vector<Piece> pieces) {
  return [pieces = std::move(pieces), out = context.Output()](const Frame& frame) -> Result<void> {
    for (const Piece& piece : pieces)
      piece.copy.Run(frame.pool(), frame.OutInts(out) + piece.offset, frame.InInts(piece.in));
    return {};
  };
}

Result<Kernel> Concat(OpContext& context) {
  const auto values = context.call.All("values");
  CMF_TRY(const int64_t axis, context.call.Axis("axis", context.OutputType().rank(), 0));
  CMF_TRY(const bool interleaves, context.call.Flag("interleave", false));
  const auto a = static_cast<size_t>(axis);
  const std::vector<int64_t> strides = StridesOf(context.OutputType().shape);
  std::vector<Piece> pieces;
  int64_t at = 0;
  for (size_t k = 0; k < values.size(); ++k) {
    const Shape& shape = values[k].type->tensor.shape;
    std::vector<int64_t> to = strides;
    if (interleaves) to[a] *= static_cast<int64_t>(values.size());
    pieces.push_back({Copy(shape, to, StridesOf(shape)), context.Input("values", k),
                      (interleaves ? static_cast<int64_t>(k) : at) * strides[a]});
    at += shape[a];
  }
  return CopyPieces(context, std::move(pieces));
}

Result<Kernel> Stack(OpContext& context) {
  const auto values = context.call.All("values");
  CMF_TRY(const int64_t axis, context.call.Axis("axis", context.OutputType().rank(), 0));
  std::vector<int64_t> to = StridesOf(context.OutputType().shape);
  const int64_t step = to[static_cast<size_t>(axis)];
  to.erase(to.begin() + axis);
  std::vector<Piece> pieces;
  for (size_t k = 0; k < values.size(); ++k) {
    const Shape& shape = values[k].type->tensor.shape;
    pieces.push_back(
        {Copy(shape, to, StridesOf(shape)), context.Input("values", k), static_cast<int64_t>(k) * step});
  }
  return CopyPieces(context, std::move(pieces));
}

Result<Kernel> Split(OpContext& context) {
  const Shape& shape = context.ShapeOf("x");
  CMF_TRY(const int64_t axis, context.call.Axis("axis", context.call.Rank("x"), 0));
  CMF_TRY(const std::vector<int64_t> sizes, mil::SplitSizes(context.call, shape[static_cast<size_t>(axis)]));
  const std::vector<int64_t> from = StridesOf(shape);
  struct Part {
    Copy copy;
    ValueId out;
    int64_t offset;
  };
  std::vector<Part> parts;
  int64_t at = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const Shape& part = context.OutputType(i).shape;
    parts.push_back(
        {Copy(part, StridesOf(part), from), context.Output(i), at * from[static_cast<size_t>(axis)]});
    at += sizes[i];
  }
  return [parts = std::move(parts), x = context.Input("x")](const Frame& frame) -> Result<void> {
    for (const Part& part : parts)
      part.copy.Run(frame.pool(), frame.OutInts(part.out), frame.InInts(x) + part.offset);
    return {};
  };
}

// ---- slices

/// The begin (and end) of a slice, in numbers known now or in buffers read when it runs.
class SliceStart {
 public:
  /// `extents`: elements taken along each axis of `x`.
  SliceStart(OpContext& context, const Shape& x, std::vector<int64_t> extents, std::vector<int64_t> strides)
      : dims_(x),
        extents_(std::move(extents)),
        steps_(std::move(strides)),
        strides_(StridesOf(x)),
        begin_(context.Input("begin")),
        end_(context.call.Has("end") ? context.Input("end") : kNoValue),
        masks_(x.size()) {
    const auto mask = [&](std::string_view parameter, bool mil::SliceMasks::*field) {
      const auto values = context.call.Integers(parameter);
      for (size_t i = 0; values && i < masks_.size(); ++i) masks_[i].*field = (*values)[i] != 0;
    };
    mask("begin_mask", &mil::SliceMasks::begin);
    mask("end_mask", &mil::SliceMasks::end);
    mask("squeeze_mask", &mil::SliceMasks::squeeze);
  }

  /// Offset of the slice's first element. Fails: kCorrupt when it leaves the tensor or has another size than
  /// planned.
  Result<int64_t> Find(const Frame& frame) const {
    int64_t offset = 0;
    for (size_t i = 0; i < dims_.size(); ++i) {
      int64_t begin = frame.InInts(begin_)[i];
      if (end_ != kNoValue) {
        const auto slice = mil::SliceAxis(dims_[i], begin, frame.InInts(end_)[i], steps_[i], masks_[i]);
        if (!slice || slice->extent != extents_[i]) {
          return Fail(ErrorKind::kCorrupt,
                      fmt::format("the slice {} to {} of axis {} ({} elements) does not hold {} elements",
                                  begin, frame.InInts(end_)[i], i, dims_[i], extents_[i]));
        }
        begin = slice->begin;
      } else if (begin < 0) {
        begin += dims_[i];
      }
      if (extents_[i] > 0 &&
          (begin < 0 || begin >= dims_[i] || (end_ == kNoValue && extents_[i] > dims_[i] - begin))) {
        return Fail(ErrorKind::kCorrupt,
                    fmt::format("{} elements from {} leave axis {} of {}", extents_[i], begin, i, dims_[i]));
      }
      offset += begin * strides_[i];
    }
    return offset;
  }

  [[nodiscard]] const std::vector<int64_t>& extents() const { return extents_; }
  /// Strides that walk the slice inside x.
  [[nodiscard]] std::vector<int64_t> walk() const {
    std::vector<int64_t> out = strides_;
    for (size_t i = 0; i < out.size(); ++i) out[i] *= steps_[i];
    return out;
  }

 private:
  Shape dims_;
  std::vector<int64_t> extents_, steps_, strides_;
  ValueId begin_, end_;
  std::vector<mil::SliceMasks> masks_;
};

/// The extents of a slice per axis of x, open ones taken from `shape` (the result or the update, without the
/// squeezed axes).
std::vector<int64_t> CompleteExtents(const mil::SlicePlan& plan, const mil::OpCall& call,
                                     const Shape& shape) {
  std::vector<int64_t> extents = plan.extent;
  const auto squeeze = call.Integers("squeeze_mask");
  size_t next = 0;
  for (size_t i = 0; i < extents.size(); ++i) {
    if (squeeze && (*squeeze)[i]) continue;
    extents[i] = shape[next++];
  }
  return extents;
}

Kernel TakeSlice(OpContext& context, const SliceStart& start) {
  const std::vector<int64_t>& extents = start.extents();
  return [start, copy = Copy(extents, StridesOf(extents), start.walk()), x = context.Input("x"),
          out = context.Output()](const Frame& frame) -> Result<void> {
    CMF_TRY(const int64_t offset, start.Find(frame));
    copy.Run(frame.pool(), frame.OutInts(out), frame.InInts(x) + offset);
    return {};
  };
}

Result<Kernel> SliceByIndex(OpContext& context) {
  const Shape& x = context.ShapeOf("x");
  CMF_TRY(mil::SlicePlan plan, mil::PlanSlice(context.call, x));
  return TakeSlice(context,
                   SliceStart(context, x, CompleteExtents(plan, context.call, context.OutputType().shape),
                              std::move(plan.stride)));
}

Result<Kernel> SliceBySize(OpContext& context) {
  const Shape& x = context.ShapeOf("x");
  return TakeSlice(context,
                   SliceStart(context, x, context.OutputType().shape, std::vector<int64_t>(x.size(), 1)));
}

Result<Kernel> SliceUpdate(OpContext& context) {
  const Shape& x = context.ShapeOf("x");
  CMF_TRY(mil::SlicePlan plan, mil::PlanSlice(context.call, x));
  const SliceStart start(context, x, CompleteExtents(plan, context.call, context.ShapeOf("update")),
                         std::move(plan.stride));
  const std::vector<int64_t>& extents = start.extents();
  return [start, copy = Copy(extents, start.walk(), StridesOf(extents)), is_in_place = context.IsInPlace(),
          count = context.OutputCount(), from = context.Input("x"), update = context.Input("update"),
          out = context.Output()](const Frame& frame) -> Result<void> {
    CMF_TRY(const int64_t offset, start.Find(frame));
    if (!is_in_place) std::copy_n(frame.InInts(from), count, frame.OutInts(out));
    copy.Run(frame.pool(), frame.OutInts(out) + offset, frame.InInts(update));
    return {};
  };
}

// ---- other orders

Result<Kernel> Transpose(OpContext& context) {
  CMF_TRY(const std::vector<int64_t> perm, context.call.Axes("perm", context.call.Rank("x")));
  const std::vector<int64_t> strides = StridesOf(context.ShapeOf("x"));
  std::vector<int64_t> from;
  for (const int64_t axis : perm) from.push_back(strides[static_cast<size_t>(axis)]);
  const Shape& shape = context.OutputType().shape;
  return [copy = Copy(shape, StridesOf(shape), from), x = context.Input("x"),
          out = context.Output()](const Frame& frame) -> Result<void> {
    copy.Run(frame.pool(), frame.OutInts(out), frame.InInts(x));
    return {};
  };
}

Result<Kernel> Tile(OpContext& context) {
  const Shape &x = context.ShapeOf("x"), &shape = context.OutputType().shape;
  const std::vector<int64_t> strides = StridesOf(x);
  Shape dims;
  std::vector<int64_t> from;
  for (size_t i = 0; i < x.size(); ++i) {
    dims.push_back(x[i] == 0 ? 0 : shape[i] / x[i]);
    dims.push_back(x[i]);
    from.push_back(0);
    from.push_back(strides[i]);
  }
  return [copy = Copy(dims, StridesOf(dims), from), in = context.Input("x"),
          out = context.Output()](const Frame& frame) -> Result<void> {
    copy.Run(frame.pool(), frame.OutInts(out), frame.InInts(in));
    return {};
  };
}

/// The bits of a number parameter as an element of that type.
Result<int32_t> ElementBits(const mil::OpCall& call, std::string_view parameter, double absent,
                            mil::DataType dtype) {
  CMF_TRY(const double number, call.Number(parameter, absent));
  if (IsFloatBuffer(dtype)) return std::bit_cast<int32_t>(static_cast<float>(number));
  return static_cast<int32_t>(std::clamp(number, -2147483648.0, 2147483647.0));
}

Result<Kernel> Pad(OpContext& context) {
  const Shape &x = context.ShapeOf("x"), &shape = context.OutputType().shape;
  const auto pad = context.call.Integers("pad");
  if (!pad) return context.call.Wrong("pad is not known");
  CMF_TRY(const std::string mode, context.call.Text("mode", "constant"));
  CMF_TRY(const int32_t value, ElementBits(context.call, "constant_val", 0, context.OutputType().dtype));
  const size_t first = x.size() - pad->size() / 2;
  const std::vector<int64_t> strides = StridesOf(x);
  // Per axis and place of the result: offset of the element it takes, or -1 for the constant.
  std::vector<std::vector<int64_t>> sources(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const int64_t before = i < first ? 0 : (*pad)[2 * (i - first)];
    for (int64_t at = 0; at < shape[i]; ++at) {
      int64_t from = at - before;
      if (mode == "reflect" && from < 0) from = -from;
      if (mode == "reflect" && from >= x[i]) from = 2 * (x[i] - 1) - from;
      if (mode == "replicate") from = std::clamp<int64_t>(from, 0, x[i] - 1);
      sources[i].push_back(from < 0 || from >= x[i] ? -1 : from * strides[i]);
    }
  }
  return [sources = std::move(sources), shape, value, in = context.Input("x"), out = context.Output(),
          count = context.OutputCount()](const Frame& frame) -> Result<void> {
    std::array<size_t, mil::kMaxRank> at{};
    for (int64_t k = 0; k < count; ++k) {
      int64_t offset = 0;
      bool is_inside = true;
      for (size_t i = 0; i < shape.size(); ++i) {
        is_inside = is_inside && sources[i][at[i]] >= 0;
        offset += sources[i][at[i]];
      }
      frame.OutInts(out)[k] = is_inside ? frame.InInts(in)[offset] : value;
      for (size_t i = shape.size(); i-- > 0;) {
        if (++at[i] < static_cast<size_t>(shape[i])) break;
        at[i] = 0;
      }
    }
    return {};
  };
}

/// Keeps element (i, j) of the last two axes when it lies at most `lower` below and `upper` above the
/// diagonal.
Result<Kernel> BandPart(OpContext& context) {
  const Shape& shape = context.OutputType().shape;
  CMF_TRY(const int64_t lower, context.call.Integer("lower", -1));
  CMF_TRY(const int64_t upper, context.call.Integer("upper", -1));
  return [lower, upper, rows = shape.end()[-2], cols = shape.back(), count = context.OutputCount(),
          x = context.Input("x"), out = context.Output()](const Frame& frame) -> Result<void> {
    for (int64_t k = 0; k < count; ++k) {
      const int64_t i = k / cols % rows, j = k % cols;
      const bool is_kept = (lower < 0 || i - j <= lower) && (upper < 0 || j - i <= upper);
      frame.OutInts(out)[k] = is_kept ? frame.InInts(x)[k] : 0;
    }
    return {};
  };
}

Result<Kernel> FillWith(OpContext& context) {
  CMF_TRY(const int32_t value, ElementBits(context.call, "value", 0, context.OutputType().dtype));
  return [value, count = context.OutputCount(), out = context.Output()](const Frame& frame) -> Result<void> {
    std::fill_n(frame.OutInts(out), count, value);
    return {};
  };
}

Result<Kernel> Range(OpContext& context) {
  const bool is_float = IsFloatBuffer(context.OutputType().dtype);
  return [is_float, count = context.OutputCount(), start = context.Input("start"),
          step = context.Input("step"), out = context.Output()](const Frame& frame) -> Result<void> {
    for (int64_t i = 0; i < count; ++i) {
      if (is_float) {
        frame.Out(out)[i] = *frame.In(start) + static_cast<float>(i) * *frame.In(step);
      } else {
        frame.OutInts(out)[i] = static_cast<int32_t>(*frame.InInts(start) + i * *frame.InInts(step));
      }
    }
    return {};
  };
}

Result<Kernel> ShapeOf(OpContext& context) {
  std::vector<int32_t> dims;
  for (const int64_t dim : context.ShapeOf("x")) dims.push_back(static_cast<int32_t>(dim));
  return [dims = std::move(dims), out = context.Output()](const Frame& frame) -> Result<void> {
    std::copy(dims.begin(), dims.end(), frame.OutInts(out));
    return {};
  };
}

struct Row {
  std::string_view op;
  KernelMaker make;
};

constexpr Row kRows[] = {
    {"identity", CopyAll},
    {"reshape", CopyAll},
    {"expand_dims", CopyAll},
    {"squeeze", CopyAll},
    {"concat", Concat},
    {"stack", Stack},
    {"split", Split},
    {"slice_by_index", SliceByIndex},
    {"slice_by_size", SliceBySize},
    {"slice_update", SliceUpdate},
    {"transpose", Transpose},
    {"tile", Tile},
    {"pad", Pad},
    {"band_part", BandPart},
    {"fill", FillWith},
    {"range_1d", Range},
    {"shape", ShapeOf},
};

}  // namespace

KernelMaker FindMovementKernel(std::string_view op) {
  for (const Row& row : kRows) {
    if (row.op == op) return row.make;
  }
  return nullptr;
}

}  // namespace cmforge::coreml
