// The methods of list, tuple, range, dict, and of cycler objects.
#include <algorithm>

#include "text/jinja/callables.h"
#include "text/jinja/compare.h"
#include "text/jinja/dict.h"
#include "text/jinja/iterate.h"
#include "text/jinja/numbers.h"
#include "text/jinja/sorting.h"

namespace cmforge::jinja {
namespace {

List& SelfList(const Bound& b) { return *b.self.list; }
Dict& SelfDict(const Bound& b) { return *b.self.dict; }

tl::unexpected<Error> IndexError(std::string_view fact) { return RuntimeFault("IndexError: {}", fact); }

// ---- lists, tuples, ranges ----

Result<Value> Count(Runtime& rt, const Bound& b) {
  CMF_TRY(Iterator* const items, Iterate(rt, b.self));
  int64_t count = 0;
  while (true) {
    CMF_TRY(const Value item, items->Next(rt));
    if (item.is_missing()) return Value::Int(count);
    CMF_TRY(const bool same, Equal(rt, item, b[0]));
    count += same ? 1 : 0;
  }
}

Result<Value> Index(Runtime& rt, const Bound& b) {
  CMF_TRY(const std::vector<Value> items, Collect(rt, b.self));
  const auto size = static_cast<int64_t>(items.size());
  int64_t begin = 0;
  int64_t end = size;
  if (b.has(1)) {
    CMF_TRY(begin, ToIndex(b[1]));
  }
  if (b.has(2)) {
    CMF_TRY(end, ToIndex(b[2]));
  }
  const auto clamp = [size](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? std::max(at, -size) + size : at, 0, size);
  };
  for (int64_t i = clamp(begin); i < clamp(end); ++i) {
    CMF_TRY(const bool same, Equal(rt, items[static_cast<size_t>(i)], b[0]));
    if (same) return Value::Int(i);
  }
  return Fault(error_name::kRuntime, "ValueError: the value is not in the list");
}

Result<Value> CopyList(Runtime& rt, const Bound& b) { return rt.NewList(SelfList(b).span()); }

Result<void> InsertAt(Runtime& rt, List* list, uint64_t at, const Value& value) {
  if (list->size == list->capacity) {
    const uint64_t capacity = std::max<uint64_t>(4, list->capacity * 2);
    CMF_CHECK(rt.Reserve(capacity * sizeof(Value)));
    const std::span<Value> items = rt.heap.NewArray<Value>(capacity);
    std::copy_n(list->items, list->size, items.begin());
    list->items = items.data();
    list->capacity = capacity;
  }
  if (!rt.Spend(1 + static_cast<int64_t>((list->size - at) / 8))) return rt.LimitFault();
  std::copy_backward(list->items + at, list->items + list->size, list->items + list->size + 1);
  list->items[at] = value;
  ++list->size;
  return {};
}

Value RemoveAt(List* list, uint64_t at) {
  const Value value = list->items[at];
  std::copy(list->items + at + 1, list->items + list->size, list->items + at);
  --list->size;
  return value;
}

Result<Value> Pop(Runtime& rt, const Bound& b) {
  List& list = SelfList(b);
  int64_t at = -1;
  if (b.has(0)) {
    CMF_TRY(at, ToIndex(b[0]));
  }
  const auto size = static_cast<int64_t>(list.size);
  if (size == 0) return IndexError("pop from empty list");
  if (at < 0) at += size;
  if (at < 0 || at >= size) return IndexError("pop index out of range");
  if (!rt.Spend((size - at) / 8)) return rt.LimitFault();
  return RemoveAt(&list, static_cast<uint64_t>(at));
}

Result<Value> Clear(Runtime&, const Bound& b) {
  SelfList(b).size = 0;
  return Value::None();
}

Result<Value> Append(Runtime& rt, const Bound& b) {
  CMF_CHECK(InsertAt(rt, &SelfList(b), SelfList(b).size, b[0]));
  return Value::None();
}

Result<Value> Extend(Runtime& rt, const Bound& b) {
  CMF_TRY(const std::vector<Value> items, Collect(rt, b[0]));
  for (const Value& item : items) CMF_CHECK(InsertAt(rt, &SelfList(b), SelfList(b).size, item));
  return Value::None();
}

Result<Value> Insert(Runtime& rt, const Bound& b) {
  CMF_TRY(int64_t at, ToIndex(b[0]));
  const auto size = static_cast<int64_t>(SelfList(b).size);
  if (at < 0) at = std::max<int64_t>(0, at < -size ? 0 : at + size);
  CMF_CHECK(InsertAt(rt, &SelfList(b), static_cast<uint64_t>(std::min(at, size)), b[1]));
  return Value::None();
}

Result<Value> Remove(Runtime& rt, const Bound& b) {
  CMF_TRY(const Value at, Index(rt, b));
  RemoveAt(&SelfList(b), static_cast<uint64_t>(at.integer));
  return Value::None();
}

Result<Value> Reverse(Runtime& rt, const Bound& b) {
  if (!rt.Spend(static_cast<int64_t>(SelfList(b).size / 8))) return rt.LimitFault();
  std::reverse(SelfList(b).span().begin(), SelfList(b).span().end());
  return Value::None();
}

Result<Value> Sort(Runtime& rt, const Bound& b) {
  if (b.has(0) && !b[0].is_none())
    return Fault(error_name::kRuntime, "TypeError: sort() with a key is not supported");
  std::vector<Keyed> items;
  for (const Value& item : SelfList(b).span()) items.push_back({item, item});
  CMF_CHECK(SortByKey(rt, &items, b.has(1) && IsTrue(b[1])));
  std::transform(items.begin(), items.end(), SelfList(b).items, [](const Keyed& k) { return k.value; });
  return Value::None();
}

constexpr MethodEntry kListMethods[] = {
    {{"append", "/object", Append}, true},
    {{"clear", "", Clear}},  // the sandbox of the reference forgets these two
    {{"copy", "", CopyList}},
    {{"count", "/value", Count}},
    {{"extend", "/iterable", Extend}, true},
    {{"index", "/value /start? /stop?", Index}},
    {{"insert", "/index /object", Insert}, true},
    {{"pop", "/index?", Pop}},
    {{"remove", "/value", Remove}, true},
    {{"reverse", "", Reverse}, true},
    {{"sort", "key? reverse?", Sort}, true},
};

constexpr MethodEntry kTupleMethods[] = {
    {{"count", "/value", Count}},
    {{"index", "/value /start? /stop?", Index}},
};

// ---- dictionaries ----

template <DictView::What kWhat>
Result<Value> View(Runtime& rt, const Bound& b) {
  return Value::Of(Kind::kDictView, rt.heap.New<DictView>(b.self.dict, kWhat));
}

Result<Value> Get(Runtime&, const Bound& b) {
  CMF_TRY(const Value* const found, FindKey(SelfDict(b), b[0]));
  if (found != nullptr) return *found;
  return b.has(1) ? b[1] : Value::None();
}

Result<Value> CopyOfDict(Runtime& rt, const Bound& b) {
  CMF_TRY(Dict* const copy, CopyDict(rt, SelfDict(b)));
  return DictValue(copy);
}

Result<Value> FromKeys(Runtime& rt, const Bound& b) {
  CMF_TRY(Iterator* const keys, Iterate(rt, b[0]));
  Dict* dict = rt.heap.New<Dict>();
  while (true) {
    CMF_TRY(const Value key, keys->Next(rt));
    if (key.is_missing()) return DictValue(dict);
    CMF_CHECK(SetKey(rt, dict, key, b.has(1) ? b[1] : Value::None()));
  }
}

Result<Value> ClearDict(Runtime&, const Bound& b) {
  SelfDict(b) = {};
  return Value::None();
}

Result<Value> TakeOut(Runtime& rt, Dict* dict, uint64_t at) {
  const Value value = dict->entries[at].value;
  if (!rt.Spend(static_cast<int64_t>(dict->size))) return rt.LimitFault();
  RemoveEntry(dict, at);
  return value;
}

Result<Value> PopKey(Runtime& rt, const Bound& b) {
  CMF_TRY(const Value* const found, FindKey(SelfDict(b), b[0]));
  if (found == nullptr) {
    if (b.has(1)) return b[1];
    return Fault(error_name::kRuntime, "KeyError: there is no such key");
  }
  for (uint64_t i = 0; i < SelfDict(b).size; ++i) {
    if (&SelfDict(b).entries[i].value == found) return TakeOut(rt, &SelfDict(b), i);
  }
  return Value();
}

Result<Value> PopItem(Runtime& rt, const Bound& b) {
  Dict& dict = SelfDict(b);
  if (dict.size == 0) return Fault(error_name::kRuntime, "KeyError: 'popitem(): dictionary is empty'");
  const Value key = dict.entries[dict.size - 1].key;
  CMF_TRY(const Value value, TakeOut(rt, &dict, dict.size - 1));
  return Pair(rt, key, value);
}

Result<Value> SetDefault(Runtime& rt, const Bound& b) {
  CMF_TRY(const Value* const found, FindKey(SelfDict(b), b[0]));
  if (found != nullptr) return *found;
  const Value value = b.has(1) ? b[1] : Value::None();
  CMF_CHECK(SetKey(rt, &SelfDict(b), b[0], value));
  return value;
}

Result<Value> Update(Runtime& rt, const Bound& b) {
  Arguments arguments{{&b.values[0], b.has(0) ? size_t{1} : size_t{0}}, b.named_rest};
  CMF_CHECK(UpdateDict(rt, &SelfDict(b), arguments));
  return Value::None();
}

constexpr MethodEntry kDictMethods[] = {
    {{"clear", "", ClearDict}, true},
    {{"copy", "", CopyOfDict}},
    {{"fromkeys", "/iterable /value?", FromKeys}},
    {{"get", "/key /default?", Get}},
    {{"items", "", View<DictView::What::kItems>}},
    {{"keys", "", View<DictView::What::kKeys>}},
    {{"pop", "/key /default?", PopKey}, true},
    {{"popitem", "", PopItem}, true},
    {{"setdefault", "/key /default?", SetDefault}, true},
    {{"update", "/other? **", Update}, true},
    {{"values", "", View<DictView::What::kValues>}},
};

// ---- cycler ----

Result<Value> NextOfCycler(Runtime&, const Bound& b) {
  Cycler& c = *b.self.cycler;
  const Value value = c.items[c.position];
  c.position = (c.position + 1) % c.items.size();
  return value;
}

Result<Value> ResetCycler(Runtime&, const Bound& b) {
  b.self.cycler->position = 0;
  return Value::None();
}

constexpr MethodEntry kCyclerMethods[] = {
    {{"next", "", NextOfCycler}},
    {{"reset", "", ResetCycler}},
};

}  // namespace

Result<void> UpdateDict(Runtime& rt, Dict* dict, const Arguments& arguments) {
  if (arguments.positional.size() > 1) {
    return RuntimeFault("TypeError: dict expected at most 1 argument, got {}", arguments.positional.size());
  }
  for (const Value& source : arguments.positional) {
    if (source.is(Kind::kDict)) {
      for (const Dict::Entry& e : source.dict->span()) {
        if (!rt.Spend()) return rt.LimitFault();
        CMF_CHECK(SetKey(rt, dict, e.key, e.value));
      }
      continue;
    }
    CMF_TRY(Iterator* const items, Iterate(rt, source));
    while (true) {
      CMF_TRY(const Value item, items->Next(rt));
      if (item.is_missing()) break;
      CMF_TRY(const std::vector<Value> pair, Collect(rt, item));
      if (pair.size() != 2) {
        return RuntimeFault("ValueError: dictionary update sequence element has length {}; 2 is required",
                            pair.size());
      }
      CMF_CHECK(SetKey(rt, dict, pair[0], pair[1]));
    }
  }
  for (const NamedValue& named : arguments.named) CMF_CHECK(SetText(rt, dict, named.name, named.value));
  return {};
}

const MethodEntry* FindListMethod(Kind kind, std::string_view name) {
  return kind == Kind::kList ? FindSorted(kListMethods, name) : FindSorted(kTupleMethods, name);
}
const MethodEntry* FindDictMethod(std::string_view name) { return FindSorted(kDictMethods, name); }
const MethodEntry* FindCyclerMethod(std::string_view name) { return FindSorted(kCyclerMethods, name); }

}  // namespace cmforge::jinja
