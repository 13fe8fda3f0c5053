// Gated feed-forward networks, whole or masked.
#include <algorithm>

#include "engine/pass.h"

namespace cmforge::engine {
namespace {

// From here on the floats between two products take more time than their tasks.
constexpr int64_t kManyRows = 8;
constexpr int64_t kGroup = 32;  // masked neurons are skipped in aligned groups of this many

/// Neurons to compute: runs of groups in which some item of the pass has a live neuron.
std::vector<RowRange> LiveRuns(const Pass& pass, int64_t visit, int64_t width) {
  const int64_t groups = (width + kGroup - 1) / kGroup;
  std::vector<uint8_t> is_live(static_cast<size_t>(groups));
  for (const RowSpan& span : pass.spans) {
    const uint8_t* bits = span.active == nullptr ? nullptr : MaskRow(span.active->ffn, pass.network, visit);
    if (bits == nullptr) return {{0, width}};
    for (const int32_t g : LiveColumnGroups(bits, 1, width)) is_live[static_cast<size_t>(g)] = 1;
  }
  std::vector<RowRange> runs;
  for (int64_t g = 0; g < groups; ++g) {
    if (is_live[static_cast<size_t>(g)] == 0) continue;
    const int64_t begin = g * kGroup, end = std::min(begin + kGroup, width);
    if (!runs.empty() && runs.back().end == begin) {
      runs.back().end = end;
    } else {
      runs.push_back({begin, end});
    }
  }
  return runs;
}

/// Neurons of the runs that are dead under a mask: zeroed one by one.
std::vector<int32_t> DeadNeurons(const uint8_t* bits, const std::vector<RowRange>& runs) {
  std::vector<int32_t> dead;
  if (bits == nullptr) return dead;
  for (const RowRange& run : runs) {
    for (int64_t i = run.begin; i < run.end; ++i) {
      if (i % 8 == 0 && bits[i / 8] == 0xFF) {
        i += 7;
      } else if (!HasBit(bits, i)) {
        dead.push_back(static_cast<int32_t>(i));
      }
    }
  }
  return dead;
}

void Activate(const Pass& pass, const float* gate, const float* up, int64_t n, float* out) {
  if (pass.network.config.hidden_act == Activation::kGeluTanh) {
    pass.kernels.gelu_mul(gate, up, n, out);
  } else {
    pass.kernels.silu_mul(gate, up, n, out);
  }
}

/// To neurons [begin, end), the first of which is at[0].
void AddBias(const std::vector<float>& bias, int64_t begin, int64_t end, float* at) {
  if (bias.empty()) return;
  for (int64_t i = begin; i < end; ++i) at[i - begin] += bias[static_cast<size_t>(i)];
}

/// Many tokens, all neurons: activations never leave the cache as floats.
void RunWhole(Pass& pass, const FeedForward& ffn, float* neurons, float* out) {
  Workspace& work = pass.work;
  work.jobs.clear();
  for (const Linear* linear : {&ffn.gate, &ffn.up}) {
    MatMulJob job;
    job.weight = &linear->weight;
    job.input = &work.input;
    work.jobs.push_back(job);
  }
  const auto join = [&](int64_t begin, int64_t n, float* const* results) {
    AddBias(ffn.gate.bias, begin, begin + n, results[0]);
    AddBias(ffn.up.bias, begin, begin + n, results[1]);
    Activate(pass, results[0], results[1], n, results[0]);
  };
  const bool is_observed = pass.observer != nullptr && pass.observer->wants_linear_inputs();
  MatMulInto(work.context, work.jobs, pass.mode, join, is_observed ? nullptr : &ffn.down.weight, neurons,
             work.inner);
  Multiply(pass, work.inner, {{&ffn.down, out}});
}

}  // namespace

void RunFeedForward(Pass& pass, const FeedForward& ffn, int64_t visit, const float* in, float* out) {
  Workspace& work = pass.work;
  const int64_t width = ffn.width();
  float* gate = work.ffn_gate.Get(pass.rows * width);
  work.input.Set(in, pass.rows, pass.hidden());
  Observe(pass, ffn.gate, work.input);
  Observe(pass, ffn.up, work.input);

  const bool is_masked = std::any_of(pass.spans.begin(), pass.spans.end(), [&](const RowSpan& span) {
    return span.active != nullptr && !span.active->ffn.empty() && visit < pass.network.visits();
  });
  if (!is_masked && pass.rows >= kManyRows) return RunWhole(pass, ffn, gate, out);
  float* up = work.ffn_up.Get(pass.rows * width);
  const auto runs = is_masked ? LiveRuns(pass, visit, width) : std::vector<RowRange>{{0, width}};
  work.jobs.clear();
  for (const RowRange& run : runs) {
    for (const auto& [linear, to] : {std::pair{&ffn.gate, gate}, {&ffn.up, up}}) {
      MatMulJob job;
      job.weight = &linear->weight;
      job.input = &work.input;
      job.out = to;
      job.out_stride = width;
      job.rows = run;
      work.jobs.push_back(job);
    }
  }
  if (!work.jobs.empty()) MatMul(work.context, work.jobs, pass.mode);

  for (const RowSpan& span : pass.spans) {
    const uint8_t* bits =
        is_masked && span.active != nullptr ? MaskRow(span.active->ffn, pass.network, visit) : nullptr;
    const std::vector<int32_t> dead = DeadNeurons(bits, runs);
    ForRange(pass, span.count, width * 2, [&](int64_t begin, int64_t end) {
      for (int64_t row = span.row + begin; row < span.row + end; ++row) {
        float *g = gate + row * width, *u = up + row * width;
        int64_t done = 0;
        for (const RowRange& run : runs) {
          std::fill(g + done, g + run.begin, 0.0f);
          AddBias(ffn.gate.bias, run.begin, run.end, g + run.begin);
          AddBias(ffn.up.bias, run.begin, run.end, u + run.begin);
          Activate(pass, g + run.begin, u + run.begin, run.end - run.begin, g + run.begin);
          done = run.end;
        }
        std::fill(g + done, g + width, 0.0f);
        for (const int32_t i : dead) g[i] = 0;
      }
    });
  }
  if (is_masked) {
    MultiplyLive(pass, ffn.down, visit, &ActiveSet::ffn, 1, gate, out);
    return;
  }
  work.inner.Set(gate, pass.rows, width);
  Multiply(pass, work.inner, {{&ffn.down, out}});
}

}  // namespace cmforge::engine
