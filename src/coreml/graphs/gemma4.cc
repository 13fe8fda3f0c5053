// Gemma 4: sliding and full attention layers with a cache each, layers that read the keys and values of
// earlier ones, per-layer inputs.
//
// A cache is [layers that own a slot, 2 * kv heads, positions, head dim]: keys in the first half of a slot's
// rows, values in the second, so that one update stores both.
#include <cmath>
#include <limits>

#include "coreml/graphs/pass.h"

namespace cmforge::coreml {
namespace {

mil::Value At(int64_t index) { return mil::Int32s({static_cast<int32_t>(index)}); }
mil::Value Whole(int64_t number) { return mil::Int32(static_cast<int32_t>(number)); }

/// 0, 1, 2, ... as int32 [1, 1, 1, count].
Var Iota(Graph& g, int64_t count) {
  std::vector<std::byte> bytes(static_cast<size_t>(count) * 4);
  for (int64_t i = 0; i < count; ++i) StoreLe<int32_t>(bytes.data() + i * 4, static_cast<int32_t>(i));
  return g.Const(mil::Raw({mil::DataType::kInt32, {1, 1, 1, count}}, std::move(bytes)), "slots");
}

Var Compare(Graph& g, const char* op, const Arg& x, const Arg& y) { return g.Op(op, {{"x", x}, {"y", y}}); }

mil::Value MinusInfinity() { return Graph::Number(-std::numeric_limits<double>::infinity()); }

/// The cache spans the context: its mask is the causal one without what the window has left behind.
void MaskByWindow(Pass& pass, const Var& positions, int64_t window) {
  Graph& g = pass.g;
  const Var left = Compare(g, "less_equal", Iota(g, pass.plan.local_cache), g.Sub(positions, Whole(window)));
  pass.local_mask = g.Select(left, MinusInfinity(), pass.causal_mask);
  pass.local_begin = pass.current_pos;
  pass.local_end = g.Add(pass.current_pos, Whole(pass.tokens));
}

/// Marks the keys that a query sees, given the position of every slot.
void MaskByKeys(Pass& pass, const Var& positions, int64_t window, const Var& keys) {
  Graph& g = pass.g;
  const Var from = g.Sub(positions, Whole(window));
  const Var is_held = Compare(g, "greater_equal", keys, Whole(0));
  const Var is_past = Compare(g, "less_equal", keys, positions);
  const Var is_near = Compare(g, "greater", keys, from);
  const Var is_seen = Compare(g, "logical_and", Compare(g, "logical_and", is_held, is_past), is_near);
  pass.local_mask = g.Select(is_seen, Graph::Number(0), MinusInfinity());
}

/// What the slots of sliding layers hold once `count` positions have left, empty ones behind.
Var WithoutOldest(Graph& g, const Var& held, int64_t count, int64_t length) {
  const Var empty = g.Scale(g.Slice(held, 2, 0, count), 0);
  return g.Concat({g.Slice(held, 2, count, length), empty}, 2);
}

void StoreWindow(Pass& pass, const Var& moved, int64_t first_slot, int64_t end_slot) {
  const auto first = static_cast<int32_t>(first_slot), end = static_cast<int32_t>(end_slot);
  pass.UpdateState(kLocalState, moved, std::vector<int32_t>{first, 0, 0, 0},
                   std::vector<int32_t>{end, 0, 0, 0}, {false, true, true, true});
}

/// The first form of the layout: every call drops as many positions as it brings, so that the last token of a call is
/// in the last slot.
void MoveWindowByTokens(Pass& pass, const Var& positions, int64_t window, int64_t first_slot,
                        int64_t end_slot) {
  Graph& g = pass.g;
  const int64_t length = pass.plan.local_cache, tokens = pass.tokens;
  pass.local_begin = g.Const(At(length - tokens));
  pass.local_end = g.Const(At(length));
  const Var base = g.Sub(pass.current_pos, Whole(length - tokens));  // the position of slot 0
  MaskByKeys(pass, positions, window, g.Add(Iota(g, length), base));
  if (first_slot == end_slot) return;
  const Var held = g.Slice(pass.State(kLocalState), 0, first_slot, end_slot);
  StoreWindow(pass, WithoutOldest(g, held, tokens, length), first_slot, end_slot);
}

/// The cache is a window that moves by blocks of the batch size B: behind a call whose last position is e, slot
/// j holds position base + j, base = (e / B + 1) B - length. A slot depends on its position's block alone, so
/// prefill and infer read keys in the same order.
void MoveWindow(Pass& pass, const Var& positions, int64_t window, int64_t first_slot, int64_t end_slot) {
  Graph& g = pass.g;
  const int64_t batch = pass.plan.options.batch_size, length = pass.plan.local_cache;
  const Var last = g.Add(pass.current_pos, Whole(pass.tokens - 1));
  const Var block = g.Op("floor_div", {{"x", last}, {"y", Whole(batch)}});
  const Var base = g.Sub(g.Mul(g.Add(block, Whole(1)), Whole(batch)), Whole(length));  // [1]
  pass.local_begin = g.Sub(pass.current_pos, base);
  pass.local_end = g.Add(pass.local_begin, Whole(pass.tokens));

  MaskByKeys(pass, positions, window, g.Add(Iota(g, length), base));
  if (first_slot == end_slot) return;  // another chunk owns the slots that this one reads
  const Var held = g.Slice(pass.State(kLocalState), 0, first_slot, end_slot);
  Var moved = WithoutOldest(g, held, batch, length);
  if (pass.tokens < batch || batch == 1) {  // one token enters a block only at its first position
    const Var rest = g.Op("mod", {{"x", pass.current_pos}, {"y", Whole(batch)}});
    const Var enters = g.Reshape(Compare(g, "equal", rest, Whole(0)), {1, 1, 1, 1});
    moved = g.Select(enters, moved, held);
  }
  StoreWindow(pass, moved, first_slot, end_slot);
}

Var GemmaAttention(Pass& pass, const std::string& prefix, const PlannedLayer& layer, const Var& h) {
  Graph& g = pass.g;
  const ModelConfig& c = pass.plan.config;
  const bool is_sliding = layer.kind == LayerKind::kSlidingAttention;
  const int64_t heads = c.num_attention_heads, kv_heads = c.num_kv_heads, dim = pass.plan.head_dim(layer);
  const Rotation& rotation = is_sliding ? pass.local_rotation : pass.rotation;
  const auto project = [&](const char* which, int64_t n) {
    return g.ToHeads(g.Linear(h, prefix + which, n * dim, c.hidden_size), n, dim);
  };
  const auto normed = [&](const Var& x, const char* which) {
    return layer.has_qk_norm ? pass.Norm(x, dim, prefix + which) : x;
  };
  const Var q = g.Rotate(normed(project("q_proj", heads), "q_norm.weight"), rotation);
  const std::string_view state = is_sliding ? kLocalState : kGlobalState;
  if (layer.shares_kv_of < 0) {
    const Var k = g.Rotate(normed(project("k_proj", kv_heads), "k_norm.weight"), rotation);
    Var v = project("v_proj", kv_heads);
    if (c.attn_v_norm) v = g.RmsNorm(v, dim, c.rms_norm_eps);
    const Var zero = g.Const(At(0)), slot = g.Const(At(layer.slot)), next = g.Const(At(layer.slot + 1));
    const Var begin = g.Concat({slot, zero, is_sliding ? pass.local_begin : pass.current_pos, zero}, 0);
    const Var end = g.Concat({next, zero, is_sliding ? pass.local_end : pass.end_pos, zero}, 0);
    pass.UpdateState(state, g.Concat({k, v}, 1), begin, end, {false, true, false, true});
  }
  const Var cache = g.Row(pass.State(state), layer.slot);  // [2 * kv heads, positions, dim]
  const Var keys = g.RepeatHeads(g.Slice(cache, 0, 0, kv_heads), heads / kv_heads);
  const Var values = g.RepeatHeads(g.Slice(cache, 0, kv_heads, 2 * kv_heads), heads / kv_heads);
  Var scores = g.Matmul(q, keys, false, true);
  const double scalar = c.query_pre_attn_scalar.value_or(static_cast<double>(dim));
  if (scalar != 1) scores = g.Scale(scores, 1 / std::sqrt(scalar));
  scores = g.Add(scores, is_sliding ? pass.local_mask : pass.causal_mask);
  const Var out = g.FromHeads(g.Matmul(g.Softmax(scores, -1), values));
  return g.Linear(out, prefix + "o_proj", c.hidden_size, heads * dim);
}

}  // namespace

Result<void> PrepareGemma(Pass& pass, int64_t begin, int64_t end) {
  const ModelConfig& c = pass.plan.config;
  bool slides = false;
  int64_t first_slot = 0, end_slot = 0;  // owned by layers of this chunk
  for (int64_t i = begin; i < end; ++i) {
    const PlannedLayer& layer = pass.plan.layers[static_cast<size_t>(i)];
    if (layer.kind != LayerKind::kSlidingAttention) continue;
    slides = true;
    if (layer.shares_kv_of >= 0) continue;
    if (first_slot == end_slot) first_slot = layer.slot;
    end_slot = layer.slot + 1;
  }
  if (!slides) return {};
  CMF_TRY(pass.local_rotation,
          Rotations(pass, "rope_local", c.rope_local.value_or(c.rope), c.head_dim, /*is_fine=*/true));
  const Var positions = pass.g.Reshape(pass.position_ids, {1, 1, pass.tokens, 1});
  if (!pass.plan.local_cache_shifts()) {
    MaskByWindow(pass, positions, *c.sliding_window);
  } else if (pass.plan.options.window == GraphOptions::Window::kTokens) {
    MoveWindowByTokens(pass, positions, *c.sliding_window, first_slot, end_slot);
  } else {
    MoveWindow(pass, positions, *c.sliding_window, first_slot, end_slot);
  }
  return {};
}

Var GemmaLayer(Pass& pass, int64_t index, Var x) {
  Graph& g = pass.g;
  const ModelConfig& c = pass.plan.config;
  const PlannedLayer& layer = pass.plan.layers[static_cast<size_t>(index)];
  const std::string name = fmt::format("model.layers.{}.", index);
  const auto norm = [&](const Var& value, const char* which) {
    return pass.Norm(value, c.hidden_size, name + which);
  };
  const Var h = g.ToChannels(norm(x, "input_layernorm.weight"));
  const Var attended = g.FromChannels(GemmaAttention(pass, name + "self_attn.", layer, h));
  x = g.Add(x, norm(attended, "post_attention_layernorm.weight"));
  const Var m = g.ToChannels(norm(x, "pre_feedforward_layernorm.weight"));
  const Var fed = g.FromChannels(FeedForward(g, name + "mlp.", c.hidden_size, m, Activation::kGeluTanh));
  x = g.Add(x, norm(fed, "post_feedforward_layernorm.weight"));
  if (const int64_t width = c.hidden_size_per_layer_input; width > 0) {
    const Var gate =
        g.GeluTanh(g.Linear(g.ToChannels(x), name + "per_layer_input_gate", width, c.hidden_size));
    const Var own = g.ToChannels(g.Slice(pass.per_layer_inputs, 2, index * width, (index + 1) * width));
    const Var added =
        g.FromChannels(g.Linear(g.Mul(gate, own), name + "per_layer_projection", c.hidden_size, width));
    x = g.Add(x, norm(added, "post_per_layer_input_norm.weight"));
  }
  if (g.source().Find(name + "layer_scalar")) x = g.Mul(x, g.Tensor(name + "layer_scalar", {1}));
  return x;
}

}  // namespace cmforge::coreml
