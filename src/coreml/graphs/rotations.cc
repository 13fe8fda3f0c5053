// Rotary embedding: cosines and sines of the positions at hand, looked up in tables of all of them.
#include <optional>

#include "coreml/graphs/half_factors.h"
#include "coreml/graphs/pass.h"
#include "kernels/rope.h"

namespace cmforge::coreml {
namespace {

struct Tables {
  std::vector<float> cosines, sines, factors;  // [positions, 2 * half]: both halves of a pair turn alike
};

Tables MakeTables(const RopeFrequencies& rope, int64_t context, bool is_fine) {
  const auto half = static_cast<size_t>(rope.half()), count = static_cast<size_t>(context) * 2 * half;
  Tables out{std::vector<float>(count), std::vector<float>(count), std::vector<float>(count, 1)};
  std::vector<float> cosines(half), sines(half);
  for (int64_t p = 0; p < context; ++p) {
    rope.Angles(p, cosines.data(), sines.data());
    for (size_t i = 0; i < half; ++i) {
      HalfFactorsOfPair pair{1, cosines[i], sines[i]};
      if (is_fine) pair = PairInHalves(static_cast<double>(cosines[i]), static_cast<double>(sines[i]));
      const size_t first = static_cast<size_t>(p) * 2 * half + i, second = first + half;
      out.cosines[first] = out.cosines[second] = pair.first;
      out.sines[first] = is_fine ? -pair.second : pair.second;
      out.sines[second] = pair.second;
      out.factors[first] = out.factors[second] = pair.near_one;
    }
  }
  return out;
}

}  // namespace

Result<Rotation> Rotations(Pass& pass, const std::string& name, const RopeConfig& config, int64_t head_dim,
                           bool is_fine) {
  const int64_t context = pass.plan.options.context_length;
  Graph& g = pass.g;
  CMF_TRY(const RopeFrequencies rope,
          RopeFrequencies::Make(config, head_dim, pass.plan.config.max_position_embeddings, context));
  std::optional<Tables> tables;  // made when one of them is wanted
  const auto look_up = [&](const char* table_name, std::vector<float> Tables::*which) {
    const Var table = g.Weight(name + table_name, {context, 2 * rope.half()}, [&]() -> Result<WeightRows> {
      if (!tables) tables = MakeTables(rope, context, is_fine);
      return ComputedRows(context, 2 * rope.half(), (*tables).*which);
    });
    return g.Expand(g.Gather(table, pass.position_ids), {0, 1});
  };
  Rotation rotation;
  rotation.cosines = look_up("_cosines", &Tables::cosines);
  rotation.sines = look_up("_sines", &Tables::sines);
  if (is_fine) rotation.factors = look_up("_factors", &Tables::factors);
  return rotation;
}

}  // namespace cmforge::coreml
