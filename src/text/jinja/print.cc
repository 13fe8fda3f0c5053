// str() and repr() of every kind of value.
#include "text/jinja/print.h"

#include <algorithm>

#include "text/jinja/callables.h"
#include "text/jinja/iterate.h"
#include "text/jinja/loop.h"
#include "text/jinja/numbers.h"

namespace cmforge::jinja {
namespace {

class Printer {
 public:
  Printer(Runtime& rt, TextBuilder* out) : rt_(rt), out_(*out) {}

  Result<void> Print(const Value& value) {
    if (!rt_.Spend()) return rt_.LimitFault();
    switch (value.kind) {
      case Kind::kMissing:
      case Kind::kUndefined:
        out_.Append("Undefined");
        return {};
      case Kind::kNone:
        out_.Append("None");
        return {};
      case Kind::kBool:
        out_.Append(value.boolean ? "True" : "False");
        return {};
      case Kind::kInt:
      case Kind::kBigInt: {
        CMF_TRY(const std::string digits, IntegerText(value));
        out_.Append(digits);
        return {};
      }
      case Kind::kFloat:
        out_.Append(FloatText(value.real));
        return {};
      case Kind::kString:
        if (value.special) out_.Append("Markup(");
        PrintString(*value.string);
        if (value.special) out_.Append(")");
        return {};
      case Kind::kList:
        return PrintItems(value, "[", "]");
      case Kind::kTuple:
        return PrintItems(value, "(", value.list->size == 1 ? ",)" : ")");
      case Kind::kDict:
        return PrintDict(*value.dict);
      case Kind::kDictView:
        return PrintView(value);
      case Kind::kNamespace:
        out_.Append("<Namespace ");
        CMF_CHECK(PrintDict(*value.dict));
        out_.Append(">");
        return {};
      case Kind::kRange: {
        const Range& r = *value.range;
        out_.Append(r.step == 1 ? fmt::format("range({}, {})", r.start, r.stop)
                                : fmt::format("range({}, {}, {})", r.start, r.stop, r.step));
        return {};
      }
      case Kind::kLoop: {
        CMF_TRY(const int64_t length, LoopLength(rt_, value.loop));
        out_.Append(fmt::format("<LoopContext {}/{}>", value.loop->index0 + 1, length));
        return {};
      }
      // Python shows addresses for the rest: we have none to show.
      case Kind::kIterator:
        out_.Append(fmt::format("<{} at 0x0>", value.iterator->description()));
        return {};
      case Kind::kBuiltin:
        out_.Append(value.builtin->shown);
        return {};
      case Kind::kMethod:
        out_.Append(fmt::format("<built-in method {} of {} object at 0x0>",
                                value.method->method->builtin.name, TypeName(value.method->self)));
        return {};
      case Kind::kMacro:
        out_.Append(MacroText(*value.macro));
        return {};
      case Kind::kCycler:
      case Kind::kJoiner:
        out_.Append(fmt::format("<jinja2.utils.{} object at 0x0>", TypeName(value)));
        return {};
      case Kind::kBlock:
        out_.Append("<jinja2.runtime.BlockReference object at 0x0>");
        return {};
      case Kind::kSelf:
        out_.Append("<TemplateReference None>");
        return {};
    }
    return {};
  }

 private:
  Result<void> Enter(const void* container) {
    open_.push_back(container);
    if (open_.size() > kMaxDataDepth) return DepthFault();
    return {};
  }
  [[nodiscard]] bool IsOpen(const void* container) const {
    return std::find(open_.begin(), open_.end(), container) != open_.end();
  }

  Result<void> PrintItems(const Value& value, std::string_view begin, std::string_view end) {
    if (IsOpen(value.list)) {
      out_.Append(value.is(Kind::kList) ? "[...]" : "(...)");
      return {};
    }
    CMF_CHECK(Enter(value.list));
    out_.Append(begin);
    bool is_first = true;
    for (const Value& item : value.list->span()) {
      if (!is_first) out_.Append(", ");
      is_first = false;
      CMF_CHECK(Print(item));
    }
    out_.Append(end);
    open_.pop_back();
    return {};
  }

  Result<void> PrintDict(const Dict& dict) {
    if (IsOpen(&dict)) {
      out_.Append("{...}");
      return {};
    }
    CMF_CHECK(Enter(&dict));
    out_.Append("{");
    bool is_first = true;
    for (const Dict::Entry& e : dict.span()) {
      if (!is_first) out_.Append(", ");
      is_first = false;
      CMF_CHECK(Print(e.key));
      out_.Append(": ");
      CMF_CHECK(Print(e.value));
    }
    out_.Append("}");
    open_.pop_back();
    return {};
  }

  Result<void> PrintView(const Value& value) {
    CMF_TRY(const std::vector<Value> items, Collect(rt_, value));
    CMF_TRY(const Value list, rt_.NewList(items));
    out_.Append(TypeName(value));
    return PrintItems(list, "([", "])");
  }

  void PrintString(const Str& text) {
    const std::string_view all = text.view();
    const bool has_single = all.find('\'') != std::string_view::npos;
    const char quote = has_single && all.find('"') == std::string_view::npos ? '"' : '\'';
    out_.Append(quote);
    uint64_t plain = 0;
    for (uint64_t i = 0; i < all.size();) {
      const uint64_t at = i;
      const char32_t c = DecodeUtf8(all, &i);
      if (c != '\\' && c != static_cast<unsigned char>(quote) && IsPrintable(c)) continue;
      out_.Append(text, plain, at);
      out_.AppendFor(Escape(c), text, at);
      plain = i;
    }
    out_.Append(text, plain, all.size());
    out_.Append(quote);
  }

  static std::string Escape(char32_t c) {
    switch (c) {
      case '\n':
        return "\\n";
      case '\r':
        return "\\r";
      case '\t':
        return "\\t";
      case '\\':
      case '\'':
      case '"':
        return std::string("\\") + static_cast<char>(c);
      default:
        break;
    }
    const auto code = static_cast<uint32_t>(c);
    if (code < 0x100) return fmt::format("\\x{:02x}", code);
    if (code < 0x10000) return fmt::format("\\u{:04x}", code);
    return fmt::format("\\U{:08x}", code);
  }

  Runtime& rt_;
  TextBuilder& out_;
  std::vector<const void*> open_;  // containers being printed: Python shows cycles as [...]
};

}  // namespace

Result<void> AppendText(Runtime& rt, const Value& value, TextBuilder* out) {
  if (value.is_string()) {
    out->Append(*value.string);
    return {};
  }
  if (value.is_undefined()) return {};
  return AppendRepr(rt, value, out);
}

Result<Value> ToText(Runtime& rt, const Value& value) {
  if (value.is_string()) return value;
  TextBuilder out(rt);
  CMF_CHECK(AppendText(rt, value, &out));
  return out.Finish();
}

Result<void> AppendRepr(Runtime& rt, const Value& value, TextBuilder* out) {
  return Printer(rt, out).Print(value);
}

Result<Value> Repr(Runtime& rt, const Value& value) {
  TextBuilder out(rt);
  CMF_CHECK(AppendRepr(rt, value, &out));
  return out.Finish();
}

}  // namespace cmforge::jinja
