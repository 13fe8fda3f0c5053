// One pass of a chunk of rows through the network: what every operator needs to know and the scratch memory
// it works in. Rows of several sequences lie one after another; a span is one sequence's part of them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "engine/network.h"
#include "engine/profile.h"
#include "engine/sequence.h"
#include "kernels/elementwise.h"
#include "kernels/kernels.h"
#include "model/language_model.h"

namespace cmforge::engine {

/// Floats that grow and are never given back; contents undefined.
class Buffer {
 public:
  float* Get(int64_t count) {
    if (count > capacity_) {
      capacity_ = count + count / 4;
      data_.reset(new (std::align_val_t{64}) float[static_cast<size_t>(capacity_)]);
    }
    return data_.get();
  }

 private:
  struct Free {
    void operator()(float* p) const { ::operator delete[](p, std::align_val_t{64}); }
  };
  std::unique_ptr<float[], Free> data_;
  int64_t capacity_ = 0;
};

/// Scratch of one stepping thread, reused between steps.
struct Workspace {
  Workspace(ThreadPool& pool, Isa isa) : context(pool, isa) {}

  KernelContext context;
  Activations input, inner;  // of the operator being computed
  Buffer stream, normed, branch, final_rows;
  Buffer q, k, v, gate, attended, attend_parts;
  Buffer ffn_gate, ffn_up, ffn_out;
  Buffer router, expert_gate, expert_up, expert_out, shared_gate;
  Buffer conv_in, conv_out, delta_out, mix_a, mix_b;
  Buffer per_layer, per_layer_row;
  std::vector<Buffer> cosines, sines;  // per rope
  std::vector<MatMulJob> jobs;
};

/// Consecutive tokens of one sequence within the pass.
struct RowSpan {
  int item = 0;  // of the step's batch
  EngineSequence* sequence = nullptr;
  const ActiveSet* active = nullptr;
  const TokenId* tokens = nullptr;
  int64_t row = 0, count = 0;  // rows [row, row + count) of the pass
  int64_t position = 0;        // of the first
  bool is_on = true;           // the layer being computed takes part (layer gates)
};

struct Pass {
  const Network& network;
  const FloatKernels& kernels;
  ComputeMode mode;
  Workspace& work;
  StepObserver* observer = nullptr;
  std::vector<RowSpan> spans;
  int64_t rows = 0;
  Profile* profile = nullptr;  // or none

  [[nodiscard]] ThreadPool& pool() const { return work.context.pool(); }
  [[nodiscard]] int64_t hidden() const { return network.config.hidden_size; }
};

/// fn(begin, end) over [0, count), cut between threads when count * cost (about floats touched) is worth it.
template <class Fn>
void ForRange(Pass& pass, int64_t count, int64_t cost, Fn&& fn) {
  constexpr int64_t kWorthwhile = 1 << 15;
  if (count <= 1 || count * cost < kWorthwhile) {
    if (count > 0) fn(int64_t{0}, count);
    return;
  }
  pass.pool().ForRanges(count, 1, fn);
}

/// A product to be computed by Multiply: out[row, 0 .. weight rows).
struct Product {
  const Linear* linear = nullptr;
  float* out = nullptr;
};

/// All products of one input, in one parallel region; biases added.
void Multiply(Pass& pass, Activations& input, std::span<const Product> products);
void Multiply(Pass& pass, Activations& input, std::initializer_list<Product> products);

/// Tells the observer what an operator reads.
void Observe(Pass& pass, const Linear& linear, const Activations& input);
/// The same where only those rows of `input` reach the operator.
void Observe(Pass& pass, const Linear& linear, const Activations& input, std::span<const int32_t> rows);

/// out[row] = rms_norm(in[row]) * weight.
void NormRows(Pass& pass, const float* in, const NormWeight& weight, int64_t rows, float* out);

/// Cosines and sines of every row of the pass, for every rope of the network.
void PrepareAngles(Pass& pass);

// Operators: `in` [rows, hidden] already normed, `out` [rows, hidden]. Spans that are off are left undefined.
void RunAttention(Pass& pass, const Attention& attention, int64_t visit, const float* in, float* out);
void RunDeltaNet(Pass& pass, const DeltaNet& net, int64_t visit, const float* in, float* out);
void RunShortConv(Pass& pass, const ShortConv& conv, int64_t visit, const float* in, float* out);
void RunFeedForward(Pass& pass, const FeedForward& ffn, int64_t visit, const float* in, float* out);
void RunMixture(Pass& pass, const Mixture& moe, int64_t visit, const float* in, float* out);

// One layer on the stream x [rows, hidden], in place: the mixer, then all that no other row has a part in.
/// False: no row takes part in the layer.
[[nodiscard]] bool RunMixer(Pass& pass, const Layer& layer, int64_t visit, float* x);
void RunAfterMixer(Pass& pass, const Layer& layer, int64_t visit, float* x);

// Masks. Rows of a mask are layers, or visits where there are as many.
[[nodiscard]] const uint8_t* MaskRow(const std::vector<std::vector<uint8_t>>& rows, const Network& network,
                                     int64_t visit);
[[nodiscard]] inline bool HasBit(const uint8_t* bits, int64_t index) {
  return (bits[index / 8] >> (index % 8)) & 1;
}
using MaskRows = std::vector<std::vector<uint8_t>> ActiveSet::*;

/// Groups of 32 columns with a live one, ascending; each bit stands for `unit` columns.
[[nodiscard]] std::vector<int32_t> LiveColumnGroups(const uint8_t* bits, int64_t unit, int64_t columns);

/// out = linear(in), bias added, where the masks' `field` says which columns of `in` can be other than 0, `unit`
/// columns a bit. Dead groups of 32 columns are neither read nor multiplied.
void MultiplyLive(Pass& pass, const Linear& linear, int64_t visit, MaskRows field, int64_t unit,
                  const float* in, float* out);

[[nodiscard]] bool IsLayerOn(const ActiveSet* active, const Network& network, int64_t visit);

}  // namespace cmforge::engine
