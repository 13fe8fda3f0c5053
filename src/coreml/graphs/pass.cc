// States of a function being built.
#include "coreml/graphs/pass.h"

namespace cmforge::coreml {

void Pass::AddState(const std::string& name, const Shape& shape) {
  Entry entry;
  entry.state = g.State(name, {mil::DataType::kFloat16, shape});
  entry.value = g.Read(entry.state);
  states_[name] = entry;
}

const Var& Pass::State(std::string_view name) {
  Entry& entry = states_.find(name)->second;
  entry.is_used = true;
  return entry.value;
}

void Pass::UpdateState(std::string_view name, const Var& update, const Arg& begin, const Arg& end,
                       const std::vector<bool>& to_the_end) {
  Entry& entry = states_.find(name)->second;
  entry.is_used = true;
  const std::vector<bool> none(to_the_end.size(), false);
  const Var changed = g.Op("slice_update", {{"x", entry.value},
                                            {"update", update},
                                            {"begin", begin},
                                            {"end", end},
                                            {"stride", std::vector<int32_t>(to_the_end.size(), 1)},
                                            {"begin_mask", none},
                                            {"end_mask", to_the_end},
                                            {"squeeze_mask", none}});
  g.Write(entry.state, changed);
  entry.value = g.Read(entry.state);
}

Var Pass::Norm(const Var& x, int64_t width, const std::string& weight) {
  const double eps = plan.config.rms_norm_eps;
  if (plan.norm_offset() != 0) return g.FineRmsNorm(x, width, eps, weight, plan.norm_offset());
  return g.RmsNorm(x, width, eps, g.Tensor(weight, {width}));
}

Var Pass::TouchStates(Var x) {
  for (auto& [name, entry] : states_) {
    if (entry.is_used || !g.ok()) continue;
    const size_t rank = entry.value.type.shape.size();
    const Var one = g.Op("slice_by_index", {{"x", entry.value},
                                            {"begin", std::vector<int32_t>(rank, 0)},
                                            {"end", std::vector<int32_t>(rank, 1)}});
    x = g.Add(x, g.Scale(g.Reshape(one, {1, 1, 1}), 0));
  }
  return x;
}

}  // namespace cmforge::coreml
