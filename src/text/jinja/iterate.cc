// Iterators over the built-in values.
#include "text/jinja/iterate.h"

#include "text/jinja/loop.h"
#include "text/jinja/text.h"

namespace cmforge::jinja {
namespace {

class SpanIterator final : public Iterator {
 public:
  SpanIterator(std::span<const Value> values, std::string_view description)
      : values_(values), description_(description) {}
  Result<Value> Next(Runtime& rt) override {
    if (at_ == values_.size()) return Value();
    if (!rt.Spend()) return rt.LimitFault();
    return values_[at_++];
  }
  [[nodiscard]] std::string_view description() const override { return description_; }

 private:
  std::span<const Value> values_;
  uint64_t at_ = 0;
  std::string_view description_;
};

// Looks at the list anew each time: with allow_mutation it may grow under us.
class ListIterator final : public Iterator {
 public:
  explicit ListIterator(const List* list) : list_(list) {}
  Result<Value> Next(Runtime& rt) override {
    if (at_ >= list_->size) return Value();
    if (!rt.Spend()) return rt.LimitFault();
    return list_->items[at_++];
  }
  [[nodiscard]] std::string_view description() const override { return "list_iterator object"; }

 private:
  const List* list_;
  uint64_t at_ = 0;
};

class StringIterator final : public Iterator {
 public:
  explicit StringIterator(const Str* text) : text_(text) {}
  Result<Value> Next(Runtime& rt) override {
    if (at_ == text_->size) return Value();
    if (!rt.Spend()) return rt.LimitFault();
    const uint64_t begin = at_;
    DecodeUtf8(text_->view(), &at_);
    return PieceValue(rt, *text_, begin, at_);
  }
  [[nodiscard]] std::string_view description() const override { return "str_iterator object"; }

 private:
  const Str* text_;
  uint64_t at_ = 0;
};

class DictIterator final : public Iterator {
 public:
  DictIterator(const Dict* dict, DictView::What what) : dict_(dict), what_(what) {}
  Result<Value> Next(Runtime& rt) override {
    if (at_ >= dict_->size) return Value();
    if (!rt.Spend()) return rt.LimitFault();
    const Dict::Entry& e = dict_->entries[at_++];
    switch (what_) {
      case DictView::What::kKeys:
        return e.key;
      case DictView::What::kValues:
        return e.value;
      case DictView::What::kItems:
        return Pair(rt, e.key, e.value);
    }
    return Value();
  }

 private:
  const Dict* dict_;
  DictView::What what_;
  uint64_t at_ = 0;
};

class RangeIterator final : public Iterator {
 public:
  explicit RangeIterator(const Range* range) : range_(range) {}
  Result<Value> Next(Runtime& rt) override {
    if (at_ == range_->size) return Value();
    if (!rt.Spend()) return rt.LimitFault();
    return Value::Int(range_->at(at_++));
  }
  [[nodiscard]] std::string_view description() const override { return "range_iterator object"; }

 private:
  const Range* range_;
  int64_t at_ = 0;
};

template <class T, class... A>
Iterator* Make(Runtime& rt, A&&... arguments) {
  return new (rt.heap.Allocate(sizeof(T))) T(std::forward<A>(arguments)...);
}

}  // namespace

Result<Value> Pair(Runtime& rt, const Value& key, const Value& value) {
  const Value items[] = {key, value};
  return rt.NewList(items, Kind::kTuple);
}

Iterator* IterateSpan(Runtime& rt, std::span<const Value> values, std::string_view description) {
  return Make<SpanIterator>(rt, values, description);
}

Result<Iterator*> Iterate(Runtime& rt, const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined:
      return IterateSpan(rt, {});
    case Kind::kString:
      return Make<StringIterator>(rt, value.string);
    case Kind::kList:
    case Kind::kTuple:
      return Make<ListIterator>(rt, value.list);
    case Kind::kDict:
      return Make<DictIterator>(rt, value.dict, DictView::What::kKeys);
    case Kind::kDictView:
      return Make<DictIterator>(rt, value.view->dict, value.view->what);
    case Kind::kRange:
      return Make<RangeIterator>(rt, value.range);
    case Kind::kIterator:
      return value.iterator;
    case Kind::kLoop:
      return IterateLoop(rt, value.loop);
    default:
      return RuntimeFault("TypeError: '{}' object is not iterable", TypeName(value));
  }
}

bool IsIterable(const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kDictView:
    case Kind::kRange:
    case Kind::kIterator:
    case Kind::kLoop:
      return true;
    default:
      return false;
  }
}

Result<std::vector<Value>> Collect(Runtime& rt, const Value& value) {
  std::vector<Value> items;
  if (value.is_sequence()) {
    if (!rt.Spend(static_cast<int64_t>(value.list->size))) return rt.LimitFault();
    items.assign(value.list->span().begin(), value.list->span().end());
    return items;
  }
  CMF_TRY(Iterator* const iterator, Iterate(rt, value));
  const uint64_t most = static_cast<uint64_t>(rt.options.limits.memory_bytes) / sizeof(Value);
  while (true) {
    CMF_TRY(const Value next, iterator->Next(rt));
    if (next.is_missing()) return items;
    if (items.size() >= most) return rt.LimitFault();
    items.push_back(next);
  }
}

Result<Iterator*> IterateReversed(Runtime& rt, const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kDictView:
    case Kind::kRange: {
      CMF_TRY(const std::vector<Value> items, Collect(rt, value));
      CMF_CHECK(rt.Reserve(items.size() * sizeof(Value)));
      const std::span<Value> turned = rt.heap.NewArray<Value>(items.size());
      std::copy(items.rbegin(), items.rend(), turned.begin());
      return IterateSpan(rt, turned,
                         value.is(Kind::kList) ? "list_reverseiterator object" : "reversed object");
    }
    default:
      return RuntimeFault("TypeError: '{}' object is not reversible", TypeName(value));
  }
}

bool HasLength(const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kDictView:
    case Kind::kRange:
    case Kind::kLoop:
      return true;
    default:
      return false;
  }
}

Result<int64_t> Length(Runtime& rt, const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      if (!rt.Spend(static_cast<int64_t>(value.string->size / 64))) return rt.LimitFault();
      return static_cast<int64_t>(CountCodePoints(value.text()));
    case Kind::kList:
    case Kind::kTuple:
      return static_cast<int64_t>(value.list->size);
    case Kind::kDict:
      return static_cast<int64_t>(value.dict->size);
    case Kind::kDictView:
      return static_cast<int64_t>(value.view->dict->size);
    case Kind::kRange:
      return value.range->size;
    case Kind::kLoop:
      return LoopLength(rt, value.loop);
    default:
      return RuntimeFault("TypeError: object of type '{}' has no len()", TypeName(value));
  }
}

}  // namespace cmforge::jinja
