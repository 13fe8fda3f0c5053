// json.dumps: separators, indentation, escapes and key conversion as Python writes them.
#include <algorithm>
#include <cmath>

#include "text/jinja/compare.h"
#include "text/jinja/numbers.h"
#include "text/jinja/print.h"

namespace cmforge::jinja {
namespace {

class JsonPrinter {
 public:
  JsonPrinter(Runtime& rt, const JsonStyle& style, TextBuilder* out) : rt_(rt), style_(style), out_(*out) {}

  Result<void> Print(const Value& value) {
    if (!rt_.Spend()) return rt_.LimitFault();
    switch (value.kind) {
      case Kind::kNone:
        out_.Append("null");
        return {};
      case Kind::kBool:
        out_.Append(value.boolean ? "true" : "false");
        return {};
      case Kind::kInt:
      case Kind::kBigInt: {
        CMF_TRY(const std::string digits, IntegerText(value));
        out_.Append(digits);
        return {};
      }
      case Kind::kFloat:
        out_.Append(JsonFloat(value.real));
        return {};
      case Kind::kString:
        PrintString(*value.string);
        return {};
      case Kind::kList:
      case Kind::kTuple:
        return PrintList(*value.list);
      case Kind::kDict:
        return PrintDict(*value.dict);
      default:
        return RuntimeFault("TypeError: Object of type {} is not JSON serializable", TypeName(value));
    }
  }

 private:
  static std::string JsonFloat(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return FloatText(value);
  }

  void NewLine() {
    if (!style_.has_indent) return;
    out_.Append("\n");
    out_.AppendRepeated(style_.indent, static_cast<uint64_t>(depth_));
  }

  Result<void> Enter() {
    if (++depth_ > kMaxDataDepth) return DepthFault();
    return {};
  }

  Result<void> PrintList(const List& list) {
    if (list.size == 0) {
      out_.Append("[]");
      return {};
    }
    CMF_CHECK(Enter());
    out_.Append("[");
    for (uint64_t i = 0; i < list.size; ++i) {
      if (i > 0) out_.Append(style_.item_separator);
      NewLine();
      CMF_CHECK(Print(list.items[i]));
    }
    --depth_;
    NewLine();
    out_.Append("]");
    return {};
  }

  Result<void> PrintDict(const Dict& dict) {
    if (dict.size == 0) {
      out_.Append("{}");
      return {};
    }
    CMF_CHECK(Enter());
    std::vector<const Dict::Entry*> entries;
    for (const Dict::Entry& e : dict.span()) entries.push_back(&e);
    if (style_.sort_keys) {
      // Keys of one kind have a total order; a mixture has none, and fails below.
      for (size_t i = 1; i < entries.size(); ++i) CMF_CHECK(Less(rt_, entries[i - 1]->key, entries[i]->key));
      std::stable_sort(entries.begin(), entries.end(), [this](const Dict::Entry* a, const Dict::Entry* b) {
        return Less(rt_, a->key, b->key).value_or(false);
      });
    }
    out_.Append("{");
    bool is_first = true;
    for (const Dict::Entry* e : entries) {
      if (!is_first) out_.Append(style_.item_separator);
      is_first = false;
      NewLine();
      CMF_CHECK(PrintKey(e->key));
      out_.Append(style_.key_separator);
      CMF_CHECK(Print(e->value));
    }
    --depth_;
    NewLine();
    out_.Append("}");
    return {};
  }

  Result<void> PrintKey(const Value& key) {
    switch (key.kind) {
      case Kind::kString:
        PrintString(*key.string);
        return {};
      case Kind::kNone:
      case Kind::kBool:
      case Kind::kInt:
      case Kind::kBigInt:
      case Kind::kFloat:
        out_.Append("\"");
        CMF_CHECK(Print(key));
        out_.Append("\"");
        return {};
      default:
        return RuntimeFault("TypeError: keys must be str, int, float, bool or None, not {}", TypeName(key));
    }
  }

  void PrintString(const Str& text) {
    const std::string_view all = text.view();
    out_.Append("\"");
    uint64_t plain = 0;
    for (uint64_t i = 0; i < all.size();) {
      const uint64_t at = i;
      const char32_t c = DecodeUtf8(all, &i);
      if (c >= 0x20 && c != '"' && c != '\\' && !(style_.ensure_ascii && c > 0x7E)) continue;
      out_.Append(text, plain, at);
      out_.AppendFor(Escape(c), text, at);
      plain = i;
    }
    out_.Append(text, plain, all.size());
    out_.Append("\"");
  }

  static std::string Escape(char32_t c) {
    switch (c) {
      case '"':
        return "\\\"";
      case '\\':
        return "\\\\";
      case '\n':
        return "\\n";
      case '\r':
        return "\\r";
      case '\t':
        return "\\t";
      case '\b':
        return "\\b";
      case '\f':
        return "\\f";
      default:
        break;
    }
    auto code = static_cast<uint32_t>(c);
    if (code < 0x10000) return fmt::format("\\u{:04x}", code);
    code -= 0x10000;
    return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (code >> 10), 0xDC00 + (code & 0x3FF));
  }

  Runtime& rt_;
  const JsonStyle& style_;
  TextBuilder& out_;
  int depth_ = 0;
};

}  // namespace

Result<void> AppendJson(Runtime& rt, const Value& value, const JsonStyle& style, TextBuilder* out) {
  return JsonPrinter(rt, style, out).Print(value);
}

}  // namespace cmforge::jinja
