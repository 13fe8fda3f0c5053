// Truth, equality, order, hash.
#include "text/jinja/compare.h"

#include <bit>
#include <cmath>

#include "text/jinja/dict.h"
#include "text/jinja/iterate.h"
#include "text/jinja/loop.h"
#include "text/jinja/numbers.h"
#include "text/jinja/text.h"

namespace cmforge::jinja {
namespace {

std::string_view OrderSign(Order order) {
  switch (order) {
    case Order::kLess:
      return "<";
    case Order::kLessEqual:
      return "<=";
    case Order::kGreater:
      return ">";
    case Order::kGreaterEqual:
      return ">=";
  }
  return "<";
}

bool Holds(Order order, int comparison) {
  switch (order) {
    case Order::kLess:
      return comparison < 0;
    case Order::kLessEqual:
      return comparison <= 0;
    case Order::kGreater:
      return comparison > 0;
    case Order::kGreaterEqual:
      return comparison >= 0;
  }
  return false;
}

// Code points order as their UTF-8 does.
int CompareText(std::string_view a, std::string_view b) { return a.compare(b); }

Result<bool> EqualAt(Runtime& rt, const Value& a, const Value& b, int depth);

Result<bool> EqualLists(Runtime& rt, const List& a, const List& b, int depth) {
  if (a.size != b.size) return false;
  for (uint64_t i = 0; i < a.size; ++i) {
    CMF_TRY(const bool same, EqualAt(rt, a.items[i], b.items[i], depth));
    if (!same) return false;
  }
  return true;
}

Result<bool> EqualDicts(Runtime& rt, const Dict& a, const Dict& b, int depth) {
  if (a.size != b.size) return false;
  for (const Dict::Entry& e : a.span()) {
    const Value* other = FindHashed(b, e.key, e.hash);
    if (other == nullptr) return false;
    CMF_TRY(const bool same, EqualAt(rt, e.value, *other, depth));
    if (!same) return false;
  }
  return true;
}

Result<bool> EqualAt(Runtime& rt, const Value& a, const Value& b, int depth) {
  if (!rt.Spend()) return rt.LimitFault();
  if (depth > kMaxDataDepth) return DepthFault();
  if (a.is_sequence() && a.kind == b.kind) {
    if (a.list == b.list) return true;
    return EqualLists(rt, *a.list, *b.list, depth + 1);
  }
  if (a.is(Kind::kDict) && b.is(Kind::kDict)) return EqualDicts(rt, *a.dict, *b.dict, depth + 1);
  if (a.is_string() && b.is_string() && !rt.Spend(static_cast<int64_t>(a.string->size / 64)))
    return rt.LimitFault();
  return KeyEqual(a, b);
}

uint64_t Mix(uint64_t h) {
  h ^= h >> 33;
  h *= 0xFF51AFD7ED558CCDu;
  h ^= h >> 33;
  h *= 0xC4CEB9FE1A85EC53u;
  return h ^ (h >> 33);
}

uint64_t HashText(std::string_view text) {
  uint64_t h = 0xCBF29CE484222325u ^ text.size();
  size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, text.data() + i, 8);
    h = Mix(h ^ word);
  }
  uint64_t rest = 0;
  std::memcpy(&rest, text.data() + i, text.size() - i);
  return Mix(h ^ rest);
}

Result<uint64_t> HashAt(const Value& value, int depth) {
  if (depth > kMaxDataDepth) return DepthFault();
  switch (value.kind) {
    case Kind::kString:
      return HashText(value.text());
    case Kind::kBool:
    case Kind::kInt:
      return Mix(static_cast<uint64_t>(value.small_int()));
    case Kind::kBigInt:
      return Mix(std::bit_cast<uint64_t>(value.big->ToDouble()));
    case Kind::kFloat: {
      const double d = value.real;
      if (d == std::trunc(d) && d >= -0x1p63 && d < 0x1p63)
        return Mix(static_cast<uint64_t>(static_cast<int64_t>(d)));
      return Mix(std::bit_cast<uint64_t>(d));
    }
    case Kind::kTuple: {
      uint64_t h = 0x9E3779B97F4A7C15u;
      for (const Value& item : value.list->span()) {
        CMF_TRY(const uint64_t part, HashAt(item, depth + 1));
        h = Mix(h * 31 + part);
      }
      return h;
    }
    case Kind::kNone:
    case Kind::kUndefined:
      return Mix(static_cast<uint64_t>(value.kind));
    case Kind::kList:
    case Kind::kDict:
    case Kind::kDictView:
      return RuntimeFault("TypeError: unhashable type: '{}'", TypeName(value));
    default:
      return Mix(reinterpret_cast<uintptr_t>(value.pointer));
  }
}

Result<bool> OrderedAt(Runtime& rt, const Value& a, const Value& b, Order order, int depth) {
  if (!rt.Spend()) return rt.LimitFault();
  if (depth > kMaxDataDepth) return DepthFault();
  if (a.is_undefined()) return UndefinedFault(a);
  if (b.is_undefined()) return UndefinedFault(b);
  if (a.is_number() && b.is_number()) {
    const std::partial_ordering c = CompareNumbers(a, b);
    if (c == std::partial_ordering::unordered) return false;
    return Holds(order, c < 0 ? -1 : (c > 0 ? 1 : 0));
  }
  if (a.is_string() && b.is_string()) return Holds(order, CompareText(a.text(), b.text()));
  if (a.is_sequence() && a.kind == b.kind) {
    const uint64_t common = std::min(a.list->size, b.list->size);
    for (uint64_t i = 0; i < common; ++i) {
      const Value& x = a.list->items[i];
      const Value& y = b.list->items[i];
      CMF_TRY(const bool same, EqualAt(rt, x, y, depth + 1));
      if (!same) return OrderedAt(rt, x, y, order, depth + 1);
    }
    return Holds(order, a.list->size < b.list->size ? -1 : (a.list->size > b.list->size ? 1 : 0));
  }
  return RuntimeFault("TypeError: '{}' not supported between instances of '{}' and '{}'", OrderSign(order),
                      TypeName(a), TypeName(b));
}

}  // namespace

bool IsTrue(const Value& value) {
  switch (value.kind) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return value.boolean;
    case Kind::kInt:
      return value.integer != 0;
    case Kind::kFloat:
      return value.real != 0;
    case Kind::kString:
      return value.string->size != 0;
    case Kind::kList:
    case Kind::kTuple:
      return value.list->size != 0;
    case Kind::kDict:
      return value.dict->size != 0;
    case Kind::kDictView:
      return value.view->dict->size != 0;
    case Kind::kRange:
      return value.range->size != 0;
    default:
      return true;
  }
}

bool KeyEqual(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return CompareNumbers(a, b) == std::partial_ordering::equivalent;
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::kNone:
    case Kind::kUndefined:
    case Kind::kMissing:
      return true;
    case Kind::kString:
      return a.text() == b.text();
    case Kind::kTuple:
      if (a.list->size != b.list->size) return false;
      for (uint64_t i = 0; i < a.list->size; ++i) {
        if (!KeyEqual(a.list->items[i], b.list->items[i])) return false;
      }
      return true;
    case Kind::kRange:
      return a.range->size == b.range->size &&
             (a.range->size == 0 ||
              (a.range->start == b.range->start && (a.range->size == 1 || a.range->step == b.range->step)));
    case Kind::kMethod:
      return a.method->method == b.method->method && IsSame(a.method->self, b.method->self);
    default:
      return a.pointer == b.pointer;
  }
}

Result<bool> Equal(Runtime& rt, const Value& a, const Value& b) { return EqualAt(rt, a, b, 0); }

Result<uint64_t> Hash(const Value& value) { return HashAt(value, 0); }

Result<bool> Ordered(Runtime& rt, const Value& a, const Value& b, Order order) {
  return OrderedAt(rt, a, b, order, 0);
}

Result<bool> Contains(Runtime& rt, const Value& container, const Value& item) {
  switch (container.kind) {
    case Kind::kString:
      if (item.is_undefined()) break;
      if (!item.is_string()) break;
      if (!rt.Spend(static_cast<int64_t>(container.string->size / 64))) return rt.LimitFault();
      return Find(container.text(), item.text()) != std::string_view::npos;
    case Kind::kDict: {
      CMF_TRY(const Value* found, FindKey(*container.dict, item));
      return found != nullptr;
    }
    case Kind::kDictView:
      if (container.view->what == DictView::What::kKeys) {
        CMF_TRY(const Value* found, FindKey(*container.view->dict, item));
        return found != nullptr;
      }
      [[fallthrough]];
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
    case Kind::kIterator:
    case Kind::kUndefined:
    case Kind::kLoop: {
      CMF_TRY(Iterator* const iterator, Iterate(rt, container));
      while (true) {
        CMF_TRY(const Value next, iterator->Next(rt));
        if (next.is_missing()) return false;
        CMF_TRY(const bool same, Equal(rt, next, item));
        if (same) return true;
      }
    }
    default:
      return RuntimeFault("TypeError: argument of type '{}' is not iterable", TypeName(container));
  }
  return RuntimeFault("TypeError: 'in <string>' requires string as left operand, not {}", TypeName(item));
}

bool IsSame(const Value& a, const Value& b) {
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::kNone:
    case Kind::kMissing:
      return true;
    case Kind::kBool:
      return a.boolean == b.boolean;
    case Kind::kInt:
      return a.integer == b.integer;
    case Kind::kString:
      return a.text() == b.text() && (a.string->data == b.string->data || a.string->size <= 1);
    default:
      return a.pointer == b.pointer;
  }
}

}  // namespace cmforge::jinja
