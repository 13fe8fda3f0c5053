// Grouped-query attention over a cache that holds keys and values of every attention layer: keys of the i-th
// one in row i, values in row n + i, position p at [:, :, p, :].
#include <cmath>

#include "coreml/graphs/pass.h"

namespace cmforge::coreml {
namespace {

mil::Value At(int64_t index) { return mil::Int32s({static_cast<int32_t>(index)}); }

/// Rotates the first dims of every head, as many as the tables have, and passes the others through.
Var RotateHeads(Pass& pass, const Var& x) {
  Graph& g = pass.g;
  if (!g.ok()) return {};
  const int64_t dims = x.type.shape[3], rotated = pass.rotation.cosines.type.shape[3];
  if (rotated == dims) return g.Rotate(x, pass.rotation);
  const Var turned = g.Rotate(g.Slice(x, 3, 0, rotated), pass.rotation);
  return g.Concat({turned, g.Slice(x, 3, rotated, dims)}, 3);
}

/// Writes [1, kv heads, T, D] into one row of the cache.
void Store(Pass& pass, const Var& update, int64_t row) {
  Graph& g = pass.g;
  const Var zero = g.Const(At(0));
  const Var begin = g.Concat({g.Const(At(row)), zero, pass.current_pos, zero}, 0);
  const Var end = g.Concat({g.Const(At(row + 1)), zero, pass.end_pos, zero}, 0);
  pass.UpdateState(kKvState, update, begin, end, {false, true, false, true});
}

/// Rows of a projection that packs each head's query and gate behind each other: part 0 or 1.
std::function<Result<WeightRows>()> HalfOfHeads(const Graph& g, const std::string& name, int64_t heads,
                                                int64_t dim, int64_t part, float scale) {
  return [&g, name, heads, dim, part, scale]() -> Result<WeightRows> {
    CMF_TRY(WeightRows rows, g.Rows(name));
    if (rows.rows != 2 * heads * dim) {
      return Fail(ErrorKind::kCorrupt, fmt::format("{}: tensor '{}': {} rows, {} are wanted",
                                                   g.source().path(), name, rows.rows, 2 * heads * dim));
    }
    std::vector<RowRange> ranges;
    for (int64_t h = 0; h < heads; ++h) ranges.push_back({(2 * h + part) * dim, (2 * h + part + 1) * dim});
    return ScaleRows(SelectRows(std::move(rows), std::move(ranges)), scale);
  };
}

/// One half of that projection as an operator.
Var HalfLinear(Pass& pass, const Var& h, const std::string& projection, const std::string& half, int64_t part,
               float scale) {
  Graph& g = pass.g;
  const ModelConfig& c = pass.plan.config;
  const int64_t heads = c.num_attention_heads, dim = c.head_dim;
  std::optional<Var> bias;
  if (g.source().Find(projection + ".bias")) {
    bias = g.Weight(half + ".bias", {heads * dim},
                    HalfOfHeads(g, projection + ".bias", heads, dim, part, scale));
  }
  return g.Conv(
      h,
      g.Weight(half + ".weight", {heads * dim, c.hidden_size, 1, 1},
               HalfOfHeads(g, projection + ".weight", heads, dim, part, scale), WeightRole::kMatrix),
      bias);
}

}  // namespace

Var Attention(Pass& pass, const std::string& name, const PlannedLayer& layer, const Var& h) {
  Graph& g = pass.g;
  const ModelConfig& c = pass.plan.config;
  const int64_t heads = c.num_attention_heads, kv_heads = c.num_kv_heads, dim = c.head_dim;
  const std::string prefix = name + "self_attn.";
  const auto project = [&](const char* which, int64_t n) {
    return g.ToHeads(g.Linear(h, prefix + which, n * dim, c.hidden_size), n, dim);
  };
  Var q = layer.has_gate
              ? g.ToHeads(HalfLinear(pass, h, prefix + "q_proj", prefix + "q_proj_query", 0, 1), heads, dim)
              : project("q_proj", heads);
  Var k = project("k_proj", kv_heads);
  const Var v = project("v_proj", kv_heads);
  if (layer.has_qk_norm) {
    q = pass.Norm(q, dim, prefix + "q_norm.weight");
    k = pass.Norm(k, dim, prefix + "k_norm.weight");
  }
  q = RotateHeads(pass, q);
  k = RotateHeads(pass, k);
  Store(pass, k, layer.slot);
  Store(pass, v, pass.plan.attention_layers + layer.slot);

  const Var cache = pass.State(kKvState);
  const Var keys = g.RepeatHeads(g.Row(cache, layer.slot), heads / kv_heads);
  const Var values = g.RepeatHeads(g.Row(cache, pass.plan.attention_layers + layer.slot), heads / kv_heads);
  const double scale = 1 / std::sqrt(c.query_pre_attn_scalar.value_or(static_cast<double>(dim)));
  const Var scores = g.Add(g.Scale(g.Matmul(q, keys, false, true), scale), pass.causal_mask);
  Var out = g.FromHeads(g.Matmul(g.Softmax(scores, -1), values));
  if (layer.has_gate) {
    // The halving of the sigmoid's argument lies in the weights: a constant factor behind a convolution would
    // be folded into them by compilers, and weights must stay as they were written.
    const Var half = HalfLinear(pass, h, prefix + "q_proj", prefix + "q_proj_gate", 1, 0.5f);
    out = g.Mul(out, g.SigmoidOfHalf(half));
  }
  return g.Linear(out, prefix + "o_proj", c.hidden_size, heads * dim);
}

}  // namespace cmforge::coreml
