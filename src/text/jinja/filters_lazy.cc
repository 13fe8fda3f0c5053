// items, map, select and their kin: they work item by item, when the next one is asked for, so an unknown
// filter name is an error only then.
#include <algorithm>

#include "text/jinja/compare.h"
#include "text/jinja/filters.h"
#include "text/jinja/iterate.h"

namespace cmforge::jinja::filters {
namespace {

// Copies of arguments that outlive the call.
struct KeptArguments {
  std::span<const Value> positional;
  std::span<const NamedValue> named;

  [[nodiscard]] Arguments view() const { return {positional, named}; }
};

KeptArguments Keep(Runtime& rt, const Arguments& arguments) {
  const std::span<Value> positional = rt.heap.NewArray<Value>(arguments.positional.size());
  std::copy(arguments.positional.begin(), arguments.positional.end(), positional.begin());
  const std::span<NamedValue> named = rt.heap.NewArray<NamedValue>(arguments.named.size());
  std::copy(arguments.named.begin(), arguments.named.end(), named.begin());
  return {positional, named};
}

tl::unexpected<Error> NoSuch(std::string_view what, const Value& name) {
  if (name.is_undefined()) return UndefinedFault(name);
  return Fault(error_name::kTemplate,
               fmt::format("no {} named '{}'", what, name.is_string() ? name.text() : TypeName(name)));
}

class ItemsIterator final : public Iterator {
 public:
  explicit ItemsIterator(const Value& source) : source_(source) {}

  Result<Value> Next(Runtime& rt) override {
    if (source_.is_undefined()) return Value();
    if (!source_.is(Kind::kDict)) {
      return Fault(error_name::kRuntime, "TypeError: Can only get item pairs from a mapping.");
    }
    if (items_ == nullptr) {
      const DictView* view = rt.heap.New<DictView>(source_.dict, DictView::What::kItems);
      CMF_TRY(items_, Iterate(rt, Value::Of(Kind::kDictView, view)));
    }
    return items_->Next(rt);
  }
  [[nodiscard]] std::string_view description() const override { return "generator object do_items"; }

 private:
  Value source_;
  Iterator* items_ = nullptr;
};

class MapIterator final : public Iterator {
 public:
  MapIterator(const Value& source, const KeptArguments& arguments) : source_(source), arguments_(arguments) {}

  Result<Value> Next(Runtime& rt) override {
    if (items_ == nullptr) CMF_CHECK(Prepare(rt));
    CMF_TRY(const Value item, items_->Next(rt));
    if (item.is_missing()) return item;
    if (filter_ == nullptr) return GetPath(rt, item, attribute_, default_);
    return ApplyBuiltin(rt, *filter_, item, {arguments_.positional.subspan(1), arguments_.named});
  }
  [[nodiscard]] std::string_view description() const override { return "generator object sync_do_map"; }

 private:
  Result<void> Prepare(Runtime& rt) {
    if (!IsTrue(source_)) {
      items_ = IterateSpan(rt, {});
      return {};
    }
    if (arguments_.positional.empty()) {
      CMF_CHECK(PrepareAttribute());
    } else {
      const Value& name = arguments_.positional[0];
      filter_ = name.is_string() ? FindFilter(name.text()) : nullptr;
      if (filter_ == nullptr) return NoSuch("filter", name);
    }
    CMF_TRY(items_, Iterate(rt, source_));
    return {};
  }

  Result<void> PrepareAttribute() {
    bool has_attribute = false;
    for (const NamedValue& named : arguments_.named) has_attribute |= named.name == "attribute";
    if (!has_attribute) return Fault(error_name::kTemplate, "map requires a filter argument");
    for (const NamedValue& named : arguments_.named) {
      if (named.name == "attribute") {
        attribute_ = named.value;
      } else if (named.name == "default") {
        default_ = named.value;
      } else {
        return Fault(error_name::kTemplate, fmt::format("unexpected keyword argument '{}'", named.name));
      }
    }
    return {};
  }

  Value source_;
  KeptArguments arguments_;
  Iterator* items_ = nullptr;
  const Builtin* filter_ = nullptr;
  Value attribute_;
  Value default_;
};

class SelectIterator final : public Iterator {
 public:
  SelectIterator(const Value& source, const KeptArguments& arguments, bool keeps, bool by_attribute)
      : source_(source), arguments_(arguments), keeps_(keeps), by_attribute_(by_attribute) {}

  Result<Value> Next(Runtime& rt) override {
    if (items_ == nullptr) CMF_CHECK(Prepare(rt));
    while (true) {
      CMF_TRY(const Value item, items_->Next(rt));
      if (item.is_missing()) return item;
      CMF_TRY(const bool passes, Passes(rt, item));
      if (passes == keeps_) return item;
    }
  }
  [[nodiscard]] std::string_view description() const override { return "generator object select_or_reject"; }

 private:
  Result<void> Prepare(Runtime& rt) {
    if (!IsTrue(source_)) {
      items_ = IterateSpan(rt, {});
      return {};
    }
    std::span<const Value> rest = arguments_.positional;
    if (by_attribute_) {
      if (rest.empty()) return Fault(error_name::kTemplate, "missing parameter for attribute name");
      attribute_ = rest[0];
      rest = rest.subspan(1);
    }
    if (!rest.empty()) {
      test_ = rest[0].is_string() ? FindTest(rest[0].text()) : nullptr;
      test_name_ = rest[0];
      rest = rest.subspan(1);
    }
    arguments_.positional = rest;
    CMF_TRY(items_, Iterate(rt, source_));
    return {};
  }

  Result<bool> Passes(Runtime& rt, const Value& item) {
    Value value = item;
    if (by_attribute_) {
      CMF_TRY(value, GetPath(rt, item, attribute_));
    }
    if (test_name_.is_missing()) return IsTrue(value);
    if (test_ == nullptr) return NoSuch("test", test_name_);
    CMF_TRY(const Value result, ApplyBuiltin(rt, *test_, value, arguments_.view()));
    return IsTrue(result);
  }

  Value source_;
  KeptArguments arguments_;
  bool keeps_;
  bool by_attribute_;
  Iterator* items_ = nullptr;
  Value attribute_;
  Value test_name_;
  const Builtin* test_ = nullptr;
};

Value MakeSelect(Runtime& rt, const Bound& b, bool keeps, bool by_attribute) {
  const KeptArguments arguments = Keep(rt, {b.rest, b.named_rest});
  void* at = rt.heap.Allocate(sizeof(SelectIterator));
  Iterator* iterator = new (at) SelectIterator(b[0], arguments, keeps, by_attribute);
  return Value::Of(Kind::kIterator, iterator);
}

}  // namespace

Result<Value> Items(Runtime& rt, const Bound& b) {
  Iterator* iterator = new (rt.heap.Allocate(sizeof(ItemsIterator))) ItemsIterator(b[0]);
  return Value::Of(Kind::kIterator, iterator);
}

Result<Value> Map(Runtime& rt, const Bound& b) {
  const KeptArguments arguments = Keep(rt, {b.rest, b.named_rest});
  Iterator* iterator = new (rt.heap.Allocate(sizeof(MapIterator))) MapIterator(b[0], arguments);
  return Value::Of(Kind::kIterator, iterator);
}

Result<Value> Select(Runtime& rt, const Bound& b) { return MakeSelect(rt, b, true, false); }
Result<Value> Reject(Runtime& rt, const Bound& b) { return MakeSelect(rt, b, false, false); }
Result<Value> SelectAttr(Runtime& rt, const Bound& b) { return MakeSelect(rt, b, true, true); }
Result<Value> RejectAttr(Runtime& rt, const Bound& b) { return MakeSelect(rt, b, false, true); }

}  // namespace cmforge::jinja::filters
