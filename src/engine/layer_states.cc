// States of a sequence taken out of its pages and chunks.
#include "engine/layer_states.h"

#include <algorithm>

#include "engine/sequence.h"
#include "kernels/elementwise.h"

namespace cmforge::engine {
namespace {

void ReadCache(const KvCache& cache, int64_t position, LayerStates& out) {
  const KvPageLayout& layout = cache.layout();
  out.heads = cache.kv_heads();
  out.dim = layout.key_dim;
  out.first_position = cache.first_page() * kPagePositions;
  out.positions = position - out.first_position;
  const auto size = static_cast<size_t>(out.positions * out.heads * out.dim);
  out.keys.resize(size);
  out.values.resize(size);
  float *key = out.keys.data(), *value = out.values.data();
  for (int64_t p = 0; p < out.positions; ++p) {
    for (int64_t h = 0; h < out.heads; ++h, key += out.dim, value += out.dim)
      layout.Load(cache.pages()[p / kPagePositions] + cache.HeadOffset(h), p % kPagePositions, key, value);
  }
}

/// S as it is now, unfinished chunks included: the rule itself reads it out, row by row, with queries of one 1 and
/// nothing to add or forget.
void ReadMemory(const DeltaNet& net, const LayerState& state, LayerStates& out) {
  const int64_t keys = net.key_dim, values = net.value_dim, floats = DeltaStateFloats(keys, values);
  out.key_dim = keys;
  out.memory.resize(static_cast<size_t>(net.value_heads * keys * values));
  std::vector<float> queries(static_cast<size_t>(keys * 2 * keys)),
      nothing(static_cast<size_t>(keys * values));
  for (int64_t i = 0; i < keys; ++i) queries[static_cast<size_t>(i * 2 * keys + i)] = 1;
  const std::vector<float> ones(static_cast<size_t>(keys), 1.0f), zeros(static_cast<size_t>(keys), 0.0f);
  for (int64_t h = 0; h < net.value_heads; ++h) {
    std::vector<float> copy(state.delta.begin() + h * floats, state.delta.begin() + (h + 1) * floats);
    DeltaRuleArgs args;
    args.tokens = keys;
    args.key_dim = keys;
    args.value_dim = values;
    args.filled = state.delta_filled;
    args.q = queries.data();
    args.k = queries.data() + keys;
    args.qk_stride = 2 * keys;
    args.v = nothing.data();
    args.v_stride = values;
    args.decay = ones.data();
    args.beta = zeros.data();
    args.gate_stride = 1;
    args.state = copy.data();
    args.out = out.memory.data() + h * keys * values;
    args.out_stride = values;
    FindFloatKernels("reference")->delta_rule(args);
  }
}

}  // namespace

Result<std::vector<LayerStates>> LayerStatesOf(const Sequence& sequence) {
  const auto* own = dynamic_cast<const EngineSequence*>(&sequence);
  if (!own) return Fail(ErrorKind::kUsage, "states: not a sequence of the engine");
  const Network& network = *own->model().network;
  if (network.visits() != static_cast<int64_t>(network.layers.size()))
    return Fail(ErrorKind::kUnsupported, "states: layers that are visited more than once");
  std::vector<LayerStates> out(network.layers.size());
  for (int64_t i = 0; i < network.visits(); ++i) {
    const LayerState& state = own->state(i);
    LayerStates& layer = out[static_cast<size_t>(i)];
    if (state.kv.page_count() > 0) ReadCache(state.kv, own->position(), layer);
    layer.history = state.conv;
    if (const auto* net = std::get_if<DeltaNet>(&network.LayerOfVisit(i).mixer))
      ReadMemory(*net, state, layer);
  }
  return out;
}

}  // namespace cmforge::engine
