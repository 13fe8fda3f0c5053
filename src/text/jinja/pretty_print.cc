// pprint: Python's pprint.pformat, which breaks what is wider than 80 columns and sorts keys.
#include <algorithm>

#include "text/jinja/compare.h"
#include "text/jinja/dict.h"
#include "text/jinja/filters.h"
#include "text/jinja/print.h"
#include "text/jinja/sorting.h"
#include "text/jinja/text.h"

namespace cmforge::jinja::filters {
namespace {

constexpr int64_t kWidth = 80;

class PrettyPrinter {
 public:
  PrettyPrinter(Runtime& rt, TextBuilder* out) : rt_(rt), out_(*out) {}

  // `allowance`: columns that what follows on the same line needs.
  Result<void> Print(const Value& shared, int64_t indent, int64_t allowance) {
    if (++depth_ > kMaxDataDepth || !rt_.HasStack()) return DepthFault();
    CMF_TRY(const Value value, depth_ == 1 ? Sorted(shared, 0) : Result<Value>(shared));
    TextBuilder flat(rt_);
    CMF_CHECK(AppendRepr(rt_, value, &flat));
    CMF_TRY(const Value text, flat.Finish());
    const auto size = static_cast<int64_t>(CountCodePoints(text.text()));
    const bool fits = size <= kWidth - indent - allowance;
    const bool is_container =
        (value.is_sequence() && value.list->size > 0) || (value.is(Kind::kDict) && value.dict->size > 0);
    if (fits || !is_container) {
      out_.Append(*text.string);
    } else if (value.is_sequence()) {
      CMF_CHECK(PrintItems(value, indent, allowance));
    } else {
      CMF_CHECK(PrintDict(*value.dict, indent, allowance));
    }
    --depth_;
    return {};
  }

 private:
  // A copy with all dictionaries in the order of their keys.
  Result<Value> Sorted(const Value& value, int depth) {
    if (depth > kMaxDataDepth || !rt_.HasStack()) return DepthFault();
    if (!rt_.Spend()) return rt_.LimitFault();
    if (value.is_sequence()) {
      std::vector<Value> items;
      for (const Value& item : value.list->span()) {
        CMF_TRY(const Value sorted, Sorted(item, depth + 1));
        items.push_back(sorted);
      }
      return rt_.NewList(items, value.kind);
    }
    if (!value.is(Kind::kDict)) return value;
    std::vector<Keyed> entries;
    for (const Dict::Entry& e : value.dict->span()) {
      CMF_TRY(const Value sorted, Sorted(e.value, depth + 1));
      entries.push_back({e.key, sorted});
    }
    std::vector<Keyed> sorted = entries;
    if (!SortByKey(rt_, &sorted, false)) sorted = entries;  // keys without an order stay as they are
    Dict* dict = rt_.heap.New<Dict>();
    for (const Keyed& e : sorted) CMF_CHECK(SetKey(rt_, dict, e.key, e.value));
    return DictValue(dict);
  }

  void NewLine(int64_t indent) {
    out_.Append(",\n");
    out_.AppendRepeated(" ", static_cast<uint64_t>(indent));
  }

  Result<void> PrintItems(const Value& value, int64_t indent, int64_t allowance) {
    const bool is_list = value.is(Kind::kList);
    const std::string_view close = is_list ? "]" : value.list->size == 1 ? ",)" : ")";
    out_.Append(is_list ? "[" : "(");
    for (uint64_t i = 0; i < value.list->size; ++i) {
      if (i > 0) NewLine(indent + 1);
      const bool is_last = i + 1 == value.list->size;
      CMF_CHECK(Print(value.list->items[i], indent + 1,
                      is_last ? allowance + static_cast<int64_t>(close.size()) : 1));
    }
    out_.Append(close);
    return {};
  }

  Result<void> PrintDict(const Dict& dict, int64_t indent, int64_t allowance) {
    out_.Append("{");
    for (uint64_t i = 0; i < dict.size; ++i) {
      if (i > 0) NewLine(indent + 1);
      CMF_TRY(const Value key, Repr(rt_, dict.entries[i].key));
      out_.Append(*key.string);
      out_.Append(": ");
      const bool is_last = i + 1 == dict.size;
      CMF_CHECK(Print(dict.entries[i].value, indent + static_cast<int64_t>(CountCodePoints(key.text())) + 3,
                      is_last ? allowance + 1 : 1));
    }
    out_.Append("}");
    return {};
  }

  Runtime& rt_;
  TextBuilder& out_;
  int depth_ = 0;
};

}  // namespace

Result<Value> PrettyPrint(Runtime& rt, const Bound& b) {
  TextBuilder out(rt);
  CMF_CHECK(PrettyPrinter(rt, &out).Print(b[0], 0, 0));
  return out.Finish();
}

}  // namespace cmforge::jinja::filters
