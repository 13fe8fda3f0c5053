// The gated MLP: down(act(gate h) * up h). Its width is that of the tensors.
#include "coreml/graphs/pass.h"

namespace cmforge::coreml {

Var FeedForward(Graph& g, const std::string& name, int64_t hidden, const Var& h, Activation activation) {
  const std::string gate_name = name + "gate_proj";
  const TensorInfo* info = g.source().Find(gate_name + ".weight");
  const int64_t width = info && !info->shape.empty() ? info->shape[0] : 0;
  const Var gate = g.Linear(h, gate_name, width, hidden);
  const Var up = g.Linear(h, name + "up_proj", width, hidden);
  const Var active = activation == Activation::kSilu ? g.Silu(gate) : g.GeluTanh(gate);
  return g.Linear(g.Mul(active, up), name + "down_proj", hidden, width);
}

}  // namespace cmforge::coreml
