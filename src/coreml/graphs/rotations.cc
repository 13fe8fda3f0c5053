// Rotary embedding: cosines and sines of the positions at hand, looked up in tables of all of them.
#include "coreml/graphs/pass.h"
#include "kernels/rope.h"

namespace cmforge::coreml {

Result<Rotation> Rotations(Pass& pass, const std::string& name, const RopeConfig& config, int64_t head_dim) {
  const int64_t context = pass.plan.options.context_length;
  Graph& g = pass.g;
  CMF_TRY(const RopeFrequencies rope,
          RopeFrequencies::Make(config, head_dim, pass.plan.config.max_position_embeddings, context));
  const int64_t half = rope.half();
  const auto look_up = [&](bool is_sine) {
    const std::string table_name = name + (is_sine ? "_sines" : "_cosines");
    const Var table = g.Weight(table_name, {context, 2 * half}, [&]() -> Result<WeightRows> {
      std::vector<float> values(static_cast<size_t>(context * 2 * half));
      std::vector<float> cosines(static_cast<size_t>(half)), sines(static_cast<size_t>(half));
      for (int64_t p = 0; p < context; ++p) {
        rope.Angles(p, cosines.data(), sines.data());
        const std::vector<float>& row = is_sine ? sines : cosines;
        std::copy(row.begin(), row.end(), values.begin() + p * 2 * half);  // both halves of a pair turn alike
        std::copy(row.begin(), row.end(), values.begin() + p * 2 * half + half);
      }
      return ComputedRows(context, 2 * half, std::move(values));
    });
    return g.Expand(g.Gather(table, pass.position_ids), {0, 1});
  };
  Rotation rotation;
  rotation.cosines = look_up(false);
  rotation.sines = look_up(true);
  return rotation;
}

}  // namespace cmforge::coreml
