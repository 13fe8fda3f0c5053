// Statements.
#include "text/jinja/interpreter.h"

#include <algorithm>

#include "text/jinja/compare.h"
#include "text/jinja/dict.h"
#include "text/jinja/iterate.h"
#include "text/jinja/print.h"

namespace cmforge::jinja {

Interpreter::Interpreter(Runtime& rt, const Program& program, const Dict* variables)
    : rt_(rt), program_(program) {
  root_.variables = variables;
}

Result<void> Interpreter::Run(TextBuilder* out) {
  out_ = out;
  Activation a = NewActivation(program_.function, nullptr);
  if (program_.uses_self) a.slots[program_.self_slot] = Value::Of(Kind::kSelf, &program_);
  CMF_CHECK(EnterScope(program_.scope, a));
  CMF_CHECK(RunBody(program_.body, a));
  if (out->overflowed()) return rt_.LimitFault();
  return {};
}

Activation Interpreter::NewActivation(const Function& function, Activation* parent) {
  Activation a;
  a.parent = parent;
  if (std::vector<std::span<Value>>& spare = spare_[&function]; !spare.empty()) {
    a.slots = spare.back();
    spare.pop_back();
    std::fill(a.slots.begin(), a.slots.end(), Value());
  } else {
    a.slots = rt_.heap.NewArray<Value>(function.slots);
  }
  return a;
}

Result<void> Interpreter::EnterScope(const Scope& scope, Activation& a) {
  for (const ScopeLoad& load : scope) {
    Value& slot = a.slots[load.slot];
    switch (load.how) {
      case ScopeLoad::How::kUnset:
        slot = Value();
        break;
      case ScopeLoad::How::kAlias: {
        const Activation* home = &a;
        for (uint32_t i = 0; i < load.source.hops; ++i) home = home->parent;
        slot = home->slots[load.source.slot];
        break;
      }
      case ScopeLoad::How::kResolve: {
        CMF_TRY(slot, Resolve(load.name));
        break;
      }
    }
  }
  return {};
}

Result<Value> Interpreter::Resolve(std::string_view name) {
  if (!rt_.Spend()) return rt_.LimitFault();
  if (const auto it = context_->exported.find(name); it != context_->exported.end()) return it->second;
  if (const Value* value = FindText(*context_->variables, name)) return *value;
  if (const Builtin* global = FindGlobal(name)) return Value::Of(Kind::kBuiltin, global);
  return Value();
}

Result<void> Interpreter::EmitText(const Str& text) {
  out_->Append(text);
  rt_.captured_bytes += static_cast<int64_t>(text.size);
  if (rt_.captured_bytes > rt_.options.limits.output_bytes) {
    return Fail(ErrorKind::kLimit,
                fmt::format("the text is longer than {} bytes", rt_.options.limits.output_bytes),
                error_name::kLimitReached);
  }
  if (!rt_.Spend(static_cast<int64_t>(text.size / 16))) return rt_.LimitFault();
  return {};
}

Result<void> Interpreter::Emit(const Value& value) {
  CMF_TRY(const Value text, ToText(rt_, value));
  if (!rt_.autoescape || text.is_markup()) return EmitText(*text.string);
  TextBuilder escaped(rt_);
  AppendEscaped(&escaped, *text.string);
  CMF_TRY(const Value safe, escaped.Finish());
  return EmitText(*safe.string);
}

Result<Interpreter::Flow> Interpreter::RunBody(const Body& body, Activation& a) {
  if (!rt_.HasStack()) return DepthFault();
  for (const Statement* s : body) {
    if (!rt_.Spend()) return rt_.LimitFault();
    CMF_TRY(const Flow flow, RunStatement(*s, a));
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Result<Interpreter::Flow> Interpreter::RunStatement(const Statement& s, Activation& a) {
  rt_.line = s.line;
  const auto normal = [](Result<void> result) -> Result<Flow> {
    if (!result) return Fail(std::move(result).error());
    return Flow::kNormal;
  };
  switch (s.kind) {
    case StatementKind::kOutput:
      return normal(RunOutput(s, a));
    case StatementKind::kSet:
      return normal(RunSet(s, a));
    case StatementKind::kSetBlock:
      return RunSetBlock(s, a);
    case StatementKind::kFor:
      return RunFor(s, a);
    case StatementKind::kIf:
      return RunIf(s, a);
    case StatementKind::kWith:
      return RunWith(s, a);
    case StatementKind::kMacro:
      return normal(RunMacro(s, a));
    case StatementKind::kCallBlock:
    case StatementKind::kGeneration:
      return normal(RunCallBlock(s, a));
    case StatementKind::kFilterBlock:
      return RunFilterBlock(s, a);
    case StatementKind::kBlock:
      return normal(RunBlockTag(s, a));
    case StatementKind::kAutoescape:
      return RunAutoescape(s, a);
    case StatementKind::kLoader:
      CMF_CHECK(Eval(*s.value, a));
      return Fault(error_name::kRuntime, "TypeError: there are no other templates to load");
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNormal;
}

Result<void> Interpreter::RunOutput(const Statement& s, Activation& a) {
  for (const Expr* item : s.items) {
    if (item->kind == ExprKind::kConstant && item->constant.is_string()) {
      CMF_CHECK(EmitText(*item->constant.string));
      continue;
    }
    CMF_TRY(const Value value, Eval(*item, a));
    rt_.line = item->line;
    CMF_CHECK(Emit(value));
  }
  return {};
}

Result<void> Interpreter::RunSet(const Statement& s, Activation& a) {
  CMF_TRY(const Value value, Eval(*s.value, a));
  CMF_CHECK(Assign(*s.target, value, a));
  if (s.exports) Export(*s.target, a);
  return {};
}

Result<Interpreter::Flow> Interpreter::RunSetBlock(const Statement& s, Activation& a) {
  CMF_CHECK(EnterScope(s.scope, a));
  Flow flow = Flow::kNormal;
  CMF_TRY(Value value, Capture([&]() -> Result<Flow> {
            CMF_TRY(flow, RunBody(s.body, a));
            return flow;
          }));
  if (flow != Flow::kNormal) return flow;
  if (s.value != nullptr) {
    CMF_TRY(value, EvalFilterOf(*s.value, value, a));
  }
  CMF_CHECK(Assign(*s.target, value, a));
  if (s.exports) Export(*s.target, a);
  return Flow::kNormal;
}

Result<Interpreter::Flow> Interpreter::RunIf(const Statement& s, Activation& a) {
  for (const Statement::Branch& branch : s.branches) {
    if (branch.test == nullptr) return RunBody(branch.body, a);
    rt_.line = branch.test->line;
    CMF_TRY(const Value test, Eval(*branch.test, a));
    if (IsTrue(test)) return RunBody(branch.body, a);
  }
  return Flow::kNormal;
}

Result<Interpreter::Flow> Interpreter::RunWith(const Statement& s, Activation& a) {
  CMF_CHECK(EnterScope(s.scope, a));
  for (size_t i = 0; i < s.targets.size(); ++i) {
    CMF_TRY(const Value value, Eval(*s.items[i], a));
    CMF_CHECK(Assign(*s.targets[i], value, a));
  }
  return RunBody(s.body, a);
}

Result<Interpreter::Flow> Interpreter::RunAutoescape(const Statement& s, Activation& a) {
  CMF_CHECK(EnterScope(s.scope, a));
  CMF_TRY(const Value on, Eval(*s.value, a));
  const bool before = rt_.autoescape;
  rt_.autoescape = IsTrue(on);
  Result<Flow> flow = RunBody(s.body, a);
  rt_.autoescape = before;
  return flow;
}

Result<Interpreter::Flow> Interpreter::RunFilterBlock(const Statement& s, Activation& a) {
  CMF_CHECK(EnterScope(s.scope, a));
  Flow flow = Flow::kNormal;
  CMF_TRY(Value value, Capture([&]() -> Result<Flow> {
            CMF_TRY(flow, RunBody(s.body, a));
            return flow;
          }));
  if (flow != Flow::kNormal) return flow;
  CMF_TRY(value, EvalFilterOf(*s.value, value, a));
  CMF_CHECK(EmitResult(value));
  return Flow::kNormal;
}

// What a filter block or a call gives has to be text: it is not converted.
Result<void> Interpreter::EmitResult(const Value& value) {
  if (value.is_string()) return EmitText(*value.string);
  return RuntimeFault("TypeError: expected str instance, {} found", TypeName(value));
}

Value Interpreter::NewMacro(const MacroSource& source, Activation& a) {
  // The variables live as long as the rendering: the macro may be called whenever.
  Activation* closure = rt_.heap.New<Activation>(a.parent, a.slots);
  return Value::Of(Kind::kMacro, rt_.heap.New<Macro>(&source, closure));
}

Result<void> Interpreter::RunMacro(const Statement& s, Activation& a) {
  CMF_CHECK(Assign(*s.target, NewMacro(*s.macro, a), a));
  if (s.exports) Export(*s.target, a);
  return {};
}

Result<void> Interpreter::RunCallBlock(const Statement& s, Activation& a) {
  const Value caller = NewMacro(*s.macro, a);
  if (s.kind == StatementKind::kGeneration) {
    CMF_TRY(const Value text, CallMacro(*caller.macro, {}));
    return EmitResult(text);
  }
  CMF_TRY(const Value text, EvalCall(*s.value, a, caller));
  return EmitResult(text);
}

Result<void> Interpreter::RunBlockTag(const Statement& s, Activation& a) {
  if (s.block->is_required) {
    return Fault(error_name::kTemplate, fmt::format("required block '{}' not found", s.block->name));
  }
  CMF_TRY(const Value text, RunBlock(*s.block, &a));
  return EmitText(*text.string);
}

Result<Value> Interpreter::RunBlock(const Block& block, Activation* place) {
  if (rt_.call_depth >= kMaxCallDepth || !rt_.HasStack()) return DepthFault();
  Context derived;
  Context* const outer = context_;
  if (block.is_scoped && place != nullptr) {
    derived = *context_;
    for (const auto& [name, variable] : block.visible) {
      const Activation* home = place;
      for (uint32_t i = 0; i < variable.hops; ++i) home = home->parent;
      const Value& value = home->slots[variable.slot];
      if (!value.is_missing()) derived.exported[name] = value;
    }
    if (!rt_.Spend(static_cast<int64_t>(derived.exported.size()))) return rt_.LimitFault();
    context_ = &derived;
  }
  Activation a = NewActivation(block.function, nullptr);
  if (block.uses_self) a.slots[block.self_slot] = Value::Of(Kind::kSelf, &program_);
  if (block.uses_super) {
    const std::string hint = fmt::format("there is no parent block called '{}'.", block.name);
    a.slots[block.super_slot] = rt_.NewUndefined({.hint = rt_.heap.CopyText(hint)});
  }
  ++rt_.call_depth;
  Result<Value> text = Capture([&]() -> Result<Flow> {
    CMF_CHECK(EnterScope(block.scope, a));
    return RunBody(block.body, a);
  });
  --rt_.call_depth;
  context_ = outer;
  return text;
}

// Yields the items that pass the test of `for … if test`, asking only when the next one is wanted.
class TestedIterator final : public Iterator {
 public:
  TestedIterator(Interpreter* interpreter, const ForNode* loop, Iterator* items, Activation* a)
      : interpreter_(interpreter), loop_(loop), items_(items), a_(a) {}
  Result<Value> Next(Runtime& rt) override {
    while (true) {
      CMF_TRY(const Value item, items_->Next(rt));
      if (item.is_missing()) return Value();
      CMF_CHECK(interpreter_->Assign(*loop_->test_target, item, *a_));
      CMF_TRY(const Value test, interpreter_->Eval(*loop_->test, *a_));
      if (!IsTrue(test)) continue;
      if (loop_->test_target->kind == ExprKind::kName) return item;
      return interpreter_->Eval(*loop_->test_target, *a_);
    }
  }

 private:
  Interpreter* interpreter_;
  const ForNode* loop_;
  Iterator* items_;
  Activation* a_;
};

Result<Interpreter::Flow> Interpreter::RunFor(const Statement& s, Activation& a) {
  const ForNode& loop = *s.loop;
  CMF_TRY(const Value iterable, Eval(*loop.iterable, a));
  if (!loop.is_recursive) return RunLoop(loop, iterable, a, nullptr, 0);
  Activation* closure = rt_.heap.New<Activation>(a.parent, a.slots);
  CMF_TRY(const Value text, RunRecursive(loop, iterable, *closure, 0));
  CMF_CHECK(EmitResult(text));
  return Flow::kNormal;
}

Result<Value> Interpreter::RunRecursive(const ForNode& loop, const Value& iterable, Activation& closure,
                                        int64_t depth0) {
  if (rt_.call_depth >= kMaxCallDepth || !rt_.HasStack()) return DepthFault();
  Activation a = NewActivation(loop.function, &closure);
  ++rt_.call_depth;
  Result<Value> text = Capture([&] { return RunLoop(loop, iterable, a, &closure, depth0); });
  --rt_.call_depth;
  return text;
}

Result<Interpreter::Flow> Interpreter::RunLoop(const ForNode& loop, const Value& iterable, Activation& a,
                                               Activation* closure, int64_t depth0) {
  CMF_TRY(Iterator * items, Iterate(rt_, iterable));
  if (loop.test != nullptr) {
    CMF_CHECK(EnterScope(loop.test_scope, a));
    // The loop object may outlive this call, so its iterator keeps the variables on the heap.
    Activation* const kept = rt_.heap.New<Activation>(a.parent, a.slots);
    items = new (rt_.heap.Allocate(sizeof(TestedIterator))) TestedIterator(this, &loop, items, kept);
  }
  LoopState* state = nullptr;
  if (loop.uses_loop) {
    state = rt_.heap.New<LoopState>();
    state->iterable = loop.test != nullptr ? Value::Of(Kind::kIterator, items) : iterable;
    state->iterator = items;
    state->recursive = loop.is_recursive ? &loop : nullptr;
    state->closure = closure;
    state->depth0 = depth0;
  }
  // As in Jinja, `else` runs unless some round came to its end: break and continue do not count.
  bool runs_else = true;
  while (true) {
    Value item;
    if (state != nullptr) {
      CMF_TRY(item, AdvanceLoop(rt_, state));
    } else {
      CMF_TRY(item, items->Next(rt_));
    }
    if (item.is_missing()) break;
    if (!rt_.Spend()) return rt_.LimitFault();
    CMF_CHECK(Assign(*loop.target, item, a));
    if (state != nullptr) a.slots[loop.loop.slot] = Value::Of(Kind::kLoop, state);
    CMF_CHECK(EnterScope(loop.scope, a));
    CMF_TRY(const Flow flow, RunBody(loop.body, a));
    if (flow == Flow::kBreak) break;
    if (flow == Flow::kNormal) runs_else = false;
  }
  if (!runs_else || loop.otherwise.empty()) return Flow::kNormal;
  CMF_CHECK(EnterScope(loop.otherwise_scope, a));
  return RunBody(loop.otherwise, a);
}

Result<void> Interpreter::Assign(const Expr& target, const Value& value, Activation& a) {
  if (target.kind == ExprKind::kTuple) return Unpack(target, value, a);
  Activation* home = &a;
  for (uint32_t i = 0; i < target.variable.hops; ++i) home = home->parent;
  Value& slot = home->slots[target.variable.slot];
  if (target.kind == ExprKind::kName) {
    slot = value;
    return {};
  }
  if (!slot.is(Kind::kNamespace)) {
    return Fault(error_name::kTemplate, "cannot assign attribute on non-namespace object");
  }
  return SetText(rt_, slot.dict, target.attribute, value);
}

Result<void> Interpreter::Unpack(const Expr& target, const Value& value, Activation& a) {
  if (!IsIterable(value))
    return RuntimeFault("TypeError: cannot unpack non-iterable {} object", TypeName(value));
  CMF_TRY(Iterator* const items, Iterate(rt_, value));
  std::vector<Value> values;
  for (size_t i = 0; i <= target.items.size(); ++i) {
    CMF_TRY(const Value item, items->Next(rt_));
    if (item.is_missing()) break;
    values.push_back(item);
  }
  if (values.size() < target.items.size()) {
    return RuntimeFault("ValueError: not enough values to unpack (expected {}, got {})", target.items.size(),
                        values.size());
  }
  if (values.size() > target.items.size()) {
    return RuntimeFault("ValueError: too many values to unpack (expected {})", target.items.size());
  }
  for (size_t i = 0; i < values.size(); ++i) CMF_CHECK(Assign(*target.items[i], values[i], a));
  return {};
}

void Interpreter::Export(const Expr& target, const Activation& a) {
  if (program_.blocks.empty()) return;  // nobody looks
  const auto one = [&](const Expr& name) { root_.exported[name.text] = a.slots[name.variable.slot]; };
  if (target.kind == ExprKind::kName) one(target);
  for (const Expr* item : target.items) Export(*item, a);
}

}  // namespace cmforge::jinja
