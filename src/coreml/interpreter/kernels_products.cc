// Matrix products, convolutions, attention. Constant weights are read in the form they are stored in.
#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "coreml/interpreter/kernel.h"
#include "coreml/interpreter/strided.h"
#include "kernels/guided_rows.h"
#include "mil/infer.h"

namespace cmforge::coreml {
namespace {

using mil::DataType;

/// y[s, r] = bias[r] + sum over c of W[r, c] * x[s, c], W a constant or a buffer of [rows, cols].
class RowProduct {
 public:
  RowProduct(OpContext& context, std::string_view weight, std::string_view bias, int64_t rows, int64_t cols)
      : kernels_(&StoredKernelsOf(context.isa())), rounds_(context.TakeRounding()) {
    matrix_.rows = rows;
    matrix_.cols = cols;
    constant_ = context.Constant(weight);
    if (!constant_) {
      weight_ = context.Input(weight);
    } else if (const auto stored = constant_->Matrix(rows, cols)) {
      matrix_ = *stored;
      matrix_.ahead = AheadOfStored(*kernels_);
      is_stored_ = true;
    }
    if (!bias.empty()) bias_ = context.Input(bias);
    context.Reserve(StoredScratchFloats(cols), 0);
  }

  /// Rows [begin, begin + count); y of row begin + i starts at out + i * row_stride.
  struct Part {
    const RowProduct* product;
    int64_t begin, count;
    float* out;
  };
  /// Parts of products of the same columns, on `tokens` rows of x. One of the strides is 1.
  static void RunAll(const Frame& frame, std::span<const Part> parts, const float* x, int64_t x_stride,
                     int64_t tokens, int64_t row_stride, int64_t token_stride) {
    const Cuts cuts = CutRows(parts, tokens, frame.threads());
    frame.pool().Run(cuts.tasks, [&](int64_t task, int worker) {
      const Task& t = cuts.at[static_cast<size_t>(task)];
      const Part& part = parts[static_cast<size_t>(t.part)];
      part.product->RunRows(frame, part.begin + t.first, t.count, x, x_stride, tokens,
                            part.out + t.first * row_stride, row_stride, token_stride, worker);
    });
  }
  void Run(const Frame& frame, int64_t begin, int64_t count, const float* x, int64_t x_stride, int64_t tokens,
           float* out, int64_t row_stride, int64_t token_stride) const {
    const Part part{this, begin, count, out};
    RunAll(frame, {&part, 1}, x, x_stride, tokens, row_stride, token_stride);
  }

  [[nodiscard]] int64_t rows() const { return matrix_.rows; }
  [[nodiscard]] int64_t cols() const { return matrix_.cols; }

 private:
  void RunRows(const Frame& frame, int64_t begin, int64_t count, const float* x, int64_t x_stride,
               int64_t tokens, float* out, int64_t row_stride, int64_t token_stride, int worker) const {
    const float* bias = bias_ == kNoValue ? nullptr : frame.In(bias_);
    float* scratch = frame.WorkerScratch(worker);
    if (constant_ && !is_stored_) {
      RunDecoded(begin, count, x, x_stride, tokens, bias, out, row_stride, token_stride, scratch);
    } else {
      StoredMatrix matrix = matrix_;
      if (weight_ != kNoValue) matrix.data = reinterpret_cast<const std::byte*>(frame.In(weight_));
      MultiplyStored(*kernels_, matrix, begin, begin + count, x, x_stride, tokens, bias, out, row_stride,
                     token_stride, scratch);
    }
    if (!rounds_) return;
    if (row_stride == 1) {
      for (int64_t t = 0; t < tokens; ++t) RoundToHalves(out + t * token_stride, count);
    } else {
      for (int64_t r = 0; r < count; ++r) RoundToHalves(out + r * row_stride, tokens);
    }
  }

  /// Forms that kernels do not know are decoded a few rows at a time.
  void RunDecoded(int64_t begin, int64_t count, const float* x, int64_t x_stride, int64_t tokens,
                  const float* bias, float* out, int64_t row_stride, int64_t token_stride,
                  float* scratch) const {
    for (int64_t row = 0; row < count; row += kPanelRows) {
      StoredMatrix block;
      block.rows = std::min(kPanelRows, count - row);
      block.cols = cols();
      block.data = reinterpret_cast<const std::byte*>(scratch);
      constant_->Decode((begin + row) * cols(), block.rows * cols(), scratch);
      MultiplyStored(*kernels_, block, 0, block.rows, x, x_stride, tokens,
                     bias ? bias + begin + row : nullptr, out + row * row_stride, row_stride, token_stride,
                     scratch + kPanelRows * PanelStride(cols()));
    }
  }

  struct Task {
    int32_t part;
    int64_t first, count;  // rows of the part
  };
  struct Cuts {  // not a vector, since steps allocate nothing
    static constexpr int64_t kMost = 512;
    std::array<Task, kMost> at;
    int64_t tasks = 0;
  };
  static Cuts CutRows(std::span<const Part> parts, int64_t tokens, int threads) {
    // Many tokens need far more work than bytes: tasks of a few rows are long enough.
    const int64_t weight = std::min<int64_t>(tokens, 64);
    const auto row_bytes = [&](const Part& part) {
      return std::max<int64_t>(1, part.product->cols() * part.product->matrix_.bits / 8) * weight;
    };
    int64_t left_bytes = 0;
    for (const Part& part : parts) left_bytes += part.count * row_bytes(part);
    Cuts cuts;
    for (size_t p = 0; p < parts.size(); ++p) {
      const auto parts_left = static_cast<int64_t>(parts.size() - p);
      for (int64_t first = 0; first < parts[p].count;) {
        const int64_t left = parts[p].count - first, bytes = row_bytes(parts[p]);
        int64_t rows = GuidedRows(left, bytes, left_bytes, kPanelRows, threads);
        if (threads == 1 || cuts.tasks + parts_left == Cuts::kMost) rows = left;
        cuts.at[static_cast<size_t>(cuts.tasks++)] = {static_cast<int32_t>(p), first, rows};
        first += rows;
        left_bytes -= rows * bytes;
      }
    }
    return cuts;
  }

  const StoredKernels* kernels_;
  bool rounds_;
  WeightPtr constant_;
  StoredMatrix matrix_;
  bool is_stored_ = false;
  ValueId weight_ = kNoValue, bias_ = kNoValue;
};

Result<Kernel> Linear(OpContext& context) {
  const Shape& weight = context.ShapeOf("weight");
  RowProduct product(context, "weight", context.call.Has("bias") ? "bias" : "", weight[0], weight[1]);
  const int64_t tokens = weight[0] == 0 ? 0 : context.OutputCount() / weight[0];
  return
      [product, tokens, x = context.Input("x"), out = context.Output()](const Frame& frame) -> Result<void> {
        product.Run(frame, 0, product.rows(), frame.In(x), product.cols(), tokens, frame.Out(out), 1,
                    product.rows());
        return {};
      };
}

// ---- convolution

/// Gathers the inputs of output positions as rows [position, channel of the group, kernel place].
class Patches {
 public:
  Patches(const Shape& x, const mil::ConvPlan& plan, int64_t channels)
      : channels_(channels),
        strides_(plan.strides),
        dilations_(plan.dilations),
        before_(plan.pad_before),
        kernel_(plan.kernel),
        extents_(x.begin() + 2, x.end()),
        out_(plan.out) {
    for (const int64_t k : kernel_) places_ *= k;
    for (const int64_t e : extents_) plane_ *= e;
    for (const int64_t e : out_) positions_ *= e;
    is_plain_ = places_ == 1 && plane_ == positions_;
    for (const int64_t b : before_) is_plain_ = is_plain_ && b == 0;
  }

  [[nodiscard]] int64_t positions() const { return positions_; }
  [[nodiscard]] int64_t cols() const { return channels_ * places_; }
  [[nodiscard]] int64_t plane() const { return plane_; }
  /// One position, every place inside: the input itself is the row.
  [[nodiscard]] bool is_row() const { return is_plain_ && positions_ == 1; }

  /// Rows for positions [begin, end) of one group whose first channel is at `x`.
  void Gather(ThreadPool& pool, const float* x, int64_t begin, int64_t end, float* rows) const {
    if (is_plain_) {  // a transposition, by squares so that both sides are read and written in whole lines
      constexpr int64_t kSide = 16;
      pool.ForRanges(end - begin, kSide, [&](int64_t first, int64_t last) {
        for (int64_t p = first; p < last; p += kSide) {
          const int64_t places = std::min(kSide, last - p);
          for (int64_t c = 0; c < channels_; c += kSide) {
            const int64_t channels = std::min(kSide, channels_ - c);
            float square[kSide][kSide];
            for (int64_t i = 0; i < channels; ++i) {
              const float* from = x + (c + i) * plane_ + begin + p;
              for (int64_t j = 0; j < places; ++j) square[j][i] = from[j];
            }
            for (int64_t j = 0; j < places; ++j)
              std::copy_n(square[j], channels, rows + (p + j) * channels_ + c);
          }
        }
      });
      return;
    }
    pool.ForRanges(end - begin, 4, [&](int64_t first, int64_t last) {
      for (int64_t p = first; p < last; ++p) GatherOne(x, begin + p, rows + p * cols());
    });
  }

 private:
  void GatherOne(const float* x, int64_t position, float* row) const {
    const size_t axes = out_.size();
    int64_t start[3] = {};
    for (size_t i = axes; i-- > 0;) {
      start[i] = position % out_[i] * strides_[i] - before_[i];
      position /= out_[i];
    }
    for (int64_t place = 0; place < places_; ++place) {
      int64_t rest = place, offset = 0, scale = 1;
      bool is_inside = true;
      for (size_t i = axes; i-- > 0;) {
        const int64_t at = start[i] + rest % kernel_[i] * dilations_[i];
        rest /= kernel_[i];
        is_inside = is_inside && at >= 0 && at < extents_[i];
        offset += at * scale;
        scale *= extents_[i];
      }
      for (int64_t c = 0; c < channels_; ++c)
        row[c * places_ + place] = is_inside ? x[c * plane_ + offset] : 0.0f;
    }
  }

  int64_t channels_;
  std::vector<int64_t> strides_, dilations_, before_, kernel_, extents_, out_;
  int64_t places_ = 1, plane_ = 1, positions_ = 1;
  bool is_plain_ = false;
};

}  // namespace

Result<Kernel> MakeConvs(std::span<OpContext* const> contexts) {
  OpContext& context = *contexts[0];
  CMF_TRY(const mil::ConvPlan plan, mil::PlanConv(context.call));
  const Shape& x_shape = context.ShapeOf("x");
  const int64_t group_channels = context.ShapeOf("weight")[1];
  const Patches patches(x_shape, plan, group_channels);
  std::vector<RowProduct> products;
  std::vector<ValueId> outs;
  for (OpContext* one : contexts) {
    products.emplace_back(*one, "weight", one->call.Has("bias") ? "bias" : "", one->ShapeOf("weight")[0],
                          patches.cols());
    outs.push_back(one->Output());
  }
  constexpr int64_t kPatchFloats = 4 << 20;
  const int64_t block = std::clamp<int64_t>(kPatchFloats / std::max<int64_t>(patches.cols(), 1), 1,
                                            std::max<int64_t>(patches.positions(), 1));
  if (!patches.is_row()) context.Reserve(0, block * patches.cols());
  return [products = std::move(products), outs = std::move(outs), patches, block, groups = plan.groups,
          batch = x_shape[0], group_channels, x = context.Input("x")](const Frame& frame) -> Result<void> {
    std::array<RowProduct::Part, kMostConvs> all;
    const std::span<RowProduct::Part> parts(all.data(), products.size());
    for (int64_t n = 0; n < batch * groups; ++n) {
      const float* from = frame.In(x) + n * group_channels * patches.plane();
      const auto set_parts = [&](int64_t position) {
        for (size_t i = 0; i < parts.size(); ++i) {
          const int64_t rows = products[i].rows() / groups;
          parts[i] = {&products[i], n % groups * rows, rows,
                      frame.Out(outs[i]) + n * rows * patches.positions() + position};
        }
      };
      if (patches.is_row()) {
        set_parts(0);
        RowProduct::RunAll(frame, parts, from, patches.cols(), 1, 1, 1);
        continue;
      }
      for (int64_t begin = 0; begin < patches.positions(); begin += block) {
        const int64_t end = std::min(patches.positions(), begin + block);
        patches.Gather(frame.pool(), from, begin, end, frame.SharedScratch());
        set_parts(begin);
        RowProduct::RunAll(frame, parts, frame.SharedScratch(), patches.cols(), end - begin,
                           patches.positions(), 1);
      }
    }
    return {};
  };
}

namespace {

Result<Kernel> Conv(OpContext& context) {
  OpContext* const one = &context;
  return MakeConvs({&one, 1});
}

// ---- matmul

/// Offsets of each batch of x and y, by the batch number of the result.
struct BatchOffsets {
  std::vector<int64_t> x, y;

  BatchOffsets(const Shape& x_shape, const Shape& y_shape) {
    const auto batch_of = [](const Shape& s) {
      return s.size() > 2 ? Shape(s.begin(), s.end() - 2) : Shape{};
    };
    const Shape bx = batch_of(x_shape), by = batch_of(y_shape);
    const Shape out = mil::BroadcastShapes(bx, by).value_or(Shape{});
    const auto matrix = [](const Shape& s) {
      int64_t count = 1;
      for (size_t i = s.size() > 2 ? s.size() - 2 : 0; i < s.size(); ++i) count *= s[i];
      return count;
    };
    const StridedLoop<2> loop(out, {BroadcastStrides(bx, out), BroadcastStrides(by, out)});
    loop.ForRows(0, loop.outer_count(), [&](const std::array<int64_t, 2>& at) {
      for (int64_t i = 0; i < loop.inner_extent(); ++i) {
        x.push_back((at[0] + i * loop.inner_strides()[0]) * matrix(x_shape));
        y.push_back((at[1] + i * loop.inner_strides()[1]) * matrix(y_shape));
      }
    });
  }
};

struct MatmulShape {
  int64_t m = 1, k = 1, n = 1;
  bool transpose_x = false, transpose_y = false;

  static Result<MatmulShape> Of(const mil::OpCall& call) {
    const Shape &x = call.Tensor("x").shape, &y = call.Tensor("y").shape;
    MatmulShape s;
    CMF_TRY(s.transpose_x, call.Flag("transpose_x", false));
    CMF_TRY(s.transpose_y, call.Flag("transpose_y", false));
    // A vector is a row on the left, a column on the right; neither is transposed.
    s.transpose_x = s.transpose_x && x.size() > 1;
    if (y.size() == 1) s.transpose_y = true;  // a column of n = 1 is a row of k read as [1, k]
    s.k = x.size() == 1 ? x[0] : s.transpose_x ? x.end()[-2] : x.back();
    s.m = x.size() == 1 ? 1 : s.transpose_x ? x.back() : x.end()[-2];
    s.n = y.size() == 1 ? 1 : s.transpose_y ? y.end()[-2] : y.back();
    return s;
  }
};

Kernel IntegerMatmul(OpContext& context, const MatmulShape& s, BatchOffsets offsets) {
  return [s, offsets = std::move(offsets), x = context.Input("x"), y = context.Input("y"),
          out = context.Output()](const Frame& frame) -> Result<void> {
    for (size_t b = 0; b < offsets.x.size(); ++b) {
      const int32_t* p = frame.InInts(x) + offsets.x[b];
      const int32_t* q = frame.InInts(y) + offsets.y[b];
      int32_t* to = frame.OutInts(out) + static_cast<int64_t>(b) * s.m * s.n;
      for (int64_t i = 0; i < s.m; ++i) {
        for (int64_t j = 0; j < s.n; ++j) {
          uint32_t sum = 0;
          for (int64_t k = 0; k < s.k; ++k) {
            sum += static_cast<uint32_t>(p[s.transpose_x ? k * s.m + i : i * s.k + k]) *
                   static_cast<uint32_t>(q[s.transpose_y ? j * s.k + k : k * s.n + j]);
          }
          to[i * s.n + j] = static_cast<int32_t>(sum);
        }
      }
    }
    return {};
  };
}

/// x [tokens, k] times a constant [k, n] as it lies: decoded a few columns at a time.
Kernel ColumnProduct(OpContext& context, const StoredKernels& kernels, WeightPtr weight,
                     const MatmulShape& s) {
  static constexpr int64_t kColumns = 64;
  context.Reserve(s.k * kColumns, 0);
  const int64_t tokens = s.n == 0 ? 0 : context.OutputCount() / s.n;
  return [s, tokens, weight = std::move(weight), kernels = &kernels, x = context.Input("x"),
          out = context.Output()](const Frame& frame) -> Result<void> {
    frame.pool().Run((s.n + kColumns - 1) / kColumns, [&](int64_t task, int worker) {
      const int64_t first = task * kColumns, width = std::min(kColumns, s.n - first);
      float* columns = frame.WorkerScratch(worker);
      for (int64_t k = 0; k < s.k; ++k) weight->Decode(k * s.n + first, width, columns + k * width);
      kernels->combine(frame.In(x), s.k, tokens, columns, width, s.k, width, frame.Out(out) + first, s.n);
    });
    return {};
  };
}

Result<Kernel> Matmul(OpContext& context) {
  CMF_TRY(const MatmulShape s, MatmulShape::Of(context.call));
  const Shape &x_shape = context.ShapeOf("x"), &y_shape = context.ShapeOf("y");
  BatchOffsets offsets(x_shape, y_shape);
  if (!IsFloatBuffer(context.call.Tensor("x").dtype)) return IntegerMatmul(context, s, std::move(offsets));
  const ValueId x = context.Input("x"), out = context.Output();
  if (s.transpose_y && !s.transpose_x && y_shape.size() == 2 && context.Constant("y")) {  // a linear layer
    RowProduct product(context, "y", "", s.n, s.k);
    const int64_t tokens = s.n == 0 ? 0 : context.OutputCount() / s.n;
    return [product, tokens, x, out](const Frame& frame) -> Result<void> {
      product.Run(frame, 0, product.rows(), frame.In(x), product.cols(), tokens, frame.Out(out), 1,
                  product.rows());
      return {};
    };
  }
  const StoredKernels* kernels = &StoredKernelsOf(context.isa());
  if (const WeightPtr weight = context.Constant("y");
      weight && !s.transpose_y && !s.transpose_x && y_shape.size() == 2)
    return ColumnProduct(context, *kernels, weight, s);
  const ValueId y = context.Input("y");
  // Tasks are pieces of y's rows, or of x's; each worker turns x for itself where it lies the other way.
  const int64_t piece = s.transpose_y ? 64 : 16;
  const int64_t pieces = ((s.transpose_y ? s.n : s.m) + piece - 1) / piece;
  context.Reserve(StoredScratchFloats(s.k) + (s.transpose_x ? s.m * s.k : 0), 0);
  return [s, offsets = std::move(offsets), kernels, piece, pieces, x, y,
          out](const Frame& frame) -> Result<void> {
    frame.pool().Run(static_cast<int64_t>(offsets.x.size()) * pieces, [&](int64_t task, int worker) {
      const auto b = static_cast<size_t>(task / pieces);
      float* scratch = frame.WorkerScratch(worker);
      const float* rows = frame.In(x) + offsets.x[b];
      const int64_t first = task % pieces * piece;
      if (s.transpose_x) {
        float* packed = scratch + StoredScratchFloats(s.k);
        for (int64_t i = 0; i < s.m; ++i) {
          for (int64_t k = 0; k < s.k; ++k) packed[i * s.k + k] = rows[k * s.m + i];
        }
        rows = packed;
      }
      float* to = frame.Out(out) + static_cast<int64_t>(b) * s.m * s.n;
      if (s.transpose_y) {
        StoredMatrix matrix;
        matrix.rows = s.n;
        matrix.cols = s.k;
        matrix.data = reinterpret_cast<const std::byte*>(frame.In(y) + offsets.y[b]);
        MultiplyStored(*kernels, matrix, first, std::min(s.n, first + piece), rows, s.k, s.m, nullptr,
                       to + first, 1, s.n, scratch);
      } else {
        kernels->combine(rows + first * s.k, s.k, std::min(piece, s.m - first), frame.In(y) + offsets.y[b],
                         s.n, s.k, s.n, to + first * s.n, s.n);
      }
    });
    return {};
  };
}

// ---- einsum

Result<Kernel> Einsum(OpContext& context) {
  CMF_TRY(const mil::EinsumPlan plan, mil::PlanEinsum(context.call));
  // One loop over the letters of the result, one over those summed away.
  const auto values = context.call.All("values");
  const std::vector<int64_t> sa = StridesOf(values[0].type->tensor.shape),
                             sb = StridesOf(values[1].type->tensor.shape);
  const auto stride = [](const std::string& letters, const std::vector<int64_t>& strides, char letter) {
    const size_t at = letters.find(letter);
    return at == std::string::npos ? int64_t{0} : strides[at];
  };
  Shape kept, summed;
  std::vector<int64_t> kept_a, kept_b, summed_a, summed_b;
  for (const char letter : plan.out) {
    kept.push_back(plan.extents.at(letter));
    kept_a.push_back(stride(plan.a, sa, letter));
    kept_b.push_back(stride(plan.b, sb, letter));
  }
  for (const auto& [letter, extent] : plan.extents) {
    if (plan.out.find(letter) != std::string::npos) continue;
    summed.push_back(extent);
    summed_a.push_back(stride(plan.a, sa, letter));
    summed_b.push_back(stride(plan.b, sb, letter));
  }
  StridedLoop<3> places(kept, {StridesOf(kept), kept_a, kept_b});
  StridedLoop<2> terms(summed, {summed_a, summed_b});
  return [places = std::move(places), terms = std::move(terms), a = context.Input("values", 0),
          b = context.Input("values", 1), out = context.Output()](const Frame& frame) -> Result<void> {
    const auto [so, sp, sq] = places.inner_strides();
    const auto [ta, tb] = terms.inner_strides();
    const int64_t n = terms.inner_extent();
    places.Run(
        frame.pool(), [&, so = so, sp = sp, sq = sq, ta = ta, tb = tb](const std::array<int64_t, 3>& at) {
          for (int64_t i = 0; i < places.inner_extent(); ++i) {
            const float* p = frame.In(a) + at[1] + i * sp;
            const float* q = frame.In(b) + at[2] + i * sq;
            double sum = 0;
            terms.ForRows(0, terms.outer_count(), [&](const std::array<int64_t, 2>& from) {
              for (int64_t k = 0; k < n; ++k) {
                sum += static_cast<double>(p[from[0] + k * ta]) * static_cast<double>(q[from[1] + k * tb]);
              }
            });
            frame.Out(out)[at[0] + i * so] = static_cast<float>(sum);
          }
        });
    return {};
  };
}

// ---- attention

Result<Kernel> Attention(OpContext& context) {
  const Shape &q = context.ShapeOf("query"), &k = context.ShapeOf("key"), &v = context.ShapeOf("value");
  struct Sizes {
    int64_t batch = 1, length, keys, width, value_width;
  } sizes{1, q.end()[-2], k.end()[-2], q.back(), v.back()};
  for (size_t i = 0; i + 2 < q.size(); ++i) sizes.batch *= q[i];
  Shape score_shape(q.begin(), q.end() - 1);
  score_shape.push_back(sizes.keys);
  const bool has_mask = context.call.Has("attn_mask");
  const bool is_boolean = has_mask && context.call.Tensor("attn_mask").dtype == DataType::kBool;
  // Where the mask of each row of scores starts.
  std::vector<int64_t> mask_rows;
  int64_t mask_stride = 0;
  if (has_mask) {
    std::vector<int64_t> strides = BroadcastStrides(context.ShapeOf("attn_mask"), score_shape);
    mask_stride = strides.back();
    score_shape.pop_back();
    strides.pop_back();
    const StridedLoop<1> loop(score_shape, {strides});
    loop.ForRows(0, loop.outer_count(), [&](const std::array<int64_t, 1>& at) {
      for (int64_t i = 0; i < loop.inner_extent(); ++i)
        mask_rows.push_back(at[0] + i * loop.inner_strides()[0]);
    });
  }
  context.Reserve(sizes.keys + StoredScratchFloats(sizes.width), 0);
  return
      [sizes, kernels = &StoredKernelsOf(context.isa()), mask_rows = std::move(mask_rows), mask_stride,
       is_boolean, query = context.Input("query"), key = context.Input("key"), value = context.Input("value"),
       mask = context.Input("attn_mask"), out = context.Output()](const Frame& frame) -> Result<void> {
        const float scale = 1.0f / std::sqrt(static_cast<float>(sizes.width));
        frame.pool().Run(sizes.batch * sizes.length, [&](int64_t row, int worker) {
          const int64_t b = row / sizes.length;
          float* scores = frame.WorkerScratch(worker);
          const float* from = frame.In(query) + row * sizes.width;
          StoredMatrix keys;
          keys.rows = sizes.keys;
          keys.cols = sizes.width;
          keys.data = reinterpret_cast<const std::byte*>(frame.In(key) + b * sizes.keys * sizes.width);
          MultiplyStored(*kernels, keys, 0, sizes.keys, from, sizes.width, 1, nullptr, scores, 1, 1,
                         scores + sizes.keys);
          float largest = -std::numeric_limits<float>::infinity();
          for (int64_t i = 0; i < sizes.keys; ++i) {
            float score = scores[i] * scale;
            if (!mask_rows.empty()) {
              const int64_t at = mask_rows[static_cast<size_t>(row)] + i * mask_stride;
              if (!is_boolean) score += frame.In(mask)[at];
              if (is_boolean && !frame.InInts(mask)[at]) score = -std::numeric_limits<float>::infinity();
            }
            scores[i] = score;
            largest = std::max(largest, score);
          }
          double sum = 0;
          for (int64_t i = 0; i < sizes.keys; ++i) {
            scores[i] = std::exp(scores[i] - largest);
            sum += static_cast<double>(scores[i]);
          }
          for (int64_t i = 0; i < sizes.keys; ++i)
            scores[i] = static_cast<float>(static_cast<double>(scores[i]) / sum);
          kernels->combine(scores, sizes.keys, 1, frame.In(value) + b * sizes.keys * sizes.value_width,
                           sizes.value_width, sizes.keys, sizes.value_width,
                           frame.Out(out) + row * sizes.value_width, sizes.value_width);
        });
        return {};
      };
}

}  // namespace

KernelMaker FindProductKernel(std::string_view op) {
  if (op == "linear") return Linear;
  if (op == "conv") return Conv;
  if (op == "matmul") return Matmul;
  if (op == "einsum") return Einsum;
  if (op == "scaled_dot_product_attention") return Attention;
  return nullptr;
}

}  // namespace cmforge::coreml
