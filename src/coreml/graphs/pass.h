// One decoder function being built: its inputs and the states as they stand at the current operation.
#pragma once

#include <map>

#include "coreml/graphs/decoder_plan.h"
#include "coreml/graphs/graph.h"

namespace cmforge::coreml {

struct Pass {
  Pass(Graph& graph, const DecoderPlan& decoder, int64_t batch) : g(graph), plan(decoder), tokens(batch) {}

  Graph& g;
  const DecoderPlan& plan;
  const int64_t tokens;  // T of this function

  // Inputs: int32 [T], fp16 [1, 1, T, context], int32 [1]
  Var position_ids, causal_mask, current_pos;
  Var end_pos;        // current_pos + T
  Rotation rotation;  // of these positions

  // Sliding layers: their rotation, the mask of their cache [1, 1, T, its length], and the slots [1] that the
  // tokens go to, first and one past the last.
  Rotation local_rotation;
  Var local_mask, local_begin, local_end;
  Var per_layer_inputs;  // fp16 [1, T, layers * width]

  /// Declares a state and reads it.
  void AddState(const std::string& name, const Shape& shape);
  /// Its contents now.
  const Var& State(std::string_view name);
  /// state[begin : end] = update, axes with `to_the_end` to their end. All lists have the state's rank.
  void UpdateState(std::string_view name, const Var& update, const Arg& begin, const Arg& end,
                   const std::vector<bool>& to_the_end);
  /// RMSNorm by a tensor [width] of the source. What is stored less than it means, 1 + w of zero-centered norms, has
  /// more digits than fp16.
  Var Norm(const Var& x, int64_t width, const std::string& weight);
  /// Every declared state must be read by every function: `x` plus 0 times one element of each state that
  /// nothing has asked for.
  Var TouchStates(Var x);

 private:
  struct Entry {
    Var state, value;
    bool is_used = false;
  };
  std::map<std::string, Entry, std::less<>> states_;
};

/// cos and sin of this function's positions, from tables `name`_cosines and _sines of all positions. `is_fine`: with a
/// factor that both share, `name`_factors.
Result<Rotation> Rotations(Pass& pass, const std::string& name, const RopeConfig& rope, int64_t head_dim,
                           bool is_fine);

/// Layer operators: h is the normed residual stream as channels [1, H, 1, T]; results are channels too.
/// `name` is the prefix of the layer's tensors, "model.layers.3.".
Var Attention(Pass& pass, const std::string& name, const PlannedLayer& layer, const Var& h);
Var DeltaAttention(Pass& pass, const std::string& name, const PlannedLayer& layer, const Var& h);
/// All experts computed, the router's best weighted, a shared expert added. `name`: "model.layers.3.mlp.".
Var Mixture(Graph& g, const std::string& name, int64_t hidden, const MoeConfig& moe, const Var& h);
Var FeedForward(Graph& g, const std::string& name, int64_t hidden, const Var& h,
                Activation activation = Activation::kSilu);

/// Gemma 4. Prepare comes before the layers: masks and slots of the sliding ones, and their cache moved on by a
/// block where the call enters one; only the slots of layers [begin, end) are touched.
Result<void> PrepareGemma(Pass& pass, int64_t begin, int64_t end);
/// A whole layer on the residual stream [1, T, H].
Var GemmaLayer(Pass& pass, int64_t index, Var x);

}  // namespace cmforge::coreml
