// Calling things: builtins, methods, macros, recursive loops, blocks.
#include <algorithm>

#include "text/jinja/dict.h"
#include "text/jinja/interpreter.h"

namespace cmforge::jinja {

Result<Value> Interpreter::Call(const Value& callee, const Arguments& arguments) {
  switch (callee.kind) {
    case Kind::kUndefined:
      return UndefinedFault(callee);
    case Kind::kBuiltin:
      return CallBuiltin(rt_, *callee.builtin, Value(), arguments);
    case Kind::kMethod:
      return CallBuiltin(rt_, callee.method->method->builtin, callee.method->self, arguments);
    case Kind::kMacro:
      return CallMacro(*callee.macro, arguments);
    case Kind::kLoop: {
      const LoopState& loop = *callee.loop;
      if (arguments.positional.size() != 1 || !arguments.named.empty()) {
        return Fault(error_name::kRuntime, "TypeError: loop() takes one argument");
      }
      if (loop.recursive == nullptr) {
        return Fault(error_name::kRuntime,
                     "TypeError: The loop must have the 'recursive' marker to be called recursively.");
      }
      return RunRecursive(*loop.recursive, arguments.positional[0], *loop.closure, loop.depth0 + 1);
    }
    case Kind::kJoiner:
      if (!callee.joiner->used) {
        callee.joiner->used = true;
        return rt_.View(std::string_view());
      }
      return callee.joiner->separator;
    case Kind::kBlock:
      return RunBlock(*callee.block, nullptr);
    default:
      return RuntimeFault("TypeError: '{}' object is not callable", TypeName(callee));
  }
}

Result<void> Interpreter::BindMacro(const MacroSource& m, const Arguments& arguments, Activation& a) {
  std::vector<bool> used(arguments.named.size(), false);
  const size_t count = m.parameters.size();
  for (size_t i = 0; i < count; ++i) {
    Value& slot = a.slots[m.parameters[i].slot];
    if (i < arguments.positional.size()) {
      slot = arguments.positional[i];
      continue;
    }
    for (size_t k = 0; k < used.size(); ++k) {
      if (arguments.named[k].name != m.parameters[i].name) continue;
      slot = arguments.named[k].value;
      used[k] = true;
    }
  }
  return BindMacroExtras(m, arguments, used, a);
}

Result<void> Interpreter::BindMacroExtras(const MacroSource& m, const Arguments& arguments,
                                          const std::vector<bool>& used_names, Activation& a) {
  std::vector<bool> used = used_names;
  const bool has_own_caller = std::any_of(m.parameters.begin(), m.parameters.end(),
                                          [](const MacroSource::Parameter& p) { return p.name == "caller"; });
  if (m.takes_caller && !has_own_caller) {
    Value caller = Value::None();
    for (size_t k = 0; k < used.size(); ++k) {
      if (arguments.named[k].name != "caller") continue;
      caller = arguments.named[k].value;
      used[k] = true;
    }
    if (caller.is_none()) caller = rt_.NewUndefined({.hint = "No caller defined", .name = "caller"});
    a.slots[m.caller_slot] = caller;
  }
  if (m.takes_kwargs) {
    Dict* rest = rt_.heap.New<Dict>();
    for (size_t k = 0; k < used.size(); ++k) {
      if (!used[k]) CMF_CHECK(SetText(rt_, rest, arguments.named[k].name, arguments.named[k].value));
    }
    a.slots[m.kwargs_slot] = DictValue(rest);
  } else {
    for (size_t k = 0; k < used.size(); ++k) {
      if (used[k]) continue;
      return RuntimeFault("TypeError: macro '{}' takes no keyword argument '{}'", m.name,
                          arguments.named[k].name);
    }
  }
  const size_t taken = std::min(m.parameters.size(), arguments.positional.size());
  if (m.takes_varargs) {
    CMF_TRY(a.slots[m.varargs_slot], rt_.NewList(arguments.positional.subspan(taken), Kind::kTuple));
  } else if (arguments.positional.size() > taken) {
    return RuntimeFault("TypeError: macro '{}' takes not more than {} argument(s)", m.name,
                        m.parameters.size());
  }
  return {};
}

Result<Value> Interpreter::CallMacro(const Macro& macro, const Arguments& arguments) {
  if (rt_.call_depth >= kMaxCallDepth || !rt_.HasStack()) return DepthFault();
  const MacroSource& m = *macro.source;
  const int line = rt_.line;
  Activation a = NewActivation(m.function, macro.closure);
  CMF_CHECK(BindMacro(m, arguments, a));
  ++rt_.call_depth;
  Result<Value> text = Capture([&]() -> Result<Flow> {
    CMF_CHECK(EnterScope(m.scope, a));
    for (const MacroSource::Parameter& p : m.parameters) {
      Value& slot = a.slots[p.slot];
      if (!slot.is_missing()) continue;
      if (p.otherwise != nullptr) {
        CMF_TRY(slot, Eval(*p.otherwise, a));
      } else {
        const std::string hint = fmt::format("parameter '{}' was not provided", p.name);
        slot = rt_.NewUndefined({.hint = rt_.heap.CopyText(hint), .name = p.name});
      }
    }
    return RunBody(m.body, a);
  });
  --rt_.call_depth;
  if (!m.function.has_inner) spare_[&m.function].push_back(a.slots);
  if (text) rt_.line = line;  // an error keeps the line where it happened
  return text;
}

}  // namespace cmforge::jinja
