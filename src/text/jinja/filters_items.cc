// Filters of sequences and mappings.
#include <algorithm>

#include "text/jinja/attributes.h"
#include "text/jinja/compare.h"
#include "text/jinja/dict.h"
#include "text/jinja/filters.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/iterate.h"
#include "text/jinja/numbers.h"
#include "text/jinja/sorting.h"
#include "text/jinja/string_methods.h"
#include "text/jinja/text.h"

namespace cmforge::jinja::filters {

Result<Value> GetPath(Runtime& rt, const Value& item, const Value& attribute, const Value& fallback) {
  const bool has_fallback = !fallback.is_missing() && !fallback.is_none();
  if (attribute.is_missing() || attribute.is_none()) return item;
  const auto step = [&](const Value& from, const Value& key) -> Result<Value> {
    CMF_TRY(const Value next, GetItem(rt, from, key));
    return has_fallback && next.is_undefined() ? fallback : next;
  };
  if (!attribute.is_string()) return step(item, attribute);
  Value value = item;
  std::string_view rest = attribute.text();
  while (true) {
    if (!rt.Spend()) return rt.LimitFault();
    const size_t end = std::min(rest.find('.'), rest.size());
    const std::string_view part = rest.substr(0, end);
    Value key = rt.View(part);
    const bool is_number =
        !part.empty() && std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (is_number) key = rt.Integer(ParseInteger(part).value_or(BigInt(0)));
    CMF_TRY(value, step(value, key));
    if (end == rest.size()) return value;
    rest.remove_prefix(end + 1);
  }
}

Result<Value> IgnoreCase(Runtime& rt, const Value& value, bool case_sensitive) {
  if (case_sensitive || !value.is_string()) return value;
  return ToLower(rt, value);
}

namespace {

// Generators of the reference work, and fail, when the first item is asked for.
class DeferredIterator final : public Iterator {
 public:
  using Make = Result<Value> (*)(Runtime& rt, const Bound& b);  // gives a list
  DeferredIterator(const Bound& b, Make make, std::string_view description)
      : b_(b), make_(make), description_(description) {}

  Result<Value> Next(Runtime& rt) override {
    if (items_ == nullptr) {
      CMF_TRY(const Value list, make_(rt, b_));
      CMF_TRY(items_, Iterate(rt, list));
    }
    return items_->Next(rt);
  }
  [[nodiscard]] std::string_view description() const override { return description_; }

 private:
  Bound b_;
  Make make_;
  std::string_view description_;
  Iterator* items_ = nullptr;
};

Value Deferred(Runtime& rt, const Bound& b, DeferredIterator::Make make, std::string_view description) {
  void* at = rt.heap.Allocate(sizeof(DeferredIterator));
  Iterator* iterator = new (at) DeferredIterator(b, make, description);
  return Value::Of(Kind::kIterator, iterator);
}

}  // namespace

Result<Value> Len(Runtime& rt, const Bound& b) {
  CMF_TRY(const int64_t length, Length(rt, b[0]));
  return Value::Int(length);
}

Result<Value> List(Runtime& rt, const Bound& b) {
  CMF_TRY(const std::vector<Value> items, Collect(rt, b[0]));
  return rt.NewList(items);
}

Result<Value> First(Runtime& rt, const Bound& b) {
  CMF_TRY(Iterator* const items, Iterate(rt, b[0]));
  CMF_TRY(const Value first, items->Next(rt));
  if (!first.is_missing()) return first;
  return rt.NewUndefined({.hint = "No first item, sequence was empty."});
}

Result<Value> Last(Runtime& rt, const Bound& b) {
  if (b[0].is_sequence() && b[0].list->size > 0) return b[0].list->items[b[0].list->size - 1];
  CMF_TRY(Iterator* const items, IterateReversed(rt, b[0]));
  CMF_TRY(const Value last, items->Next(rt));
  if (!last.is_missing()) return last;
  return rt.NewUndefined({.hint = "No last item, sequence was empty."});
}

Result<Value> Random(Runtime& rt, const Bound& b) {
  CMF_TRY(const int64_t length, Length(rt, b[0]));
  if (length == 0) return rt.NewUndefined({.hint = "No random item, sequence was empty."});
  if (length > 1) {
    return Fault(error_name::kRuntime,
                 "the filter 'random' is not supported: the same input gives the same prompt");
  }
  return GetItem(rt, b[0], Value::Int(0));
}

Result<Value> Reverse(Runtime& rt, const Bound& b) {
  if (b[0].is_string()) return GetSlice(rt, b[0], Value::None(), Value::None(), Value::Int(-1));
  if (HasLength(b[0]) && !b[0].is(Kind::kLoop)) {
    CMF_TRY(Iterator* const items, IterateReversed(rt, b[0]));
    return Value::Of(Kind::kIterator, items);
  }
  if (!IsIterable(b[0])) return Fault(error_name::kTemplate, "argument must be iterable");
  CMF_TRY(std::vector<Value> items, Collect(rt, b[0]));
  std::reverse(items.begin(), items.end());
  return rt.NewList(items);
}

namespace {

Result<Value> BatchList(Runtime& rt, const Bound& b) {
  CMF_TRY(const int64_t size, ToIndex(b[1]));
  CMF_TRY(const std::vector<Value> items, Collect(rt, b[0]));
  std::vector<Value> batches;
  std::vector<Value> batch;
  const auto finish = [&]() -> Result<void> {
    CMF_TRY(const Value list, rt.NewList(batch));
    batches.push_back(list);
    batch.clear();
    return {};
  };
  // A batch is full when it has exactly `size` items, so a size below 1 lets the first one grow forever.
  bool may_close = size != 0;
  if (size == 0) {
    CMF_CHECK(finish());
    if (items.empty()) batches.clear();
  }
  for (const Value& item : items) {
    if (may_close && static_cast<int64_t>(batch.size()) == size) CMF_CHECK(finish());
    batch.push_back(item);
  }
  if (!batch.empty()) {
    if (b.has(2) && !b[2].is_none() && static_cast<int64_t>(batch.size()) < size) {
      CMF_CHECK(rt.Reserve(static_cast<uint64_t>(size) * sizeof(Value)));
      batch.resize(static_cast<size_t>(size), b[2]);
    }
    CMF_CHECK(finish());
  }
  return rt.NewList(batches);
}

Result<Value> SliceList(Runtime& rt, const Bound& b) {
  CMF_TRY(const int64_t slices, ToIndex(b[1]));
  CMF_TRY(const std::vector<Value> items, Collect(rt, b[0]));
  if (slices == 0)
    return Fault(error_name::kRuntime, "ZeroDivisionError: integer division or modulo by zero");
  const auto size = static_cast<int64_t>(items.size());
  std::vector<Value> result;
  int64_t begin = 0;
  for (int64_t i = 0; i < slices; ++i) {
    if (!rt.Spend()) return rt.LimitFault();
    const bool has_extra = i < size % slices;
    const int64_t end = begin + size / slices + (has_extra ? 1 : 0);
    std::vector<Value> part(items.begin() + begin, items.begin() + end);
    begin = end;
    if (b.has(2) && !b[2].is_none() && !has_extra) part.push_back(b[2]);
    CMF_TRY(const Value list, rt.NewList(part));
    result.push_back(list);
  }
  return rt.NewList(result);
}

// The sort keys of an attribute argument "a,b.c": a list of what each gives.
Result<Value> ManyPaths(Runtime& rt, const Value& item, const Value& attribute, bool case_sensitive) {
  std::vector<Value> keys;
  std::string_view rest = attribute.is_string() ? attribute.text() : std::string_view();
  while (true) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const Value path = attribute.is_string() ? rt.View(rest.substr(0, comma)) : attribute;
    CMF_TRY(const Value found, GetPath(rt, item, path));
    CMF_TRY(const Value key, IgnoreCase(rt, found, case_sensitive));
    keys.push_back(key);
    if (comma == rest.size()) break;
    rest.remove_prefix(comma + 1);
  }
  return rt.NewList(keys);
}

Result<Value> Values(Runtime& rt, const std::vector<Keyed>& items) {
  std::vector<Value> values;
  values.reserve(items.size());
  for (const Keyed& item : items) values.push_back(item.value);
  return rt.NewList(values);
}

}  // namespace

Result<Value> Sort(Runtime& rt, const Bound& b) {
  CMF_TRY(const std::vector<Value> items, Collect(rt, b[0]));
  std::vector<Keyed> keyed;
  for (const Value& item : items) {
    CMF_TRY(const Value key, ManyPaths(rt, item, b[3], Flag(b, 2)));
    keyed.push_back({key, item});
  }
  CMF_CHECK(SortByKey(rt, &keyed, Flag(b, 1)));
  return Values(rt, keyed);
}

Result<Value> DictSort(Runtime& rt, const Bound& b) {
  const bool by_value = b.has(2) && b[2].is_string() && b[2].text() == "value";
  if (b.has(2) && !by_value && !(b[2].is_string() && b[2].text() == "key")) {
    return Fault(error_name::kTemplate, "You can only sort by either \"key\" or \"value\"");
  }
  if (b[0].is_undefined()) return UndefinedFault(b[0]);
  if (!b[0].is(Kind::kDict)) {
    return RuntimeFault("AttributeError: '{}' object has no attribute 'items'", TypeName(b[0]));
  }
  std::vector<Keyed> keyed;
  for (const Dict::Entry& e : b[0].dict->span()) {
    if (!rt.Spend()) return rt.LimitFault();
    CMF_TRY(const Value key, IgnoreCase(rt, by_value ? e.value : e.key, Flag(b, 1)));
    CMF_TRY(const Value pair, Pair(rt, e.key, e.value));
    keyed.push_back({key, pair});
  }
  CMF_CHECK(SortByKey(rt, &keyed, Flag(b, 3)));
  return Values(rt, keyed);
}

namespace {

Result<Value> UniqueList(Runtime& rt, const Bound& b) {
  CMF_TRY(const std::vector<Value> items, Collect(rt, b[0]));
  Dict* seen = rt.heap.New<Dict>();
  std::vector<Value> result;
  for (const Value& item : items) {
    CMF_TRY(const Value found, GetPath(rt, item, b[2]));
    CMF_TRY(const Value key, IgnoreCase(rt, found, Flag(b, 1)));
    CMF_TRY(const Value* const old, FindKey(*seen, key));
    if (old != nullptr) continue;
    CMF_CHECK(SetKey(rt, seen, key, Value::None()));
    result.push_back(item);
  }
  return rt.NewList(result);
}

Result<Value> Extreme(Runtime& rt, const Bound& b, Order wins) {
  CMF_TRY(Iterator* const items, Iterate(rt, b[0]));
  Value best;
  Value best_key;
  while (true) {
    CMF_TRY(const Value item, items->Next(rt));
    if (item.is_missing()) break;
    CMF_TRY(const Value found, GetPath(rt, item, b[2]));
    CMF_TRY(const Value key, IgnoreCase(rt, found, Flag(b, 1)));
    bool is_better = best.is_missing();
    if (!is_better) {
      CMF_TRY(is_better, Ordered(rt, key, best_key, wins));
    }
    if (!is_better) continue;
    best = item;
    best_key = key;
  }
  if (!best.is_missing()) return best;
  return rt.NewUndefined({.hint = "No aggregated item, sequence was empty."});
}

}  // namespace

Result<Value> Batch(Runtime& rt, const Bound& b) {
  return Deferred(rt, b, BatchList, "generator object do_batch");
}
Result<Value> Slice(Runtime& rt, const Bound& b) {
  return Deferred(rt, b, SliceList, "generator object sync_do_slice");
}
Result<Value> Unique(Runtime& rt, const Bound& b) {
  return Deferred(rt, b, UniqueList, "generator object do_unique");
}

Result<Value> Min(Runtime& rt, const Bound& b) { return Extreme(rt, b, Order::kLess); }
Result<Value> Max(Runtime& rt, const Bound& b) { return Extreme(rt, b, Order::kGreater); }

Result<Value> Sum(Runtime& rt, const Bound& b) {
  CMF_TRY(Iterator* const items, Iterate(rt, b[0]));
  Value sum = b.has(2) ? b[2] : Value::Int(0);
  if (sum.is_string())
    return Fault(error_name::kRuntime, "TypeError: sum() can't sum strings [use ''.join(seq) instead]");
  while (true) {
    CMF_TRY(Value item, items->Next(rt));
    if (item.is_missing()) return sum;
    CMF_TRY(item, GetPath(rt, item, b[1]));
    CMF_TRY(sum, BinaryOperation(rt, Operator::kAdd, sum, item));
  }
}

Result<Value> GroupBy(Runtime& rt, const Bound& b) {
  const bool case_sensitive = Flag(b, 3);
  CMF_TRY(const std::vector<Value> items, Collect(rt, b[0]));
  std::vector<Keyed> keyed;
  for (const Value& item : items) {
    CMF_TRY(const Value found, GetPath(rt, item, b[1], b[2]));
    CMF_TRY(const Value key, IgnoreCase(rt, found, case_sensitive));
    keyed.push_back({key, item});
  }
  CMF_CHECK(SortByKey(rt, &keyed, false));
  std::vector<Value> groups;
  for (size_t begin = 0; begin < keyed.size();) {
    std::vector<Value> members = {keyed[begin].value};
    size_t end = begin + 1;
    for (; end < keyed.size(); ++end) {
      CMF_TRY(const bool same, Equal(rt, keyed[begin].key, keyed[end].key));
      if (!same) break;
      members.push_back(keyed[end].value);
    }
    // Grouped without regard to case, a group shows the key of its first member.
    CMF_TRY(const Value shown, GetPath(rt, members[0], b[1], b[2]));
    CMF_TRY(const Value list, rt.NewList(members));
    CMF_TRY(Value group, Pair(rt, case_sensitive ? keyed[begin].key : shown, list));
    group.special = true;
    groups.push_back(group);
    begin = end;
  }
  return rt.NewList(groups);
}

}  // namespace cmforge::jinja::filters
