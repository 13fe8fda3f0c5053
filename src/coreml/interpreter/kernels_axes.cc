// Operations along axes: softmax, norms, reductions, running sums, sorting.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "coreml/interpreter/kernel.h"
#include "coreml/interpreter/norm_row.h"
#include "coreml/interpreter/softmax.h"
#include "coreml/interpreter/strided.h"

namespace cmforge::coreml {
namespace {

/// A tensor seen as [outer, extent, inner] around one axis.
struct AxisView {
  int64_t outer = 1, extent = 1, inner = 1;

  AxisView(const Shape& shape, int64_t axis) {
    for (int64_t i = 0; i < axis; ++i) outer *= shape[static_cast<size_t>(i)];
    extent = shape[static_cast<size_t>(axis)];
    for (size_t i = static_cast<size_t>(axis) + 1; i < shape.size(); ++i) inner *= shape[i];
  }
  [[nodiscard]] int64_t lanes() const { return outer * inner; }
  /// Where lane `l` starts; its elements lie `inner` apart.
  [[nodiscard]] int64_t Start(int64_t l) const { return l / inner * extent * inner + l % inner; }
};

/// The axes kept and the axes reduced of a tensor, as two loops over it in row-major order.
struct Reduction {
  StridedLoop<2> kept;     // out, x
  StridedLoop<1> reduced;  // x
  int64_t count = 1;       // elements reduced into one

  static Reduction Over(const Shape& x, const std::vector<int64_t>& axes) {
    const std::vector<int64_t> strides = StridesOf(x);
    Shape kept_dims, reduced_dims;
    std::vector<int64_t> kept_strides, reduced_strides;
    int64_t count = 1;
    for (size_t i = 0; i < x.size(); ++i) {
      if (std::find(axes.begin(), axes.end(), static_cast<int64_t>(i)) == axes.end()) {
        kept_dims.push_back(x[i]);
        kept_strides.push_back(strides[i]);
      } else {
        reduced_dims.push_back(x[i]);
        reduced_strides.push_back(strides[i]);
        count *= x[i];
      }
    }
    return {StridedLoop<2>(kept_dims, {StridesOf(kept_dims), kept_strides}),
            StridedLoop<1>(reduced_dims, {reduced_strides}), count};
  }

  /// Whether the elements of a place lie one behind another.
  [[nodiscard]] bool is_row() const { return reduced.outer_count() == 1 && reduced.inner_strides()[0] == 1; }

  /// fn(out, x) for every kept place.
  template <class Fn>
  void ForPlaces(ThreadPool& pool, Fn&& fn) const {
    const int64_t n = kept.inner_extent();
    const std::array<int64_t, 2> s = kept.inner_strides();
    const auto run = [&](const std::array<int64_t, 2>& at, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) fn(at[0] + i * s[0], at[1] + i * s[1]);
    };
    if (kept.outer_count() > 1)
      return kept.Run(pool, [&](const std::array<int64_t, 2>& at) { run(at, 0, n); });
    // One run of places, as in most programs: it is cut itself.
    constexpr int64_t kPieceElements = 1 << 13;
    const int64_t grain = std::max<int64_t>(1, kPieceElements / std::max<int64_t>(1, count));
    kept.ForRows(0, kept.outer_count(), [&](const std::array<int64_t, 2>& at) {
      pool.ForRanges(n, grain, [&](int64_t begin, int64_t end) { run(at, begin, end); });
    });
  }

  /// fn(x) for every element reduced into the place that starts at `x`.
  template <class Fn>
  void ForElements(int64_t x, Fn&& fn) const {
    const int64_t n = reduced.inner_extent(), s = reduced.inner_strides()[0];
    reduced.ForRows(0, reduced.outer_count(), [&](const std::array<int64_t, 1>& at) {
      for (int64_t i = 0; i < n; ++i) fn(x + at[0] + i * s);
    });
  }
};

Result<Kernel> Softmax(OpContext& context) {
  CMF_TRY(const int64_t axis, context.call.Axis("axis", context.call.Rank("x"), -1));
  const AxisView view(context.ShapeOf("x"), axis);
  return [view, kernels = FindFloatKernels(""), x = context.Input("x"),
          out = context.Output()](const Frame& frame) -> Result<void> {
    frame.pool().ForRanges(view.lanes(), 16, [&](int64_t begin, int64_t end) {
      for (int64_t lane = begin; lane < end; ++lane) {
        const float* from = frame.In(x) + view.Start(lane);
        float* to = frame.Out(out) + view.Start(lane);
        if (view.inner == 1) {
          SoftmaxRow(*kernels, from, view.extent, to);
          continue;
        }
        float largest = -std::numeric_limits<float>::infinity();
        for (int64_t i = 0; i < view.extent; ++i) largest = std::max(largest, from[i * view.inner]);
        double sum = 0;
        for (int64_t i = 0; i < view.extent; ++i) {
          const float e = std::exp(from[i * view.inner] - largest);
          to[i * view.inner] = e;
          sum += static_cast<double>(e);
        }
        const auto scale = static_cast<float>(1.0 / sum);
        for (int64_t i = 0; i < view.extent; ++i) to[i * view.inner] *= scale;
      }
    });
    return {};
  };
}

/// (x - mean) / sqrt(variance + epsilon) over groups of elements, then gamma and beta per position of the
/// group (layer_norm) or per channel (instance_norm).
Result<Kernel> LayerNorm(OpContext& context) {
  const Shape& shape = context.ShapeOf("x");
  CMF_TRY(const std::vector<int64_t> axes, context.call.Axes("axes", context.call.Rank("x")));
  CMF_TRY(const double epsilon, context.call.Number("epsilon", 1e-5));
  return [reduction = Reduction::Over(shape, axes), epsilon, x = context.Input("x"),
          gamma = context.Input("gamma"), beta = context.Input("beta"),
          out = context.Output()](const Frame& frame) -> Result<void> {
    const float* from = frame.In(x);
    float* to = frame.Out(out);
    const float* scale = gamma == kNoValue ? nullptr : frame.In(gamma);
    const float* shift = beta == kNoValue ? nullptr : frame.In(beta);
    reduction.ForPlaces(frame.pool(), [&](int64_t, int64_t start) {
      if (reduction.is_row()) {
        NormalizeRow(from + start, reduction.count, epsilon, to + start);
        for (int64_t i = 0; scale && i < reduction.count; ++i) to[start + i] *= scale[i];
        for (int64_t i = 0; shift && i < reduction.count; ++i) to[start + i] += shift[i];
        return;
      }
      double sum = 0, squares = 0;
      reduction.ForElements(start, [&](int64_t at) { sum += static_cast<double>(from[at]); });
      const double mean = sum / static_cast<double>(reduction.count);
      reduction.ForElements(start, [&](int64_t at) {
        const double d = static_cast<double>(from[at]) - mean;
        squares += d * d;
      });
      const double inverse = 1.0 / std::sqrt(squares / static_cast<double>(reduction.count) + epsilon);
      int64_t position = 0;
      reduction.ForElements(start, [&](int64_t at) {
        auto v = static_cast<float>((static_cast<double>(from[at]) - mean) * inverse);
        if (scale) v *= scale[position];
        if (shift) v += shift[position];
        to[at] = v;
        ++position;
      });
    });
    return {};
  };
}

Result<Kernel> InstanceNorm(OpContext& context) {
  const Shape& shape = context.ShapeOf("x");
  std::vector<int64_t> axes;
  for (size_t i = 2; i < shape.size(); ++i) axes.push_back(static_cast<int64_t>(i));
  CMF_TRY(const double epsilon, context.call.Number("epsilon", 1e-5));
  return [reduction = Reduction::Over(shape, axes), channels = shape[1], epsilon, x = context.Input("x"),
          gamma = context.Input("gamma"), beta = context.Input("beta"),
          out = context.Output()](const Frame& frame) -> Result<void> {
    const float* from = frame.In(x);
    float* to = frame.Out(out);
    reduction.ForPlaces(frame.pool(), [&](int64_t place, int64_t start) {
      double sum = 0, squares = 0;
      reduction.ForElements(start, [&](int64_t at) { sum += static_cast<double>(from[at]); });
      const double mean = sum / static_cast<double>(reduction.count);
      reduction.ForElements(start, [&](int64_t at) {
        const double d = static_cast<double>(from[at]) - mean;
        squares += d * d;
      });
      const double inverse = 1.0 / std::sqrt(squares / static_cast<double>(reduction.count) + epsilon);
      const int64_t channel = place % channels;
      const float scale = gamma == kNoValue ? 1.0f : frame.In(gamma)[channel];
      const float shift = beta == kNoValue ? 0.0f : frame.In(beta)[channel];
      reduction.ForElements(start, [&](int64_t at) {
        to[at] = static_cast<float>((static_cast<double>(from[at]) - mean) * inverse) * scale + shift;
      });
    });
    return {};
  };
}

Result<Kernel> BatchNorm(OpContext& context) {
  const AxisView view(context.ShapeOf("x"), 1);
  CMF_TRY(const double number, context.call.Number("epsilon", 1e-5));
  return [view, epsilon = static_cast<float>(number), x = context.Input("x"), mean = context.Input("mean"),
          variance = context.Input("variance"), gamma = context.Input("gamma"), beta = context.Input("beta"),
          out = context.Output()](const Frame& frame) -> Result<void> {
    for (int64_t row = 0; row < view.outer * view.extent; ++row) {
      const int64_t channel = row % view.extent;
      const float inverse = 1.0f / std::sqrt(frame.In(variance)[channel] + epsilon);
      const float scale = gamma == kNoValue ? 1.0f : frame.In(gamma)[channel];
      const float shift = beta == kNoValue ? 0.0f : frame.In(beta)[channel];
      const float* from = frame.In(x) + row * view.inner;
      float* to = frame.Out(out) + row * view.inner;
      for (int64_t i = 0; i < view.inner; ++i)
        to[i] = (from[i] - frame.In(mean)[channel]) * inverse * scale + shift;
    }
    return {};
  };
}

/// x / sqrt(sum of squares + epsilon) over the last three axes (all of them at lower rank).
Result<Kernel> L2Norm(OpContext& context) {
  const Shape& shape = context.ShapeOf("x");
  std::vector<int64_t> axes;
  for (size_t i = shape.size() > 3 ? shape.size() - 3 : 0; i < shape.size(); ++i)
    axes.push_back(static_cast<int64_t>(i));
  CMF_TRY(const double epsilon, context.call.Number("epsilon", 1e-6));
  return [reduction = Reduction::Over(shape, axes), epsilon, x = context.Input("x"),
          out = context.Output()](const Frame& frame) -> Result<void> {
    const float* from = frame.In(x);
    float* to = frame.Out(out);
    reduction.ForPlaces(frame.pool(), [&](int64_t, int64_t start) {
      double squares = epsilon;
      reduction.ForElements(start, [&](int64_t at) {
        squares += static_cast<double>(from[at]) * static_cast<double>(from[at]);
      });
      const auto scale = static_cast<float>(1.0 / std::sqrt(squares));
      reduction.ForElements(start, [&](int64_t at) { to[at] = from[at] * scale; });
    });
    return {};
  };
}

// ---- reductions

enum class Reduce { kSum, kMean, kMax, kMin, kProd, kSumSquare, kL1, kL2, kLogSum, kLogSumExp };

template <Reduce kind, class T>
T ReduceOne(const Reduction& reduction, const T* from, int64_t start) {
  if constexpr (kind == Reduce::kMax || kind == Reduce::kMin) {
    T best = kind == Reduce::kMax ? std::numeric_limits<T>::lowest() : std::numeric_limits<T>::max();
    if constexpr (std::is_same_v<T, float>) {
      best = kind == Reduce::kMax ? -std::numeric_limits<float>::infinity()
                                  : std::numeric_limits<float>::infinity();
    }
    reduction.ForElements(start, [&](int64_t at) {
      const T v = from[at];
      if ((kind == Reduce::kMax ? v > best : v < best) || v != v) best = v;
    });
    return best;
  } else {
    double largest = 0;
    if constexpr (kind == Reduce::kLogSumExp) {
      largest = -std::numeric_limits<double>::infinity();
      reduction.ForElements(start,
                            [&](int64_t at) { largest = std::max(largest, static_cast<double>(from[at])); });
      if (!std::isfinite(largest)) largest = 0;
    }
    double sum = kind == Reduce::kProd ? 1 : 0;
    reduction.ForElements(start, [&](int64_t at) {
      const auto v = static_cast<double>(from[at]);
      switch (kind) {
        case Reduce::kProd:
          sum *= v;
          break;
        case Reduce::kSumSquare:
        case Reduce::kL2:
          sum += v * v;
          break;
        case Reduce::kL1:
          sum += std::fabs(v);
          break;
        case Reduce::kLogSumExp:
          sum += std::exp(v - largest);
          break;
        default:
          sum += v;
          break;
      }
    });
    if (kind == Reduce::kMean) sum /= static_cast<double>(reduction.count);
    if (kind == Reduce::kL2) sum = std::sqrt(sum);
    if (kind == Reduce::kLogSum) sum = std::log(sum);
    if (kind == Reduce::kLogSumExp) sum = std::log(sum) + largest;
    if constexpr (std::is_same_v<T, int32_t>) {
      return sum != sum ? 0 : static_cast<int32_t>(std::clamp(std::trunc(sum), -2147483648.0, 2147483647.0));
    }
    return static_cast<T>(sum);
  }
}

template <Reduce kind, class T>
Result<Kernel> ReduceTyped(OpContext& context) {
  CMF_TRY(const std::vector<int64_t> axes, context.call.Axes("axes", context.call.Rank("x")));
  return [reduction = Reduction::Over(context.ShapeOf("x"), axes), x = context.Input("x"),
          out = context.Output()](const Frame& frame) -> Result<void> {
    const auto* from = reinterpret_cast<const T*>(frame.In(x));
    auto* to = reinterpret_cast<T*>(frame.Out(out));
    reduction.ForPlaces(frame.pool(), [&](int64_t place, int64_t start) {
      to[place] = ReduceOne<kind, T>(reduction, from, start);
    });
    return {};
  };
}

template <Reduce kind>
Result<Kernel> ReduceKernel(OpContext& context) {
  if (IsFloatBuffer(context.call.Tensor("x").dtype)) return ReduceTyped<kind, float>(context);
  return ReduceTyped<kind, int32_t>(context);
}

/// Ties go to the lowest index.
template <bool wants_max, class T>
Result<Kernel> ArgReduceTyped(OpContext& context) {
  CMF_TRY(const int64_t axis, context.call.Axis("axis", context.call.Rank("x"), -1));
  const AxisView view(context.ShapeOf("x"), axis);
  return [view, x = context.Input("x"), out = context.Output()](const Frame& frame) -> Result<void> {
    const auto* from = reinterpret_cast<const T*>(frame.In(x));
    for (int64_t lane = 0; lane < view.lanes(); ++lane) {
      const T* at = from + view.Start(lane);
      int64_t best = 0;
      for (int64_t i = 1; i < view.extent; ++i) {
        const T v = at[i * view.inner], b = at[best * view.inner];
        if (wants_max ? v > b : v < b) best = i;
      }
      frame.OutInts(out)[lane] = static_cast<int32_t>(best);
    }
    return {};
  };
}

template <bool wants_max>
Result<Kernel> ArgReduce(OpContext& context) {
  if (IsFloatBuffer(context.call.Tensor("x").dtype)) return ArgReduceTyped<wants_max, float>(context);
  return ArgReduceTyped<wants_max, int32_t>(context);
}

// ---- running sums and sorting

template <class T, class Sum>
Result<Kernel> CumsumTyped(OpContext& context) {
  CMF_TRY(const int64_t axis, context.call.Axis("axis", context.call.Rank("x"), 0));
  CMF_TRY(const bool is_exclusive, context.call.Flag("exclusive", false));
  CMF_TRY(const bool is_reversed, context.call.Flag("reverse", false));
  const AxisView view(context.ShapeOf("x"), axis);
  return [view, is_exclusive, is_reversed, x = context.Input("x"),
          out = context.Output()](const Frame& frame) -> Result<void> {
    const auto* from = reinterpret_cast<const T*>(frame.In(x));
    auto* to = reinterpret_cast<T*>(frame.Out(out));
    for (int64_t lane = 0; lane < view.lanes(); ++lane) {
      Sum sum = 0;
      for (int64_t step = 0; step < view.extent; ++step) {
        const int64_t i = is_reversed ? view.extent - 1 - step : step;
        const int64_t at = view.Start(lane) + i * view.inner;
        const Sum before = sum;
        sum += static_cast<Sum>(from[at]);
        to[at] = static_cast<T>(is_exclusive ? before : sum);
      }
    }
    return {};
  };
}

Result<Kernel> Cumsum(OpContext& context) {
  if (IsFloatBuffer(context.call.Tensor("x").dtype)) return CumsumTyped<float, double>(context);
  return CumsumTyped<int32_t, uint32_t>(context);
}

/// The first `count` places of a stable order along the axis; values and indices where they are wanted.
template <class T>
Kernel SortTyped(OpContext& context, const AxisView& view, int64_t count, bool is_ascending, ValueId values,
                 ValueId indices) {
  return [view, count, is_ascending, values, indices, x = context.Input("x"),
          order = std::vector<int32_t>(static_cast<size_t>(view.extent))](
             const Frame& frame) mutable -> Result<void> {
    const auto* from = reinterpret_cast<const T*>(frame.In(x));
    for (int64_t lane = 0; lane < view.lanes(); ++lane) {
      const T* at = from + view.Start(lane);
      std::iota(order.begin(), order.end(), 0);
      // Ties by index: a strict order, so that sorting needs no stability (and no memory). NaN goes last.
      std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
        const T p = at[a * view.inner], q = at[b * view.inner];
        if (p != p || q != q) return (p == p) != (q == q) ? p == p : a < b;
        return p != q ? (is_ascending ? p < q : p > q) : a < b;
      });
      const int64_t start = lane / view.inner * count * view.inner + lane % view.inner;
      for (int64_t i = 0; i < count; ++i) {
        const int32_t place = order[static_cast<size_t>(i)];
        if (indices != kNoValue) frame.OutInts(indices)[start + i * view.inner] = place;
        if (values != kNoValue)
          reinterpret_cast<T*>(frame.Out(values))[start + i * view.inner] = at[place * view.inner];
      }
    }
    return {};
  };
}

Result<Kernel> Sort(OpContext& context, int64_t count, bool is_ascending, ValueId values, ValueId indices) {
  CMF_TRY(const int64_t axis, context.call.Axis("axis", context.call.Rank("x"), -1));
  const AxisView view(context.ShapeOf("x"), axis);
  if (count < 0) count = view.extent;
  if (IsFloatBuffer(context.call.Tensor("x").dtype))
    return SortTyped<float>(context, view, count, is_ascending, values, indices);
  return SortTyped<int32_t>(context, view, count, is_ascending, values, indices);
}

Result<Kernel> Topk(OpContext& context) {
  CMF_TRY(const int64_t k, context.call.Integer("k", 1));
  CMF_TRY(const bool is_ascending, context.call.Flag("ascending", false));
  CMF_TRY(const bool wants_indices, context.call.Flag("return_indices", true));
  return Sort(context, k, is_ascending, context.Output(0), wants_indices ? context.Output(1) : kNoValue);
}

Result<Kernel> Argsort(OpContext& context) {
  CMF_TRY(const bool is_ascending, context.call.Flag("ascending", false));
  return Sort(context, -1, is_ascending, kNoValue, context.Output());
}

struct Row {
  std::string_view op;
  KernelMaker make;
};

constexpr Row kRows[] = {
    {"softmax", Softmax},
    {"layer_norm", LayerNorm},
    {"instance_norm", InstanceNorm},
    {"batch_norm", BatchNorm},
    {"l2_norm", L2Norm},
    {"reduce_sum", ReduceKernel<Reduce::kSum>},
    {"reduce_mean", ReduceKernel<Reduce::kMean>},
    {"reduce_max", ReduceKernel<Reduce::kMax>},
    {"reduce_min", ReduceKernel<Reduce::kMin>},
    {"reduce_prod", ReduceKernel<Reduce::kProd>},
    {"reduce_sum_square", ReduceKernel<Reduce::kSumSquare>},
    {"reduce_l1_norm", ReduceKernel<Reduce::kL1>},
    {"reduce_l2_norm", ReduceKernel<Reduce::kL2>},
    {"reduce_log_sum", ReduceKernel<Reduce::kLogSum>},
    {"reduce_log_sum_exp", ReduceKernel<Reduce::kLogSumExp>},
    {"reduce_argmax", ArgReduce<true>},
    {"reduce_argmin", ArgReduce<false>},
    {"cumsum", Cumsum},
    {"topk", Topk},
    {"argsort", Argsort},
};

}  // namespace

KernelMaker FindAxisKernel(std::string_view op) {
  for (const Row& row : kRows) {
    if (row.op == op) return row.make;
  }
  return nullptr;
}

}  // namespace cmforge::coreml
