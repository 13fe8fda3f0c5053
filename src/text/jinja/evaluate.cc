// Expressions.
#include <algorithm>

#include "text/jinja/attributes.h"
#include "text/jinja/compare.h"
#include "text/jinja/dict.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/iterate.h"
#include "text/jinja/print.h"

namespace cmforge::jinja {

Result<Value> Interpreter::Eval(const Expr& e, Activation& a) {
  if (!rt_.Spend()) return rt_.LimitFault();
  if (e.kind == ExprKind::kConstant) return e.constant;
  if (e.kind == ExprKind::kName) return EvalName(e, a);
  if (!rt_.HasStack()) return DepthFault();
  return EvalNested(e, a);
}

Result<Value> Interpreter::EvalNested(const Expr& e, Activation& a) {
  switch (e.kind) {
    case ExprKind::kConstant:
    case ExprKind::kName:
    case ExprKind::kNamespaceTarget:
      return EvalName(e, a);
    case ExprKind::kTuple:
    case ExprKind::kList:
      return EvalItems(e, a);
    case ExprKind::kDict:
      return EvalDict(e, a);
    case ExprKind::kNegate:
    case ExprKind::kPlus:
    case ExprKind::kNot:
      return EvalUnary(e, a);
    case ExprKind::kBinary:
    case ExprKind::kAnd:
    case ExprKind::kOr:
      return EvalBinary(e, a);
    case ExprKind::kConcat:
      return EvalConcat(e, a);
    case ExprKind::kCompare:
      return EvalCompare(e, a);
    case ExprKind::kCondition:
      return EvalCondition(e, a);
    case ExprKind::kAttribute:
      return EvalAttribute(e, a);
    case ExprKind::kItem:
      return EvalItem(e, a);
    case ExprKind::kSlice:
      return EvalSlice(e, a);
    case ExprKind::kCall:
      return EvalCall(e, a, Value());
    case ExprKind::kFilter:
      return EvalFilter(e, a);
    case ExprKind::kTest:
      return EvalTest(e, a);
  }
  return Value();
}

Result<Value> Interpreter::EvalName(const Expr& e, Activation& a) {
  const Activation* home = &a;
  for (uint32_t i = 0; i < e.variable.hops; ++i) home = home->parent;
  const Value& value = home->slots[e.variable.slot];
  if (!value.is_missing()) return value;
  return rt_.NewUndefined({.name = e.text});
}

Result<Value> Interpreter::EvalItems(const Expr& e, Activation& a) {
  std::vector<Value> items;
  items.reserve(e.items.size());
  for (const Expr* item : e.items) {
    CMF_TRY(const Value value, Eval(*item, a));
    items.push_back(value);
  }
  return rt_.NewList(items, e.kind == ExprKind::kTuple ? Kind::kTuple : Kind::kList);
}

Result<Value> Interpreter::EvalDict(const Expr& e, Activation& a) {
  Dict* dict = rt_.heap.New<Dict>();
  for (size_t i = 0; i < e.items.size(); i += 2) {
    CMF_TRY(const Value key, Eval(*e.items[i], a));
    CMF_TRY(const Value value, Eval(*e.items[i + 1], a));
    CMF_CHECK(SetKey(rt_, dict, key, value));
  }
  return DictValue(dict);
}

Result<Value> Interpreter::EvalUnary(const Expr& e, Activation& a) {
  CMF_TRY(const Value value, Eval(*e.a, a));
  if (e.kind == ExprKind::kNot) return Value::Bool(!IsTrue(value));
  if (value.is_undefined()) return UndefinedFault(value);
  if (!value.is_number()) {
    return RuntimeFault("TypeError: bad operand type for unary {}: '{}'",
                        e.kind == ExprKind::kNegate ? '-' : '+', TypeName(value));
  }
  if (e.kind == ExprKind::kNegate) return Negate(rt_, value);
  return value.is(Kind::kBool) ? Value::Int(value.small_int()) : value;
}

Result<Value> Interpreter::EvalBinary(const Expr& e, Activation& a) {
  CMF_TRY(const Value left, Eval(*e.a, a));
  if (e.kind == ExprKind::kAnd && !IsTrue(left)) return left;
  if (e.kind == ExprKind::kOr && IsTrue(left)) return left;
  CMF_TRY(const Value right, Eval(*e.b, a));
  if (e.kind != ExprKind::kBinary) return right;
  rt_.line = e.line;
  return BinaryOperation(rt_, e.op, left, right);
}

Result<Value> Interpreter::EvalConcat(const Expr& e, Activation& a) {
  std::vector<Value> parts;
  bool is_markup = false;
  for (const Expr* item : e.items) {
    CMF_TRY(const Value value, Eval(*item, a));
    CMF_TRY(const Value text, ToText(rt_, value));
    is_markup |= text.is_markup();
    parts.push_back(text);
  }
  // With autoescape, one piece of markup makes the whole markup.
  is_markup = is_markup && rt_.autoescape;
  TextBuilder out(rt_);
  for (const Value& part : parts) {
    if (is_markup && !part.is_markup()) {
      AppendEscaped(&out, *part.string);
    } else {
      out.Append(*part.string);
    }
  }
  return out.Finish(is_markup);
}

Result<Value> Interpreter::EvalCompare(const Expr& e, Activation& a) {
  CMF_TRY(Value left, Eval(*e.items[0], a));
  for (size_t i = 0; i < e.comparisons.size(); ++i) {
    CMF_TRY(const Value right, Eval(*e.items[i + 1], a));
    rt_.line = e.line;
    bool holds = false;
    switch (e.comparisons[i]) {
      case Comparison::kEqual: {
        CMF_TRY(holds, Equal(rt_, left, right));
        break;
      }
      case Comparison::kNotEqual: {
        CMF_TRY(holds, Equal(rt_, left, right));
        holds = !holds;
        break;
      }
      case Comparison::kLess: {
        CMF_TRY(holds, Ordered(rt_, left, right, Order::kLess));
        break;
      }
      case Comparison::kLessEqual: {
        CMF_TRY(holds, Ordered(rt_, left, right, Order::kLessEqual));
        break;
      }
      case Comparison::kGreater: {
        CMF_TRY(holds, Ordered(rt_, left, right, Order::kGreater));
        break;
      }
      case Comparison::kGreaterEqual: {
        CMF_TRY(holds, Ordered(rt_, left, right, Order::kGreaterEqual));
        break;
      }
      case Comparison::kIn: {
        CMF_TRY(holds, Contains(rt_, right, left));
        break;
      }
      case Comparison::kNotIn: {
        CMF_TRY(holds, Contains(rt_, right, left));
        holds = !holds;
        break;
      }
    }
    if (!holds) return Value::Bool(false);
    left = right;
  }
  return Value::Bool(true);
}

Result<Value> Interpreter::EvalCondition(const Expr& e, Activation& a) {
  CMF_TRY(const Value test, Eval(*e.b, a));
  if (IsTrue(test)) return Eval(*e.a, a);
  if (e.c != nullptr) return Eval(*e.c, a);
  return rt_.NewUndefined(
      {.hint = "the inline if-expression evaluated to false and no else section was defined."});
}

Result<Value> Interpreter::EvalAttribute(const Expr& e, Activation& a) {
  CMF_TRY(const Value value, Eval(*e.a, a));
  rt_.line = e.line;
  return GetAttribute(rt_, value, e.text);
}

Result<Value> Interpreter::EvalItem(const Expr& e, Activation& a) {
  CMF_TRY(const Value value, Eval(*e.a, a));
  CMF_TRY(const Value key, Eval(*e.b, a));
  rt_.line = e.line;
  return GetItem(rt_, value, key);
}

Result<Value> Interpreter::EvalSlice(const Expr& e, Activation& a) {
  CMF_TRY(const Value value, Eval(*e.a, a));
  Value parts[3] = {Value::None(), Value::None(), Value::None()};
  for (size_t i = 0; i < 3; ++i) {
    if (e.items[i] == nullptr) continue;
    CMF_TRY(parts[i], Eval(*e.items[i], a));
  }
  rt_.line = e.line;
  return GetSlice(rt_, value, parts[0], parts[1], parts[2]);
}

Result<void> Interpreter::EvalArguments(const CallArguments* arguments, Activation& a, ArgumentStore* store) {
  if (arguments == nullptr) return {};
  for (const Expr* item : arguments->positional) {
    CMF_TRY(const Value value, Eval(*item, a));
    store->positional.push_back(value);
  }
  for (const CallArguments::Named& item : arguments->named) {
    CMF_TRY(const Value value, Eval(*item.value, a));
    store->named.push_back({item.name, value});
  }
  if (arguments->more != nullptr) {
    CMF_TRY(const Value more, Eval(*arguments->more, a));
    CMF_TRY(const std::vector<Value> items, Collect(rt_, more));
    store->positional.insert(store->positional.end(), items.begin(), items.end());
  }
  if (arguments->more_named != nullptr) {
    CMF_TRY(const Value more, Eval(*arguments->more_named, a));
    if (!more.is(Kind::kDict)) {
      return RuntimeFault("TypeError: argument after ** must be a mapping, not {}", TypeName(more));
    }
    for (const Dict::Entry& entry : more.dict->span()) {
      if (!entry.key.is_string()) return Fault(error_name::kRuntime, "TypeError: keywords must be strings");
      const std::string_view name = entry.key.text();
      const bool is_twice = std::any_of(arguments->named.begin(), arguments->named.end(),
                                        [name](const CallArguments::Named& n) { return n.name == name; });
      if (is_twice) return RuntimeFault("TypeError: got multiple values for keyword argument '{}'", name);
      store->named.push_back({name, entry.value});
    }
    if (!rt_.Spend(static_cast<int64_t>(more.dict->size * (1 + arguments->named.size()))))
      return rt_.LimitFault();
  }
  return {};
}

Result<Value> Interpreter::EvalCall(const Expr& e, Activation& a, const Value& caller) {
  CMF_TRY(const Value callee, Eval(*e.a, a));
  ArgumentStore store;
  CMF_CHECK(EvalArguments(e.arguments, a, &store));
  if (!caller.is_missing()) store.named.push_back({"caller", caller});
  rt_.line = e.line;
  return Call(callee, store.view());
}

Result<Value> Interpreter::EvalFilter(const Expr& e, Activation& a) {
  CMF_TRY(const Value value, Eval(*e.a, a));
  return ApplyFilter(e, value, a);
}

Result<Value> Interpreter::EvalFilterOf(const Expr& e, const Value& block, Activation& a) {
  Value value = block;
  if (e.a != nullptr) {
    CMF_TRY(value, EvalFilterOf(*e.a, block, a));
  }
  return ApplyFilter(e, value, a);
}

Result<Value> Interpreter::ApplyFilter(const Expr& e, const Value& value, Activation& a) {
  if (e.builtin == nullptr)
    return Fault(error_name::kTemplate, fmt::format("no filter named '{}' found", e.text));
  ArgumentStore store;
  CMF_CHECK(EvalArguments(e.arguments, a, &store));
  rt_.line = e.line;
  return ApplyBuiltin(rt_, *e.builtin, value, store.view());
}

Result<Value> Interpreter::EvalTest(const Expr& e, Activation& a) {
  CMF_TRY(const Value value, Eval(*e.a, a));
  if (e.builtin == nullptr)
    return Fault(error_name::kTemplate, fmt::format("no test named '{}' found", e.text));
  ArgumentStore store;
  CMF_CHECK(EvalArguments(e.arguments, a, &store));
  rt_.line = e.line;
  return ApplyBuiltin(rt_, *e.builtin, value, store.view());
}

}  // namespace cmforge::jinja
