// Matrix products on encoded weights, read in place:  y[t, r] = sum over c of W[r, c] * x[t, c].
//
// One answer, whatever the split: y[t, r] depends on row r of W and row t of x alone. How many tokens, rows,
// matrices and threads a call has changes no bit of it, and neither does the instruction set.
//
//   exact  Weights as quant's decode_rows gives them, f32 activations. Sixteen partial sums, partial p takes
//          the columns c = p mod 16 in ascending order with fused multiply-adds, then a tree (table.h).
//   fast   Encodings of integers: activations rounded to int8 in groups of 32 with an f32 scale, integer dot
//          products per group, sixteen partial sums over the groups g = p mod 16, then the tree. Float
//          weights (f32, f16, bf16), and q4_block whose groups straddle rows, compute as in `exact`.
//
// How to use: one LinearWeight per matrix when a model is opened, one KernelContext per stepping thread, one
// Activations per operator input; then MatMul with all matrices that can run at the same time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/isa.h"
#include "model/language_model.h"
#include "model/tensor_source.h"

namespace cmforge {

struct WeightLayout;   // table.h
struct QuantizedRows;  // activations.h

/// One [out, in] matrix in any encoding that quant decodes, checked once so that kernels need not.
/// Immutable and cheap to copy; holds the view (and its owner), copies no weights. `vbit` and `q1s` cost 8
/// bytes a row for row offsets.
class LinearWeight {
 public:
  /// Fails: kUsage (not 2-D), kCorrupt (payload does not fit its shape, offsets or indices leave it),
  /// kUnsupported (dtype). Messages begin with the tensor's name.
  static Result<LinearWeight> Make(TensorView view, std::string_view name);

  [[nodiscard]] int64_t rows() const;  // outputs
  [[nodiscard]] int64_t cols() const;  // inputs
  [[nodiscard]] DType dtype() const;
  [[nodiscard]] const TensorView& view() const;
  [[nodiscard]] uint64_t bytes() const { return view().bytes.size(); }  // what a decode step reads
  [[nodiscard]] const WeightLayout& layout() const { return *layout_; }

 private:
  std::shared_ptr<const WeightLayout> layout_;
};

/// Who computes: instruction set, threads, and scratch memory that only grows. Belongs to one thread at a
/// time.
class KernelContext {
 public:
  explicit KernelContext(ThreadPool& pool, Isa isa = BestIsa());
  ~KernelContext();
  KernelContext(const KernelContext&) = delete;
  KernelContext& operator=(const KernelContext&) = delete;

  [[nodiscard]] ThreadPool& pool() const { return pool_; }
  [[nodiscard]] Isa isa() const { return isa_; }

  /// Makes Scratch(worker) at least `bytes` for every worker; call outside parallel regions.
  void ReserveScratch(int64_t bytes);
  /// 64-byte aligned, contents undefined, for worker in [0, pool().threads()).
  [[nodiscard]] std::byte* Scratch(int worker) const;

  /// Memory that all workers read during a region; 64-byte aligned, contents undefined after each call.
  [[nodiscard]] std::byte* ReserveShared(int64_t bytes);

 private:
  struct Memory {
    struct Free {
      void operator()(std::byte* p) const;
    };
    void Reserve(int64_t wanted);

    int64_t bytes = 0;
    std::unique_ptr<std::byte[], Free> data;
  };

  ThreadPool& pool_;
  Isa isa_;
  int64_t scratch_bytes_ = 0;  // per worker
  Memory scratch_, shared_;
};

/// The input of one operator: f32 rows, and (made by MatMul when a matrix first wants it, then shared by all)
/// their int8 form. Reuse one object for many operators: its buffers only grow.
class Activations {
 public:
  Activations();
  Activations(Activations&&) noexcept;
  Activations& operator=(Activations&&) noexcept;
  ~Activations();

  /// Row t is x[t * stride .. t * stride + cols). The floats must stay unchanged until the last MatMul of
  /// this input has returned.
  void Set(const float* x, int64_t tokens, int64_t cols, int64_t stride);
  void Set(const float* x, int64_t tokens, int64_t cols) { Set(x, tokens, cols, cols); }

  [[nodiscard]] int64_t tokens() const { return tokens_; }
  [[nodiscard]] int64_t cols() const { return cols_; }
  [[nodiscard]] int64_t stride() const { return stride_; }
  [[nodiscard]] const float* data() const { return x_; }
  [[nodiscard]] QuantizedRows& quantized() { return *quantized_; }

 private:
  const float* x_ = nullptr;
  int64_t tokens_ = 0, cols_ = 0, stride_ = 0;
  std::unique_ptr<QuantizedRows> quantized_;
};

struct RowRange {
  int64_t begin = 0, end = 0;
};

/// One product. Several jobs of one call may share inputs, and run in one parallel region.
struct MatMulJob {
  const LinearWeight* weight = nullptr;
  Activations* input = nullptr;  // weight->cols() columns
  float* out = nullptr;          // out[i * out_stride + r] for the i-th token and weight row r
  int64_t out_stride = 0;
  std::span<const int32_t> tokens;  // rows of `input` to use, in this order (experts); empty = all
  RowRange rows;                    // weight rows to compute, others are not written; {0, 0} = all
  // Groups of 32 columns that take part, ascending; empty = all. The others are neither read nor multiplied, whatever
  // the input has there. The matrix CanSkipGroups; no other job of the call may read the same input.
  std::span<const int32_t> groups = {};
};

/// Whether a product can leave out groups of columns: all encodings of integers in fast mode (but q4_block whose
/// groups straddle rows), f32, f16 and bf16 in both. In exact mode the other encodings are decoded row by row.
[[nodiscard]] bool CanSkipGroups(const LinearWeight& weight, ComputeMode mode);

/// Computes every job; outputs must not overlap inputs or each other. Exactly zero activations may skip work.
/// Non-finite activations make their whole output row non-finite. Asserts on mismatched sizes (our mistake).
void MatMul(KernelContext& context, std::span<const MatMulJob> jobs, ComputeMode mode);

/// join(begin, n, results): makes columns [begin, begin + n) of one token's next input, in place of results[0][0 .. n),
/// from those of every job. Called by many threads.
using JoinFn = std::function<void(int64_t begin, int64_t n, float* const* results)>;

/// One or two products of one input, all rows of them and as many in each, whose results `join` makes the input of
/// another one, column by column. They stay in the cache of the thread that computed them, however many tokens there
/// are: `into` [tokens, rows] gets the int8 form that `next` wants. Where `next` reads floats, or is null (others do),
/// it gets `floats` [tokens, rows]. The jobs' outputs are not used.
void MatMulInto(KernelContext& context, std::span<const MatMulJob> jobs, ComputeMode mode, const JoinFn& join,
                const LinearWeight* next, float* floats, Activations& into);

}  // namespace cmforge
