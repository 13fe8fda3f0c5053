// The arithmetic operators on any values: numbers, strings, lists, tuples.
#include "text/jinja/format.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/numbers.h"
#include "text/jinja/text.h"

namespace cmforge::jinja {
namespace {

Result<Value> AddStrings(Runtime& rt, const Value& a, const Value& b) {
  const bool is_markup = a.special || b.special;
  if (!is_markup || (a.special && b.special)) return Join(rt, *a.string, *b.string, is_markup);
  TextBuilder out(rt);  // the half that is not markup is escaped
  for (const Value& half : {a, b}) {
    if (half.special) {
      out.Append(*half.string);
    } else {
      AppendEscaped(&out, *half.string);
    }
  }
  return out.Finish(true);
}

Result<Value> AddLists(Runtime& rt, const Value& a, const Value& b) {
  std::vector<Value> items;
  CMF_CHECK(rt.Reserve((a.list->size + b.list->size) * sizeof(Value)));
  items.reserve(a.list->size + b.list->size);
  items.insert(items.end(), a.list->span().begin(), a.list->span().end());
  items.insert(items.end(), b.list->span().begin(), b.list->span().end());
  return rt.NewList(items, a.kind);
}

Result<Value> Repeat(Runtime& rt, const Value& value, const Value& times) {
  CMF_TRY(const int64_t given, ToIndex(times));
  const auto count = static_cast<uint64_t>(std::max<int64_t>(given, 0));
  const uint64_t each = value.is_string() ? value.string->size : value.list->size * sizeof(Value);
  const auto limit = static_cast<uint64_t>(rt.options.limits.memory_bytes);
  CMF_CHECK(rt.Reserve(each != 0 && count > limit / each ? limit + 1 : each * count));
  if (value.is_string()) {
    TextBuilder out(rt);
    if (each != 0) {
      for (uint64_t i = 0; i < count; ++i) out.Append(*value.string);
    }
    return out.Finish(value.special);
  }
  std::vector<Value> items;
  if (each != 0) {
    items.reserve(value.list->size * count);
    for (uint64_t i = 0; i < count; ++i) {
      items.insert(items.end(), value.list->span().begin(), value.list->span().end());
    }
  }
  return rt.NewList(items, value.kind);
}

}  // namespace

Result<Value> BinaryOperation(Runtime& rt, Operator op, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return Arithmetic(rt, op, a, b);
  if (op == Operator::kModulo && a.is_string()) return PercentFormat(rt, a, b);
  if (a.is_undefined()) return UndefinedFault(a);
  if (b.is_undefined()) return UndefinedFault(b);
  const auto repeats = [](const Value& v) { return v.is_string() || v.is_sequence(); };
  if (op == Operator::kAdd && a.is_string() && b.is_string()) return AddStrings(rt, a, b);
  if (op == Operator::kAdd && a.is_sequence() && a.kind == b.kind) return AddLists(rt, a, b);
  if (op == Operator::kMultiply && repeats(a) && b.is_integral()) return Repeat(rt, a, b);
  if (op == Operator::kMultiply && a.is_integral() && repeats(b)) return Repeat(rt, b, a);
  if (op == Operator::kAdd && a.is_string()) {
    return RuntimeFault("TypeError: can only concatenate str (not \"{}\") to str", TypeName(b));
  }
  return RuntimeFault("TypeError: unsupported operand type(s) for {}: '{}' and '{}'", OperatorSign(op),
                      TypeName(a), TypeName(b));
}

}  // namespace cmforge::jinja
