// Runs a program over a context: statements write text, expressions give values.
#pragma once

#include <map>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "text/jinja/loop.h"
#include "text/jinja/program.h"
#include "text/jinja/runtime.h"
#include "text/jinja/text.h"

namespace cmforge::jinja {

/// The variables of one run of a function. Functions defined inside point to it.
struct Activation {
  Activation* parent = nullptr;
  std::span<Value> slots;
};

/// Where names that nothing in the template defines are looked up.
struct Context {
  const Dict* variables = nullptr;  // what the caller gave
  std::map<std::string_view, Value> exported;
};

class Interpreter {
 public:
  Interpreter(Runtime& rt, const Program& program, const Dict* variables);

  /// The whole template. The text is in `out` afterwards.
  Result<void> Run(TextBuilder* out);

 private:
  friend class TestedIterator;
  enum class Flow : uint8_t { kNormal, kBreak, kContinue };

  // statements
  Result<Flow> RunBody(const Body& body, Activation& a);
  Result<Flow> RunStatement(const Statement& s, Activation& a);
  Result<Flow> RunIf(const Statement& s, Activation& a);
  Result<Flow> RunWith(const Statement& s, Activation& a);
  Result<Flow> RunAutoescape(const Statement& s, Activation& a);
  Result<Flow> RunFilterBlock(const Statement& s, Activation& a);
  Result<Flow> RunSetBlock(const Statement& s, Activation& a);
  Result<void> RunOutput(const Statement& s, Activation& a);
  Result<void> RunSet(const Statement& s, Activation& a);
  Result<void> RunMacro(const Statement& s, Activation& a);
  Result<void> RunCallBlock(const Statement& s, Activation& a);
  Result<void> RunBlockTag(const Statement& s, Activation& a);
  Result<Flow> RunFor(const Statement& s, Activation& a);
  Result<Value> RunRecursive(const ForNode& loop, const Value& iterable, Activation& closure, int64_t depth0);
  Result<Flow> RunLoop(const ForNode& loop, const Value& iterable, Activation& a, Activation* closure,
                       int64_t depth0);
  Result<Value> RunBlock(const Block& block, Activation* place);

  Result<void> Emit(const Value& value);
  Result<void> EmitResult(const Value& value);
  Result<void> EmitText(const Str& text);
  Result<void> Assign(const Expr& target, const Value& value, Activation& a);
  Result<void> Unpack(const Expr& target, const Value& value, Activation& a);
  void Export(const Expr& target, const Activation& a);
  Result<void> EnterScope(const Scope& scope, Activation& a);
  Result<Value> Resolve(std::string_view name);
  Activation NewActivation(const Function& function, Activation* parent);
  Value NewMacro(const MacroSource& source, Activation& a);

  // Text written by `write` as a value. A break out of it leaves kMissing.
  template <class Write>
  Result<Value> Capture(Write&& write);

  // expressions
  Result<Value> Eval(const Expr& e, Activation& a);
  Result<Value> EvalNested(const Expr& e, Activation& a);
  Result<Value> EvalName(const Expr& e, Activation& a);
  Result<Value> EvalItems(const Expr& e, Activation& a);
  Result<Value> EvalDict(const Expr& e, Activation& a);
  Result<Value> EvalUnary(const Expr& e, Activation& a);
  Result<Value> EvalBinary(const Expr& e, Activation& a);
  Result<Value> EvalConcat(const Expr& e, Activation& a);
  Result<Value> EvalCompare(const Expr& e, Activation& a);
  Result<Value> EvalCondition(const Expr& e, Activation& a);
  Result<Value> EvalAttribute(const Expr& e, Activation& a);
  Result<Value> EvalItem(const Expr& e, Activation& a);
  Result<Value> EvalSlice(const Expr& e, Activation& a);
  Result<Value> EvalCall(const Expr& e, Activation& a, const Value& caller);
  Result<Value> EvalFilter(const Expr& e, Activation& a);
  /// The filters of a filter or set block; `block` is the text they start from.
  Result<Value> EvalFilterOf(const Expr& e, const Value& block, Activation& a);
  Result<Value> ApplyFilter(const Expr& e, const Value& value, Activation& a);
  Result<Value> EvalTest(const Expr& e, Activation& a);

  struct ArgumentStore {
    std::vector<Value> positional;
    std::vector<NamedValue> named;
    [[nodiscard]] Arguments view() const { return {positional, named}; }
  };
  Result<void> EvalArguments(const CallArguments* arguments, Activation& a, ArgumentStore* store);
  Result<Value> Call(const Value& callee, const Arguments& arguments);
  Result<Value> CallMacro(const Macro& macro, const Arguments& arguments);
  Result<void> BindMacro(const MacroSource& m, const Arguments& arguments, Activation& a);
  Result<void> BindMacroExtras(const MacroSource& m, const Arguments& arguments,
                               const std::vector<bool>& used, Activation& a);

  Runtime& rt_;
  const Program& program_;
  Context root_;
  Context* context_ = &root_;
  TextBuilder* out_ = nullptr;
  // Slots of finished activations that nothing points to any more.
  std::unordered_map<const Function*, std::vector<std::span<Value>>> spare_;
};

template <class Write>
Result<Value> Interpreter::Capture(Write&& write) {
  TextBuilder captured(rt_);
  TextBuilder* const outer = out_;
  out_ = &captured;
  Result<Flow> flow = write();
  out_ = outer;
  if (!flow) return Fail(std::move(flow).error());
  rt_.captured_bytes -= static_cast<int64_t>(captured.size());
  if (*flow != Flow::kNormal) return Value();
  return captured.Finish(rt_.autoescape);
}

/// a op b, as Python has it for any values.
Result<Value> BinaryOperation(Runtime& rt, Operator op, const Value& a, const Value& b);

}  // namespace cmforge::jinja
