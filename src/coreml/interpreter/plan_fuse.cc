// Chains of operations that become one step. What a chain computes is what its operations compute; their results in
// between are never whole in memory.
#include <algorithm>
#include <map>
#include <tuple>

#include "coreml/interpreter/cached_attention.h"
#include "coreml/interpreter/element_chain.h"
#include "coreml/interpreter/plan.h"
#include "coreml/interpreter/strided.h"
#include "mil/infer.h"

namespace cmforge::coreml {

class FunctionPlan::Fuser {
 public:
  explicit Fuser(FunctionPlan& plan)
      : plan_(plan), producer_(plan.values_.size(), -1), uses_(plan.values_.size(), 0) {
    for (size_t s = 0; s < plan.steps_.size(); ++s) {
      for (const ValueId id : plan.steps_[s].outputs) producer_[Index(id)] = static_cast<int32_t>(s);
      CountUses(plan.steps_[s], 1);
    }
    for (const ValueId id : plan.output_ids_) ++uses_[Index(id)];
  }

  Result<void> Fuse() {
    const auto count = static_cast<int32_t>(plan_.steps_.size());
    for (int32_t s = 0; s < count; ++s) CMF_CHECK(TryAttention(s));
    for (int32_t s = 0; s < count; ++s) JoinConv(s);
    // The last operation of a chain takes in those before it.
    for (int32_t s = count; s-- > 0;) CMF_CHECK(TryChain(s));
    return {};
  }

 private:
  static size_t Index(ValueId id) { return static_cast<size_t>(id); }
  PlanStep& Step(int32_t s) { return plan_.steps_[static_cast<size_t>(s)]; }
  const Shape& ShapeOf(ValueId id) { return plan_.At(id).type.tensor.shape; }

  void CountUses(const PlanStep& step, int by) {
    for (const auto& [parameter, ids] : step.operands) {
      for (const ValueId id : ids) uses_[Index(id)] += by;
    }
  }

  /// The step that makes a value, if it is an operation of that name which still stands by itself.
  PlanStep* Maker(ValueId id, std::string_view op) {
    const int32_t s = producer_[Index(id)];
    if (s < 0) return nullptr;
    PlanStep& step = Step(s);
    const bool is_plain = !step.is_dynamic && !step.is_view && !step.kernel && step.state < 0;
    return is_plain && step.op->type == op ? &step : nullptr;
  }
  /// The same for a value that nothing else uses.
  PlanStep* OnlyFor(ValueId id, std::string_view op) {
    return uses_[Index(id)] == 1 ? Maker(id, op) : nullptr;
  }

  bool HasFlags(const PlanStep& matmul, bool transpose_x, bool transpose_y) {
    const auto call = plan_.CallOf(*matmul.op, matmul.operands);
    if (!call) return false;
    const auto x = call->Flag("transpose_x", false), y = call->Flag("transpose_y", false);
    return x && y && *x == transpose_x && *y == transpose_y;
  }

  /// A step that is part of a chain now: its results are nowhere, and neither is what was made for it alone.
  void Remove(PlanStep& step) {
    step.is_view = true;
    for (const ValueId id : step.outputs) plan_.At(id).is_gone = true;
    CountUses(step, -1);
    for (const auto& [parameter, ids] : step.operands) {
      for (const ValueId id : ids) {
        const int32_t s = producer_[Index(id)];
        if (s < 0 || uses_[Index(id)] > 0) continue;
        PlanStep& maker = Step(s);
        const bool only_moves = maker.op->type == "tile" || (maker.is_view && maker.state < 0);
        if (only_moves && maker.outputs.size() == 1 && !plan_.At(id).is_gone) Remove(maker);
      }
    }
  }

  struct Repeated {
    ValueId source;
    int64_t times;
  };
  /// A batch of matrices, each `times` times in a row: where they are once.
  Repeated FindRepeats(ValueId id) {
    ValueId at = id;
    while (true) {
      const int32_t s = producer_[Index(at)];
      if (s < 0 || !Step(s).is_view) break;
      const std::string& op = Step(s).op->type;
      if (op != "reshape" && op != "expand_dims" && op != "squeeze") break;
      at = Step(s).operands.at("x")[0];
    }
    const PlanStep* tile = Maker(at, "tile");
    if (!tile) return {id, 1};
    const ValueId source = tile->operands.at("x")[0];
    const Shape &from = ShapeOf(source), &to = ShapeOf(at), &shape = ShapeOf(id);
    if (from.size() < 3 || shape.size() < 2 || !std::equal(from.end() - 2, from.end(), shape.end() - 2))
      return {id, 1};
    int64_t times = 1;
    for (size_t i = 0; i < from.size(); ++i) {
      if (times > 1 && i + 2 < from.size() && from[i] != 1) return {id, 1};
      if (from[i] == to[i]) continue;
      if (times > 1 || from[i] != 1 || i + 2 >= from.size()) return {id, 1};
      times = to[i];
    }
    return {source, times};
  }

  /// Whether a value has the type of the chain's results: all f16, or all f32.
  bool IsOf(ValueId id, mil::DataType dtype) { return plan_.At(id).type.tensor.dtype == dtype; }

  Result<void> TryAttention(int32_t last) {
    PlanStep* product = &Step(last);
    if (product->op->type != "matmul" || Maker(product->outputs[0], "matmul") != product) return {};
    PlanStep* softmax = OnlyFor(product->operands.at("x")[0], "softmax");
    if (!softmax || !HasFlags(*product, false, false)) return {};
    PlanStep* add = OnlyFor(softmax->operands.at("x")[0], "add");
    if (!add) return {};
    for (const char* side : {"x", "y"}) {
      const ValueId scaled = add->operands.at(side)[0], mask = add->operands.at(*side == 'x' ? "y" : "x")[0];
      PlanStep* mul = OnlyFor(scaled, "mul");
      ValueId scores = scaled, scale = kNoValue;
      if (mul) {
        const ValueId x = mul->operands.at("x")[0], y = mul->operands.at("y")[0];
        const bool is_left = plan_.At(x).is_constant;
        scale = is_left ? x : y;
        scores = is_left ? y : x;
        if (!plan_.At(scale).is_constant || plan_.At(scale).count() != 1) continue;
      }
      PlanStep* dot = OnlyFor(scores, "matmul");
      if (!dot || !HasFlags(*dot, false, true)) continue;
      return MakeAttention(*dot, mul, scale, *add, mask, *softmax, *product);
    }
    return {};
  }

  Result<void> MakeAttention(PlanStep& dot, PlanStep* mul, ValueId scale, PlanStep& add, ValueId mask,
                             PlanStep& softmax, PlanStep& product) {
    const ValueId scores = dot.outputs[0], out = product.outputs[0];
    const ValueId query = dot.operands.at("x")[0];
    const Repeated keys = FindRepeats(dot.operands.at("y")[0]),
                   values = FindRepeats(product.operands.at("y")[0]);
    const auto matrices = [&](ValueId id) {
      const Shape& s = ShapeOf(id);
      int64_t count = 1;
      for (size_t i = 0; i + 2 < s.size(); ++i) count *= s[i];
      return count;
    };
    const Shape &s = ShapeOf(scores), &q = ShapeOf(query), &k = ShapeOf(keys.source),
                &v = ShapeOf(values.source);
    const auto call = plan_.CallOf(*softmax.op, softmax.operands);
    const auto axis = call ? call->Axis("axis", static_cast<int64_t>(s.size()), -1) : Result<int64_t>(-1);
    const bool is_last = axis && *axis + 1 == static_cast<int64_t>(s.size());
    const int64_t heads = matrices(scores);
    const mil::DataType dtype = plan_.At(out).type.tensor.dtype;
    for (const ValueId id : {scores, query, keys.source, values.source, mask}) {
      if (!IsOf(id, dtype) || plan_.At(id).is_constant) return {};
    }
    const bool fits = is_last && s.size() == 4 && s[0] == 1 && q.size() >= 2 && k.size() >= 2 &&
                      v.size() >= 2 && keys.times == values.times && matrices(query) == heads && heads > 0 &&
                      matrices(keys.source) * keys.times == heads &&
                      matrices(values.source) * values.times == heads && ShapeOf(softmax.outputs[0]) == s &&
                      ShapeOf(mask).size() <= 4 && s[2] > 0 && s[3] > 0;
    if (!fits) return {};
    const std::vector<int64_t> strides = BroadcastStrides(ShapeOf(mask), s);
    if (ShapeOf(mask).empty() || ShapeOf(mask).back() != s[3] || (s[3] > 1 && strides[3] != 1)) return {};

    CachedAttention attention;
    attention.query = query;
    attention.key = keys.source;
    attention.value = values.source;
    attention.scale = scale;
    attention.mask = mask;
    attention.out = out;
    attention.heads = heads;
    attention.repeats = keys.times;
    attention.tokens = s[2];
    attention.keys = s[3];
    attention.width = q.back();
    attention.value_width = v.back();
    attention.mask_head = strides[1];
    attention.mask_token = strides[2];
    attention.rounds = plan_.rounds() && dtype == mil::DataType::kFloat16;
    if (scale != kNoValue) CMF_CHECK(plan_.Materialize(scale));

    for (PlanStep* step : {&dot, mul, &add, &softmax}) {
      if (step) Remove(*step);
    }
    CountUses(product, -1);
    const ValueId old_values = product.operands.at("y")[0];
    product.operands = {
        {"query", {query}}, {"key", {keys.source}}, {"value", {values.source}}, {"mask", {mask}}};
    CountUses(product, 1);
    if (uses_[Index(old_values)] == 0 && old_values != values.source)
      Remove(Step(producer_[Index(old_values)]));
    product.kernel = attention.Make(plan_.options_.isa, plan_.frame_);
    product.fused = "attention";
    product.is_rounded = false;
    return {};
  }

  // ---- convolutions of the same input

  /// Whether a step is a product with a constant matrix at every position of its input.
  bool IsPlainConv(const PlanStep& step) {
    if (step.is_dynamic || step.is_view || step.kernel || step.op->type != "conv") return false;
    for (const auto& [parameter, ids] : step.operands) {
      if (plan_.At(ids[0]).is_constant != (parameter != "x")) return false;
    }
    const auto call = plan_.CallOf(*step.op, step.operands);
    if (!call) return false;
    const auto plan = mil::PlanConv(*call);
    const auto are = [](const std::vector<int64_t>& all, int64_t n) {
      return std::all_of(all.begin(), all.end(), [n](int64_t one) { return one == n; });
    };
    return plan && plan->groups == 1 && are(plan->kernel, 1) && are(plan->strides, 1) &&
           are(plan->pad_before, 0) && are(plan->pad_after, 0);
  }

  /// Joins a convolution to an earlier one of the same input: it needs nothing that is not there by then, and one
  /// step reads the matrices of both without waiting in between.
  void JoinConv(int32_t s) {
    PlanStep& step = Step(s);
    if (!IsPlainConv(step)) return;
    const PlanValue& x = plan_.At(step.operands.at("x")[0]);
    const auto [it, is_new] = convs_.try_emplace({x.root, x.offset, x.type.tensor.shape}, s);
    PlanStep& first = Step(it->second);
    if (is_new || first.joined.size() + 1 == kMostConvs) {
      it->second = s;
      return;
    }
    for (const ValueId id : step.outputs) {
      first.outputs.push_back(id);
      producer_[Index(id)] = it->second;
      plan_.At(id).defined_at = plan_.At(first.outputs[0]).defined_at;
    }
    first.joined.push_back(step);
    first.fused = "convolutions of one input";
    step.is_view = true;
    step.outputs.clear();
    step.operands.clear();
  }

  // ---- elementwise chains

  /// An operation that chains have, on floats, with one result.
  bool IsElementwise(const PlanStep& step) {
    if (step.is_dynamic || step.is_view || step.kernel || step.state >= 0 || step.outputs.size() != 1)
      return false;
    const mil::Type& type = plan_.At(step.outputs[0]).type;
    if (!IsFloatBuffer(type.tensor.dtype) || plan_.At(step.outputs[0]).count() == 0) return false;
    return FindBinaryBlock(step.op->type) || FindFloatFunction(step.op->type);
  }

  /// How often a value repeats along a result of that shape: elements after which it begins again, 0 when it does not
  /// repeat as a whole.
  int64_t PeriodOf(ValueId id, const Shape& shape) {
    const Shape& own = ShapeOf(id);
    int64_t period = 1, i = 0;
    const auto rank = static_cast<int64_t>(own.size());
    for (; i < rank && own.end()[-1 - i] == shape.end()[-1 - i]; ++i) period *= own.end()[-1 - i];
    for (; i < rank; ++i) {
      if (own.end()[-1 - i] != 1) return 0;
    }
    return period;
  }

  /// Adds the operation that makes `id` (and those before it) to a chain; gives the operand to read it by, or
  /// nothing when the chain cannot have it.
  Result<std::optional<int32_t>> AddToChain(ElementChain& chain, ValueId id, const Shape& shape, bool is_last,
                                            std::vector<PlanStep*>& taken) {
    const int32_t s = producer_[Index(id)];
    PlanStep* step = s >= 0 ? &Step(s) : nullptr;
    const bool can_take = step && IsElementwise(*step) && ShapeOf(id) == shape &&
                          (is_last || (uses_[Index(id)] == 1 && taken.size() < ElementChain::kMaxOps));
    if (!can_take) {
      const int64_t period = PeriodOf(id, shape);
      if (period == 0 || !IsFloatBuffer(plan_.At(id).type.tensor.dtype)) return std::nullopt;
      if (plan_.At(id).is_constant) CMF_CHECK(plan_.Materialize(id));
      chain.inputs.push_back({id, period});
      return static_cast<int32_t>(chain.inputs.size()) - 1;
    }
    const size_t old_inputs = chain.inputs.size(), old_ops = chain.ops.size(), old_steps = taken.size();
    taken.push_back(step);
    ChainOp op;
    op.binary = FindBinaryBlock(step->op->type);
    const ValueId x = step->operands.at("x")[0];
    CMF_TRY(const auto a, AddToChain(chain, x, shape, false, taken));
    std::optional<int32_t> b = 0;
    if (op.binary) {
      CMF_TRY(b, AddToChain(chain, step->operands.at("y")[0], shape, false, taken));
    }
    if (!a || !b) {  // without this operation: what it makes is an input, if that can be
      chain.inputs.resize(old_inputs);
      chain.ops.resize(old_ops);
      taken.resize(old_steps);
      if (is_last) return std::nullopt;
      chain.inputs.push_back({id, plan_.At(id).count()});
      return static_cast<int32_t>(chain.inputs.size()) - 1;
    }
    op.a = *a;
    op.b = *b;
    op.rounds = step->is_rounded && plan_.At(id).type.tensor.dtype == mil::DataType::kFloat16;
    if (!op.binary) {
      op.unary = FindFloatFunction(step->op->type);
      if (op.rounds && plan_.At(x).type.tensor.dtype == mil::DataType::kFloat16)
        op.table = HalfTableOf(op.unary);
    }
    chain.ops.push_back(op);
    return -static_cast<int32_t>(chain.ops.size());
  }

  Result<void> TryChain(int32_t last) {
    PlanStep& step = Step(last);
    if (!IsElementwise(step)) return {};
    const ValueId out = step.outputs[0];
    ElementChain chain;
    std::vector<PlanStep*> taken;
    CMF_TRY(const auto made, AddToChain(chain, out, ShapeOf(out), true, taken));
    if (!made) return {};
    chain.out = out;
    chain.count = plan_.At(out).count();
    for (PlanStep* one : taken) {
      if (one != &step) Remove(*one);
    }
    CountUses(step, -1);
    step.operands.clear();
    for (const ChainInput& input : chain.inputs) step.operands["inputs"].push_back(input.value);
    CountUses(step, 1);
    step.kernel = chain.Make();
    if (taken.size() > 1) step.fused = "elementwise chain";
    step.is_rounded = false;
    return {};
  }

  FunctionPlan& plan_;
  std::vector<int32_t> producer_;  // by value: the step that makes it
  std::vector<int32_t> uses_;      // by value
  // By what convolutions read: the step that others join.
  std::map<std::tuple<ValueId, int64_t, Shape>, int32_t> convs_;
};

Result<void> FunctionPlan::FuseSteps() { return Fuser(*this).Fuse(); }

}  // namespace cmforge::coreml
