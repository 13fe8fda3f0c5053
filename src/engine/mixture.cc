// Mixture of experts: each row chooses its experts, rows are grouped by expert, and only chosen experts'
// weights are touched.
#include <algorithm>
#include <limits>
#include <numeric>

#include "engine/pass.h"

namespace cmforge::engine {
namespace {

/// Experts of every row, [rows][top_k], with their weights; expert -1 where a mask leaves fewer than top_k.
struct Routes {
  std::vector<int32_t> experts;
  std::vector<float> weights;
};

/// One row's choice. Scores are probabilities over the routable experts; the bias only ranks.
void Route(const Pass& pass, const Mixture& moe, float* logits, const uint8_t* routable,
           std::vector<int32_t>& order, int32_t* experts, float* weights) {
  const auto count = static_cast<int64_t>(moe.experts.size());
  order.clear();
  for (int32_t e = 0; e < count; ++e) {
    if (routable == nullptr || HasBit(routable, e)) order.push_back(e);
  }
  if (moe.softcap > 0) pass.kernels.softcap(logits, moe.softcap, count, logits);
  if (moe.is_sigmoid) {
    pass.kernels.sigmoid(logits, count, logits);
  } else {
    float top = -std::numeric_limits<float>::infinity();
    for (const int32_t e : order) top = std::max(top, logits[e]);
    for (int64_t e = 0; e < count; ++e) logits[e] -= top;
    pass.kernels.exp(logits, count, logits);
    double sum = 0;
    for (const int32_t e : order) sum += static_cast<double>(logits[e]);
    for (int64_t e = 0; e < count; ++e) logits[e] = static_cast<float>(static_cast<double>(logits[e]) / sum);
  }
  const auto rank = [&](int32_t e) {
    return logits[e] + (moe.bias.empty() ? 0.0f : moe.bias[static_cast<size_t>(e)]);
  };
  const auto chosen = static_cast<size_t>(std::min<int64_t>(moe.top_k, static_cast<int64_t>(order.size())));
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(chosen), order.end(),
                    [&](int32_t a, int32_t b) { return rank(a) != rank(b) ? rank(a) > rank(b) : a < b; });
  double sum = 0;
  for (size_t i = 0; i < chosen; ++i) sum += static_cast<double>(logits[order[i]]);
  const double factor = static_cast<double>(moe.scaling) / (moe.renormalizes && sum > 0 ? sum : 1.0);
  for (size_t i = 0; i < static_cast<size_t>(moe.top_k); ++i) {
    experts[i] = i < chosen ? order[i] : -1;
    weights[i] = i < chosen ? static_cast<float>(static_cast<double>(logits[order[i]]) * factor) : 0.0f;
  }
}

Routes ChooseExperts(Pass& pass, const Mixture& moe, int64_t visit) {
  const ProfileScope scope(pass.profile, Operator::kRouter);
  const auto count = static_cast<int64_t>(moe.experts.size());
  float* logits = pass.work.router.Get(pass.rows * count);
  // The router decides; it is small and never rounds its input.
  MatMulJob job;
  job.weight = &moe.router.weight;
  job.input = &pass.work.input;
  job.out = logits;
  job.out_stride = count;
  Observe(pass, moe.router, pass.work.input);
  MatMul(pass.work.context, std::span(&job, 1), ComputeMode::kExact);
  Routes routes;
  routes.experts.resize(static_cast<size_t>(pass.rows * moe.top_k));
  routes.weights.resize(routes.experts.size());
  std::vector<int32_t> order;
  for (const RowSpan& span : pass.spans) {
    const uint8_t* routable = span.active == nullptr || visit >= pass.network.visits()
                                  ? nullptr
                                  : MaskRow(span.active->experts, pass.network, visit);
    for (int64_t row = span.row; row < span.row + span.count; ++row) {
      if (!span.is_on) {
        std::fill_n(routes.experts.begin() + row * moe.top_k, moe.top_k, -1);
        continue;
      }
      Route(pass, moe, logits + row * count, routable, order,
            &routes.experts[static_cast<size_t>(row * moe.top_k)],
            &routes.weights[static_cast<size_t>(row * moe.top_k)]);
    }
  }
  if (pass.observer != nullptr) {
    for (const RowSpan& span : pass.spans) {
      for (int64_t row = span.row; span.is_on && row < span.row + span.count; ++row) {
        const auto at = static_cast<size_t>(row * moe.top_k), n = static_cast<size_t>(moe.top_k);
        pass.observer->OnRoute(static_cast<int>(visit), span.item, std::span(routes.experts).subspan(at, n),
                               std::span(routes.weights).subspan(at, n));
      }
    }
  }
  return routes;
}

}  // namespace

void RunMixture(Pass& pass, const Mixture& moe, int64_t visit, const float* in, float* out) {
  Workspace& work = pass.work;
  const int64_t hidden = pass.hidden(), width = moe.experts.front().width();
  work.input.Set(in, pass.rows, hidden);
  const Routes routes = ChooseExperts(pass, moe, visit);

  // Slots: the chosen (row, expert) pairs, sorted by expert and then by row.
  const size_t experts = moe.experts.size();
  std::vector<int64_t> begin(experts + 1);
  for (const int32_t e : routes.experts) {
    if (e >= 0) ++begin[static_cast<size_t>(e) + 1];
  }
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  const int64_t slots = begin.back();
  std::vector<int32_t> slot_row(static_cast<size_t>(slots)), slot_index(slot_row.size());
  std::vector<int64_t> slot_of(routes.experts.size(), -1), next(begin.begin(), begin.end() - 1);
  for (size_t i = 0; i < routes.experts.size(); ++i) {
    if (routes.experts[i] < 0) continue;
    const int64_t slot = next[static_cast<size_t>(routes.experts[i])]++;
    slot_of[i] = slot;
    slot_row[static_cast<size_t>(slot)] = static_cast<int32_t>(static_cast<int64_t>(i) / moe.top_k);
    slot_index[static_cast<size_t>(slot)] = static_cast<int32_t>(slot);
  }

  float* gate = work.expert_gate.Get(slots * width);
  float* up = work.expert_up.Get(slots * width);
  float* down = work.expert_out.Get(slots * hidden);
  work.jobs.clear();
  const auto add_job = [&](const Linear& linear, Activations& input, const std::vector<int32_t>& rows,
                           size_t e, float* to) {
    MatMulJob job;
    job.weight = &linear.weight;
    job.input = &input;
    job.out = to + begin[e] * linear.rows();
    job.out_stride = linear.rows();
    job.tokens =
        std::span(rows).subspan(static_cast<size_t>(begin[e]), static_cast<size_t>(begin[e + 1] - begin[e]));
    Observe(pass, linear, input, job.tokens);
    work.jobs.push_back(job);
  };
  for (size_t e = 0; e < experts; ++e) {
    if (begin[e] == begin[e + 1]) continue;
    add_job(moe.experts[e].gate, work.input, slot_row, e, gate);
    add_job(moe.experts[e].up, work.input, slot_row, e, up);
  }
  if (!work.jobs.empty()) MatMul(work.context, work.jobs, pass.mode);
  ForRange(pass, slots, width * 2, [&](int64_t first, int64_t last) {
    for (int64_t slot = first; slot < last; ++slot) {
      float* at = gate + slot * width;
      if (pass.network.config.hidden_act == Activation::kGeluTanh) {
        pass.kernels.gelu_mul(at, up + slot * width, width, at);
      } else {
        pass.kernels.silu_mul(at, up + slot * width, width, at);
      }
    }
  });
  if (slots > 0) {
    work.inner.Set(gate, slots, width);
    work.jobs.clear();
    for (size_t e = 0; e < experts; ++e) {
      if (begin[e] != begin[e + 1]) add_job(moe.experts[e].down, work.inner, slot_index, e, down);
    }
    MatMul(work.context, work.jobs, pass.mode);
  }

  const float* shared_gate = nullptr;
  if (moe.shared) {
    const ProfileScope scope(pass.profile, Operator::kSharedExpert);
    RunFeedForward(pass, *moe.shared, pass.network.visits(), in, out);  // no neuron mask reaches it
    if (moe.shared_gate) {
      float* factor = work.shared_gate.Get(pass.rows);
      work.input.Set(in, pass.rows, hidden);
      Multiply(pass, work.input, {{&*moe.shared_gate, factor}});
      pass.kernels.sigmoid(factor, pass.rows, factor);
      shared_gate = factor;
    }
  }
  ForRange(pass, pass.rows, hidden * (moe.top_k + 2), [&](int64_t first, int64_t last) {
    std::vector<float> sum(static_cast<size_t>(hidden));
    for (int64_t row = first; row < last; ++row) {
      // Routed experts in the order of their rank, then the shared one.
      std::fill(sum.begin(), sum.end(), 0.0f);
      for (int64_t j = 0; j < moe.top_k; ++j) {
        const auto i = static_cast<size_t>(row * moe.top_k + j);
        if (slot_of[i] < 0) continue;
        pass.kernels.add_scaled(down + slot_of[i] * hidden, routes.weights[i], hidden, sum.data());
      }
      float* to = out + row * hidden;
      if (moe.shared) {
        pass.kernels.add_scaled(to, shared_gate != nullptr ? shared_gate[row] : 1.0f, hidden, sum.data());
      }
      std::copy(sum.begin(), sum.end(), to);
    }
  });
}

}  // namespace cmforge::engine
