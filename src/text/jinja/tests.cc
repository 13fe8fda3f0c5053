// The tests behind `is`.
#include "text/jinja/callables.h"
#include "text/jinja/compare.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/iterate.h"
#include "text/jinja/numbers.h"
#include "text/jinja/print.h"
#include "text/jinja/string_methods.h"

namespace cmforge::jinja {
namespace {

Result<bool> RemainderIs(Runtime& rt, const Value& value, const Value& divisor, int64_t wanted) {
  CMF_TRY(const Value rest, BinaryOperation(rt, Operator::kModulo, value, divisor));
  return Equal(rt, rest, Value::Int(wanted));
}

Result<Value> Truth(Result<bool> result) {
  if (!result) return Fail(std::move(result).error());
  return Value::Bool(*result);
}

Result<Value> Odd(Runtime& rt, const Bound& b) { return Truth(RemainderIs(rt, b[0], Value::Int(2), 1)); }
Result<Value> Even(Runtime& rt, const Bound& b) { return Truth(RemainderIs(rt, b[0], Value::Int(2), 0)); }
Result<Value> DivisibleBy(Runtime& rt, const Bound& b) { return Truth(RemainderIs(rt, b[0], b[1], 0)); }

Result<Value> Defined(Runtime&, const Bound& b) { return Value::Bool(!b[0].is_undefined()); }
Result<Value> IsUndefined(Runtime&, const Bound& b) { return Value::Bool(b[0].is_undefined()); }
Result<Value> IsNone(Runtime&, const Bound& b) { return Value::Bool(b[0].is_none()); }
Result<Value> Boolean(Runtime&, const Bound& b) { return Value::Bool(b[0].is(Kind::kBool)); }
Result<Value> False(Runtime&, const Bound& b) { return Value::Bool(b[0].is(Kind::kBool) && !b[0].boolean); }
Result<Value> True(Runtime&, const Bound& b) { return Value::Bool(b[0].is(Kind::kBool) && b[0].boolean); }
Result<Value> Integer(Runtime&, const Bound& b) {
  return Value::Bool(b[0].is(Kind::kInt) || b[0].is(Kind::kBigInt));
}
Result<Value> Float(Runtime&, const Bound& b) { return Value::Bool(b[0].is(Kind::kFloat)); }
Result<Value> Number(Runtime&, const Bound& b) { return Value::Bool(b[0].is_number()); }
Result<Value> String(Runtime&, const Bound& b) { return Value::Bool(b[0].is_string()); }
Result<Value> Mapping(Runtime&, const Bound& b) { return Value::Bool(b[0].is(Kind::kDict)); }
Result<Value> Iterable(Runtime&, const Bound& b) { return Value::Bool(IsIterable(b[0])); }
Result<Value> Escaped(Runtime&, const Bound& b) { return Value::Bool(b[0].is_markup()); }
Result<Value> SameAs(Runtime&, const Bound& b) { return Value::Bool(IsSame(b[0], b[1])); }

// What has a length and can be indexed: views of dictionaries and loop objects cannot.
Result<Value> Sequence(Runtime&, const Bound& b) {
  return Value::Bool(HasLength(b[0]) && !b[0].is(Kind::kDictView) && !b[0].is(Kind::kLoop));
}

Result<Value> Callable(Runtime&, const Bound& b) {
  switch (b[0].kind) {
    case Kind::kUndefined:  // has a __call__, which fails
    case Kind::kBuiltin:
    case Kind::kMethod:
    case Kind::kMacro:
    case Kind::kLoop:
    case Kind::kJoiner:
    case Kind::kBlock:
      return Value::Bool(true);
    default:
      return Value::Bool(false);
  }
}

template <bool kUpper>
Result<Value> OneCase(Runtime& rt, const Bound& b) {
  CMF_TRY(const Value text, ToText(rt, b[0]));
  return Value::Bool(IsAllOneCase(text.text(), kUpper));
}

Result<Value> In(Runtime& rt, const Bound& b) { return Truth(Contains(rt, b[1], b[0])); }
Result<Value> EqualTo(Runtime& rt, const Bound& b) { return Truth(Equal(rt, b[0], b[1])); }
Result<Value> NotEqual(Runtime& rt, const Bound& b) {
  CMF_TRY(const bool same, Equal(rt, b[0], b[1]));
  return Value::Bool(!same);
}

template <Order kOrder>
Result<Value> InOrder(Runtime& rt, const Bound& b) {
  return Truth(Ordered(rt, b[0], b[1], kOrder));
}

Result<Value> IsFilter(Runtime&, const Bound& b) {
  CMF_CHECK(Hash(b[0]));
  return Value::Bool(b[0].is_string() && FindFilter(b[0].text()) != nullptr);
}
Result<Value> IsTest(Runtime&, const Bound& b) {
  CMF_CHECK(Hash(b[0]));
  return Value::Bool(b[0].is_string() && FindTest(b[0].text()) != nullptr);
}

constexpr Builtin kTests[] = {
    {"!=", "/a /b", NotEqual},
    {"<", "/a /b", InOrder<Order::kLess>},
    {"<=", "/a /b", InOrder<Order::kLessEqual>},
    {"==", "/a /b", EqualTo},
    {">", "/a /b", InOrder<Order::kGreater>},
    {">=", "/a /b", InOrder<Order::kGreaterEqual>},
    {"boolean", "value", Boolean},
    {"callable", "/obj", Callable},
    {"defined", "value", Defined},
    {"divisibleby", "value num", DivisibleBy},
    {"eq", "/a /b", EqualTo},
    {"equalto", "/a /b", EqualTo},
    {"escaped", "value", Escaped},
    {"even", "value", Even},
    {"false", "value", False},
    {"filter", "value", IsFilter},
    {"float", "value", Float},
    {"ge", "/a /b", InOrder<Order::kGreaterEqual>},
    {"greaterthan", "/a /b", InOrder<Order::kGreater>},
    {"gt", "/a /b", InOrder<Order::kGreater>},
    {"in", "value seq", In},
    {"integer", "value", Integer},
    {"iterable", "value", Iterable},
    {"le", "/a /b", InOrder<Order::kLessEqual>},
    {"lessthan", "/a /b", InOrder<Order::kLess>},
    {"lower", "value", OneCase<false>},
    {"lt", "/a /b", InOrder<Order::kLess>},
    {"mapping", "value", Mapping},
    {"ne", "/a /b", NotEqual},
    {"none", "value", IsNone},
    {"number", "value", Number},
    {"odd", "value", Odd},
    {"sameas", "value other", SameAs},
    {"sequence", "value", Sequence},
    {"string", "value", String},
    {"test", "value", IsTest},
    {"true", "value", True},
    {"undefined", "value", IsUndefined},
    {"upper", "value", OneCase<true>},
};

}  // namespace

const Builtin* FindTest(std::string_view name) { return FindSorted(kTests, name); }

}  // namespace cmforge::jinja
