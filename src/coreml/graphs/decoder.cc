// A chunk of decoder layers: two functions that differ in T alone, sharing weights and states.
#include "coreml/graphs/graphs.h"
#include "coreml/graphs/pass.h"

namespace cmforge::coreml {
namespace {

using mil::DataType;

Var Layer(Pass& pass, int64_t index, Var x) {
  Graph& g = pass.g;
  const ModelConfig& c = pass.plan.config;
  const PlannedLayer& layer = pass.plan.layers[static_cast<size_t>(index)];
  const std::string name = fmt::format("model.layers.{}.", index);
  const auto norm = [&](const char* which) {
    return g.ToChannels(pass.Norm(x, c.hidden_size, name + which));
  };
  const Var h = norm("input_layernorm.weight");
  const bool is_linear = layer.kind == LayerKind::kLinearAttention;
  x = g.Add(
      x, g.FromChannels(is_linear ? DeltaAttention(pass, name, layer, h) : Attention(pass, name, layer, h)));
  const Var m = norm("post_attention_layernorm.weight");
  return g.Add(x, g.FromChannels(layer.is_mixture ? Mixture(g, name + "mlp.", c.hidden_size, *c.moe, m)
                                                  : FeedForward(g, name + "mlp.", c.hidden_size, m)));
}

Result<mil::Function> ChunkFunction(const DecoderPlan& plan, int64_t chunk, int64_t tokens,
                                    WeightStore& weights) {
  const ModelConfig& c = plan.config;
  const LayerRange range = plan.chunks[static_cast<size_t>(chunk)];
  Graph g(weights);
  Pass pass(g, plan, tokens);
  Var x = g.Input("hidden_states", {DataType::kFloat16, {1, tokens, c.hidden_size}});
  pass.position_ids = g.Input("position_ids", {DataType::kInt32, {tokens}});
  pass.causal_mask =
      g.Input("causal_mask", {DataType::kFloat16, {1, 1, tokens, plan.options.context_length}});
  pass.current_pos = g.Input("current_pos", {DataType::kInt32, {1}});
  if (c.hidden_size_per_layer_input > 0) {
    pass.per_layer_inputs = g.Input(
        "per_layer_inputs", {DataType::kFloat16, {1, tokens, c.num_layers * c.hidden_size_per_layer_input}});
  }
  for (const PlannedState& state : plan.states) pass.AddState(state.name, state.shape);
  bool attends = false;
  for (int64_t i = range.begin; i < range.end; ++i)
    attends = attends || plan.layers[static_cast<size_t>(i)].kind == LayerKind::kFullAttention;
  const bool is_gemma = plan.family == Family::kGemma4;
  if (attends) {
    pass.end_pos = g.Add(pass.current_pos, mil::Int32(static_cast<int32_t>(tokens)));
    const bool has_own_dim = is_gemma && c.global_head_dim > 0;
    RopeConfig rope = c.rope;
    if (has_own_dim && rope.kind == RopeKind::kDefault && c.global_partial_rotary_factor < 1) {
      rope.kind = RopeKind::kProportional;  // as files say it that have no name for the kind
      rope.partial_rotary_factor = c.global_partial_rotary_factor;
    }
    CMF_TRY(pass.rotation,
            Rotations(pass, "rope", rope, has_own_dim ? c.global_head_dim : c.head_dim, is_gemma));
  }
  if (is_gemma) CMF_CHECK(PrepareGemma(pass, range.begin, range.end));
  for (int64_t i = range.begin; i < range.end; ++i) x = is_gemma ? GemmaLayer(pass, i, x) : Layer(pass, i, x);
  x = pass.TouchStates(x);
  if (range.end == static_cast<int64_t>(plan.layers.size())) {
    // Only the last token's state is wanted: the head takes it as it is.
    if (tokens > 1) x = g.Slice(x, 1, tokens - 1, tokens);
    x = pass.Norm(x, c.hidden_size, "model.norm.weight");
  }
  g.Output(x, "output_hidden_states");
  return g.Finish();
}

}  // namespace

Result<mil::Model> ChunkModel(const DecoderPlan& plan, int64_t chunk, WeightStore& weights) {
  mil::Model model;
  CMF_TRY(model.program.functions["infer"], ChunkFunction(plan, chunk, 1, weights));
  CMF_TRY(model.program.functions["prefill"], ChunkFunction(plan, chunk, plan.options.batch_size, weights));
  CMF_TRY(model.description, mil::DescribeProgram(model.program, "infer"));
  return model;
}

}  // namespace cmforge::coreml
