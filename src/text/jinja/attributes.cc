// Attributes, items, slices.
#include "text/jinja/attributes.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/callables.h"
#include "text/jinja/dict.h"
#include "text/jinja/iterate.h"
#include "text/jinja/loop.h"
#include "text/jinja/numbers.h"
#include "text/jinja/print.h"
#include "text/jinja/program.h"
#include "text/jinja/text.h"

namespace cmforge::jinja {
namespace {

// Attributes that every Python object has: the sandbox hides them, so that they are undefined with a reason.
bool IsObjectAttribute(std::string_view name) {
  static constexpr std::string_view kNames[] = {
      "__class__",   "__delattr__", "__dir__",           "__doc__",         "__eq__",
      "__format__",  "__ge__",      "__getattribute__",  "__getstate__",    "__gt__",
      "__hash__",    "__init__",    "__init_subclass__", "__le__",          "__lt__",
      "__ne__",      "__new__",     "__reduce__",        "__reduce_ex__",   "__repr__",
      "__setattr__", "__sizeof__",  "__str__",           "__subclasshook__"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

bool IsContainerAttribute(const Value& value, std::string_view name) {
  if (name == "__len__" || name == "__contains__" || name == "__getitem__" || name == "__iter__") {
    return HasLength(value) && !value.is_undefined();
  }
  return (value.is_string() || value.is_sequence()) &&
         (name == "__add__" || name == "__mul__" || name == "__rmul__");
}

Value Refused(Runtime& rt, const Value& value, std::string_view name) {
  const std::string hint =
      fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, TypeName(value));
  return rt.NewUndefined({.hint = rt.heap.CopyText(hint), .is_security = true});
}

Result<Value> NumberAttribute(const Value& value, std::string_view name) {
  const bool is_float = value.is(Kind::kFloat);
  if (name == "real") return value.is(Kind::kBool) ? Value::Int(value.small_int()) : value;
  if (name == "imag") return is_float ? Value::Float(0) : Value::Int(0);
  if (is_float) return Value();
  if (name == "numerator") return value.is(Kind::kBool) ? Value::Int(value.small_int()) : value;
  if (name == "denominator") return Value::Int(1);
  return Value();
}

Result<Value> MacroAttribute(Runtime& rt, const Macro& macro, std::string_view name) {
  const MacroSource& m = *macro.source;
  if (name == "name") return m.name.empty() ? Value::None() : rt.View(m.name);
  if (name == "catch_kwargs") return Value::Bool(m.takes_kwargs);
  if (name == "catch_varargs") return Value::Bool(m.takes_varargs);
  if (name == "caller") return Value::Bool(m.takes_caller);
  if (name == "explicit_caller") {
    return Value::Bool(std::any_of(m.parameters.begin(), m.parameters.end(),
                                   [](const MacroSource::Parameter& p) { return p.name == "caller"; }));
  }
  if (name == "arguments") {
    std::vector<Value> names;
    for (const MacroSource::Parameter& p : m.parameters) names.push_back(rt.View(p.name));
    return rt.NewList(names, Kind::kTuple);
  }
  return Value();
}

Result<Value> StringItem(Runtime& rt, const Str& text, int64_t index, bool* found) {
  if (!rt.Spend(static_cast<int64_t>(text.size / 64))) return rt.LimitFault();
  const std::string_view all = text.view();
  if (index < 0) index += static_cast<int64_t>(CountCodePoints(all));
  if (index < 0) return Value();
  const uint64_t at = SkipCodePoints(all, static_cast<uint64_t>(index));
  if (at >= all.size()) return Value();
  *found = true;
  return PieceValue(rt, text, at, at + CodePointSize(all, at));
}

// The item alone; kMissing when there is none (or the value has no items at all).
Result<Value> OwnItem(Runtime& rt, const Value& value, const Value& key) {
  switch (value.kind) {
    case Kind::kUndefined:
      return UndefinedFault(value);
    case Kind::kDict: {
      if (key.is(Kind::kList) || key.is(Kind::kDict)) return Value();  // a TypeError, which getitem swallows
      CMF_TRY(const Value* found, FindKey(*value.dict, key));
      return found == nullptr ? Value() : *found;
    }
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange: {
      if (!key.is(Kind::kInt) && !key.is(Kind::kBool)) return Value();
      int64_t index = key.small_int();
      if (value.is_string()) {
        bool found = false;
        return StringItem(rt, *value.string, index, &found);
      }
      const int64_t size =
          value.is(Kind::kRange) ? value.range->size : static_cast<int64_t>(value.list->size);
      if (index < 0) index += size;
      if (index < 0 || index >= size) return Value();
      if (value.is(Kind::kRange)) return Value::Int(value.range->at(index));
      return value.list->items[index];
    }
    case Kind::kSelf:
      if (key.is_string()) {
        const Block* block = FindBlock(*static_cast<const Program*>(value.pointer), key.text());
        if (block != nullptr) return Value::Of(Kind::kBlock, block);
      }
      return Value();
    default:
      return Value();
  }
}

// The attribute by that name as the sandbox shows it; kMissing when there is none.
Result<Value> SafeAttribute(Runtime& rt, const Value& value, std::string_view name) {
  CMF_TRY(const Value own, OwnAttribute(rt, value, name));
  if (!own.is_missing()) {
    if (name.starts_with("_")) return Refused(rt, value, name);
    if (own.is(Kind::kMethod) && own.method->method->mutates && !rt.options.allow_mutation) {
      return Refused(rt, value, name);
    }
    return own;
  }
  if (!value.is(Kind::kNamespace) && (IsObjectAttribute(name) || IsContainerAttribute(value, name))) {
    return Refused(rt, value, name);
  }
  return Value();
}

}  // namespace

Result<Value> OwnAttribute(Runtime& rt, const Value& value, std::string_view name) {
  switch (value.kind) {
    case Kind::kUndefined:
      if (name.starts_with("__")) return Value();
      return UndefinedFault(value);
    case Kind::kNamespace: {
      const Value* found = FindText(*value.dict, name);
      return found == nullptr ? Value() : *found;
    }
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kBigInt:
    case Kind::kFloat: {
      CMF_TRY(const Value field, NumberAttribute(value, name));
      if (!field.is_missing()) return field;
      break;
    }
    case Kind::kRange:
      if (name == "start") return Value::Int(value.range->start);
      if (name == "stop") return Value::Int(value.range->stop);
      if (name == "step") return Value::Int(value.range->step);
      break;
    case Kind::kTuple:
      if (value.special && name == "grouper") return value.list->items[0];
      if (value.special && name == "list") return value.list->items[1];
      break;
    case Kind::kMacro:
      return MacroAttribute(rt, *value.macro, name);
    case Kind::kLoop:
      return LoopAttribute(rt, value, name);
    case Kind::kCycler:
      if (name == "current") return value.cycler->items[value.cycler->position];
      if (name == "items") return rt.NewList(value.cycler->items, Kind::kTuple);
      if (name == "pos") return Value::Int(static_cast<int64_t>(value.cycler->position));
      break;
    case Kind::kJoiner:
      if (name == "sep") return value.joiner->separator;
      if (name == "used") return Value::Bool(value.joiner->used);
      break;
    default:
      break;
  }
  const MethodEntry* method = FindMethod(value, name);
  if (method == nullptr) return Value();
  return Value::Of(Kind::kMethod, rt.heap.New<BoundMethod>(value, method));
}

Result<Value> GetAttribute(Runtime& rt, const Value& value, std::string_view name) {
  CMF_TRY(const Value attribute, SafeAttribute(rt, value, name));
  if (!attribute.is_missing()) return attribute;
  const Str text{name.data(), name.size()};
  CMF_TRY(const Value item, OwnItem(rt, value, Value::Of(&text)));
  if (!item.is_missing()) return item;
  return rt.NoAttribute(value, name);
}

Result<Value> GetItem(Runtime& rt, const Value& value, const Value& key) {
  CMF_TRY(const Value item, OwnItem(rt, value, key));
  if (!item.is_missing()) return item;
  if (key.is_string()) {
    CMF_TRY(const Value attribute, SafeAttribute(rt, value, key.text()));
    if (!attribute.is_missing()) return attribute;
    return rt.NoAttribute(value, key.text());
  }
  TextBuilder shown(rt);
  CMF_CHECK(AppendRepr(rt, key, &shown));
  const Value nothing = rt.NoAttribute(value, shown.text().substr(0, 100));
  Undefined u = *nothing.undefined;
  u.name_is_string = false;
  return rt.NewUndefined(u);
}

namespace {

// One of the three numbers of a slice; `otherwise` for none.
Result<int64_t> SliceNumber(const Value& value, int64_t otherwise) {
  if (value.is_none()) return otherwise;
  if (value.is(Kind::kBigInt)) return value.big->is_negative() ? INT64_MIN : INT64_MAX;
  if (!value.is_integral()) {
    return Fault(error_name::kRuntime,
                 "TypeError: slice indices must be integers or None or have an __index__ method");
  }
  return value.small_int();
}

}  // namespace

Result<Value> GetSlice(Runtime& rt, const Value& value, const Value& start, const Value& stop,
                       const Value& step) {
  if (value.is_undefined()) return UndefinedFault(value);
  if (!value.is_string() && !value.is_sequence() && !value.is(Kind::kRange)) {
    if (value.is(Kind::kDict)) return Fault(error_name::kRuntime, "TypeError: unhashable type: 'slice'");
    return RuntimeFault("TypeError: '{}' object is not subscriptable", TypeName(value));
  }
  CMF_TRY(const int64_t by, SliceNumber(step, 1));
  if (by == 0) return Fault(error_name::kRuntime, "ValueError: slice step cannot be zero");
  CMF_TRY(const int64_t size, Length(rt, value));
  const auto clamp = [size, by](int64_t at) {
    if (at < 0) at = at < -size ? -1 : at + size;
    return by > 0 ? std::clamp<int64_t>(at, 0, size) : std::clamp<int64_t>(at, -1, size - 1);
  };
  CMF_TRY(const int64_t from, SliceNumber(start, by > 0 ? 0 : INT64_MAX));
  CMF_TRY(const int64_t to, SliceNumber(stop, by > 0 ? INT64_MAX : 0));
  const int64_t first = clamp(from);
  const int64_t last = stop.is_none() && by < 0 ? -1 : clamp(to);
  int64_t count = 0;
  if (by > 0 && first < last) count = (last - first - 1) / by + 1;
  if (by < 0 && first > last) count = (first - last - 1) / (by == INT64_MIN ? INT64_MAX : -by) + 1;
  if (!rt.Spend(count)) return rt.LimitFault();

  if (value.is(Kind::kRange)) {
    // Both are small: a range has at most 100000 numbers.
    const Range& r = *value.range;
    return Value::Of(Kind::kRange, rt.heap.New<Range>(r.at(first), r.at(last), by * r.step, count));
  }
  if (value.is_sequence()) {
    std::vector<Value> items;
    items.reserve(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) items.push_back(value.list->items[first + i * by]);
    return rt.NewList(items, value.kind);
  }
  const Str& text = *value.string;
  const std::string_view all = text.view();
  if (by == 1) {
    const uint64_t begin = SkipCodePoints(all, static_cast<uint64_t>(first));
    const uint64_t end = begin + SkipCodePoints(all.substr(begin), static_cast<uint64_t>(count));
    return rt.View(Piece(rt, text, begin, end), value.special);
  }
  std::vector<uint64_t> starts;  // of every code point, and the end
  CMF_CHECK(rt.Reserve(static_cast<uint64_t>(size) * sizeof(uint64_t)));
  for (uint64_t i = 0; i < all.size(); i += CodePointSize(all, i)) starts.push_back(i);
  starts.push_back(all.size());
  TextBuilder out(rt);
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(first + i * by);
    out.Append(text, starts[at], starts[at + 1]);
  }
  return out.Finish(value.special);
}

}  // namespace cmforge::jinja
