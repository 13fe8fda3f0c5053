// What lies around the decoder: the embedding lookup and the head.
#include <cmath>

#include "coreml/graphs/graph.h"
#include "coreml/graphs/graphs.h"

namespace cmforge::coreml {
namespace {

Result<mil::Model> OneFunction(Graph& g) {
  mil::Model model;
  CMF_TRY(model.program.functions["main"], g.Finish());
  CMF_TRY(model.description, mil::DescribeProgram(model.program));
  return model;
}

/// Gemma's embeddings of every layer, [1, T, layers * width]: a table's row and a projection of the token's
/// embedding, normed per layer.
Var PerLayerInputs(Graph& g, const ModelConfig& c, const Var& ids, const Var& hidden) {
  const int64_t width = c.hidden_size_per_layer_input, all = c.num_layers * width;
  const Var rows =
      g.Gather(g.Tensor("model.embed_tokens_per_layer.weight", {c.vocab_size_per_layer_input, all},
                        std::sqrt(static_cast<float>(width)), 0, WeightRole::kLookup),
               ids);
  const Var projected = g.Scale(
      g.FromChannels(g.Linear(g.ToChannels(hidden), "model.per_layer_model_projection", all, c.hidden_size)),
      1 / std::sqrt(static_cast<double>(c.hidden_size)));
  const Var by_layer = g.Reshape(projected, {1, -1, c.num_layers, width});
  const Var normed =
      g.RmsNorm(by_layer, width, c.rms_norm_eps, g.Tensor("model.per_layer_projection_norm.weight", {width}));
  return g.Scale(g.Add(g.Reshape(normed, {1, -1, all}), rows), std::sqrt(0.5));
}

}  // namespace

Result<mil::Model> EmbeddingsModel(const DecoderPlan& plan, WeightStore& weights) {
  const ModelConfig& c = plan.config;
  const int64_t batch = plan.options.batch_size;
  Graph g(weights);
  const Var ids = g.Input("input_ids", {mil::DataType::kInt32, {1, batch == 1 ? 1 : mil::kUnknownDim}});
  const Var table = g.Tensor("model.embed_tokens.weight", {c.vocab_size, c.hidden_size},
                             static_cast<float>(c.embed_multiplier), 0, WeightRole::kLookup);
  const Var hidden = g.Gather(table, ids);
  const bool has_more = c.hidden_size_per_layer_input > 0;
  const Var more = has_more ? PerLayerInputs(g, c, ids, hidden) : Var{};
  g.Output(hidden, "hidden_states");
  if (has_more) g.Output(more, "per_layer_inputs");
  CMF_TRY(mil::Model model, OneFunction(g));
  if (batch > 1) {
    auto& feature = std::get<mil::ArrayFeature>(model.description.inputs[0].type);
    feature.shape = {1, 1};
    feature.enumerated_shapes = {{1, 1}, {1, batch}};
  }
  return model;
}

Result<mil::Model> HeadModel(const DecoderPlan& plan, WeightStore& weights) {
  const ModelConfig& c = plan.config;
  Graph g(weights);
  const Var h = g.ToChannels(g.Input("hidden_states", {mil::DataType::kFloat16, {1, 1, c.hidden_size}}));
  const std::string table =
      g.source().Find("lm_head.weight") ? "lm_head.weight" : "model.embed_tokens.weight";
  int64_t begin = 0;
  for (size_t i = 0; i < plan.head_parts.size(); ++i) {
    const int64_t rows = plan.head_parts[i];
    const auto part = [&]() -> Result<WeightRows> {
      CMF_TRY(WeightRows all, g.Rows(table));
      if (all.rows != c.vocab_size || all.cols != c.hidden_size) {
        return Fail(ErrorKind::kCorrupt,
                    fmt::format("{}: tensor '{}': {} x {}, wanted are {} x {}", g.source().path(), table,
                                all.rows, all.cols, c.vocab_size, c.hidden_size));
      }
      return ScaleRows(SelectRows(std::move(all), {{begin, begin + rows}}),
                       static_cast<float>(c.logit_multiplier));
    };
    const Var weight = g.Weight(fmt::format("lm_head_{}.weight", i + 1), {rows, c.hidden_size, 1, 1}, part,
                                WeightRole::kMatrix);
    Var logits = g.FromChannels(g.Conv(h, weight));
    if (c.final_logit_softcapping) {
      const double cap = *c.final_logit_softcapping;
      logits = g.Scale(g.Unary("tanh", g.Scale(logits, 1 / cap)), cap);
    }
    g.Output(logits, fmt::format("logits{}", i + 1));
    begin += rows;
  }
  return OneFunction(g);
}

}  // namespace cmforge::coreml
