// A mixture of experts evaluated densely: three wide projections hold all experts, and the router's weights,
// zero for all but the best, scale each expert's hidden state. No operation sorts or branches.
#include "coreml/graphs/pass.h"

namespace cmforge::coreml {
namespace {

/// The same projection of all experts.
Result<std::vector<WeightRows>> OfExperts(const Graph& g, const std::string& name, const MoeConfig& moe,
                                          const char* which) {
  std::vector<WeightRows> parts;
  for (int64_t e = 0; e < moe.num_experts; ++e) {
    CMF_TRY(WeightRows rows, g.Rows(fmt::format("{}experts.{}.{}.weight", name, e, which)));
    parts.push_back(std::move(rows));
  }
  return parts;
}

/// [1, E, 1, T]: softmax over all experts, kept for the best k, renormalized where the model does so.
Var Route(Graph& g, const std::string& name, int64_t hidden, const MoeConfig& moe, const Var& h) {
  // A router in fewer bits would choose other experts.
  const Var p = g.Softmax(g.Linear(h, name + "gate", moe.num_experts, hidden, WeightRole::kPlain), 1);
  // The k-th largest, by taking the largest away k - 1 times.
  Var rest = p;
  for (int64_t i = 1; i < moe.top_k; ++i) {
    const Var best = g.Op("greater_equal", {{"x", rest}, {"y", g.Reduce("reduce_max", rest, 1)}});
    rest = g.Select(best, Graph::Number(-1), rest);
  }
  const Var is_kept = g.Op("greater_equal", {{"x", p}, {"y", g.Reduce("reduce_max", rest, 1)}});
  Var kept = g.Mul(p, g.Op("cast", {{"x", is_kept}, {"dtype", "fp16"}}));
  if (!moe.norm_topk_prob) return kept;
  return g.Op("real_div", {{"x", kept}, {"y", g.Reduce("reduce_sum", kept, 1)}});
}

}  // namespace

Var Mixture(Graph& g, const std::string& name, int64_t hidden, const MoeConfig& moe, const Var& h) {
  if (!g.ok()) return {};
  const int64_t experts = moe.num_experts, width = moe.intermediate_size, all = experts * width;
  const int64_t tokens = h.type.shape[3];
  const Var weights = Route(g, name, hidden, moe, h);
  const auto wide = [&](const char* which) {
    const auto rows = [&]() -> Result<WeightRows> {
      CMF_TRY(auto parts, OfExperts(g, name, moe, which));
      return StackRows(std::move(parts));
    };
    return g.Conv(h, g.Weight(fmt::format("{}experts.{}.weight", name, which), {all, hidden, 1, 1}, rows,
                              WeightRole::kMatrix));
  };
  const Var gate = wide("gate_proj"), up = wide("up_proj");
  const Var inner = g.Reshape(g.Mul(g.Silu(gate), up), {1, experts, width, tokens});
  const Var weighted = g.Reshape(g.Mul(inner, weights), {1, all, 1, tokens});
  const auto joined = [&]() -> Result<WeightRows> {
    CMF_TRY(auto parts, OfExperts(g, name, moe, "down_proj"));
    return JoinColumns(std::move(parts));
  };
  const Var down =
      g.Weight(name + "experts.down_proj.weight", {hidden, all, 1, 1}, joined, WeightRole::kMatrix);
  Var out = g.Conv(weighted, down);
  if (moe.shared_expert_intermediate_size > 0) {
    Var shared = FeedForward(g, name + "shared_expert.", hidden, h);
    if (g.source().Find(name + "shared_expert_gate.weight")) {
      // The sigmoid's halving lies in the weights, see Attention.
      const Var half = g.Conv(h, g.Tensor(name + "shared_expert_gate.weight", {1, hidden, 1, 1}, 0.5f));
      shared = g.Mul(shared, g.SigmoidOfHalf(half));
    }
    out = g.Add(out, shared);
  }
  return out;
}

}  // namespace cmforge::coreml
