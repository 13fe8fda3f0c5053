// 'pattern'.format(…): fields with attributes, items, conversions and nested specs.
#include <charconv>

#include "text/jinja/attributes.h"
#include "text/jinja/dict.h"
#include "text/jinja/format.h"
#include "text/jinja/numbers.h"
#include "text/jinja/print.h"

namespace cmforge::jinja {
namespace {

class BraceFormatter {
 public:
  BraceFormatter(Runtime& rt, bool escapes, const Arguments& arguments, const Dict* mapping)
      : rt_(rt), escapes_(escapes), arguments_(arguments), mapping_(mapping) {}

  Result<void> Run(const Str& pattern, int depth, TextBuilder* out) {
    if (depth > 2) return Bad("Max string recursion exceeded");
    const std::string_view text = pattern.view();
    uint64_t plain = 0;
    for (uint64_t i = 0; i < text.size();) {
      const char c = text[i];
      if (c != '{' && c != '}') {
        ++i;
        continue;
      }
      out->Append(pattern, plain, i);
      if (i + 1 < text.size() && text[i + 1] == c) {
        out->Append(pattern, i, i + 1);
        i += 2;
        plain = i;
        continue;
      }
      if (c == '}') return Bad("Single '}' encountered in format string");
      CMF_TRY(const uint64_t end, FieldEnd(text, i + 1));
      if (!rt_.Spend()) return rt_.LimitFault();
      CMF_CHECK(Field(Piece(rt_, pattern, i + 1, end), depth, out));
      i = end + 1;
      plain = i;
    }
    out->Append(pattern, plain, text.size());
    return {};
  }

 private:
  static tl::unexpected<Error> Bad(std::string_view fact) { return RuntimeFault("ValueError: {}", fact); }

  static Result<uint64_t> FieldEnd(std::string_view text, uint64_t at) {
    int depth = 1;
    bool in_index = false;  // braces inside of [] are part of the key
    bool in_spec = false;
    for (; at < text.size(); ++at) {
      const char c = text[at];
      if (!in_spec && c == '[') in_index = true;
      if (in_index) {
        if (c == ']') in_index = false;
        continue;
      }
      if (c == ':' || c == '!') in_spec = true;
      if (c == '{') ++depth;
      if (c == '}' && --depth == 0) return at;
    }
    return Bad("expected '}' before end of string");
  }

  Result<void> Field(const Str& field, int depth, TextBuilder* out) {
    const std::string_view text = field.view();
    size_t name_end = 0;
    for (bool in_index = false; name_end < text.size(); ++name_end) {
      const char c = text[name_end];
      if (c == '[') in_index = true;
      if (c == ']') in_index = false;
      if (!in_index && (c == ':' || c == '!')) break;
      if (c == '{' && !in_index) return Bad("unexpected '{' in field name");
    }
    char conversion = 0;
    size_t at = name_end;
    if (at < text.size() && text[at] == '!') {
      if (at + 1 >= text.size()) return Bad("end of string while looking for conversion specifier");
      conversion = text[at + 1];
      at += 2;
      if (at < text.size() && text[at] != ':') return Bad("expected ':' after conversion specifier");
    }
    CMF_TRY(Value value, FieldValue(text.substr(0, name_end)));
    CMF_TRY(value, Convert(value, conversion));
    TextBuilder spec(rt_);
    if (at < text.size()) CMF_CHECK(Run(Piece(rt_, field, at + 1, text.size()), depth + 1, &spec));
    if (!escapes_ || value.is_markup()) return AppendFormatted(rt_, value, spec.text(), out);
    TextBuilder shown(rt_);
    CMF_CHECK(AppendFormatted(rt_, value, spec.text(), &shown));
    CMF_TRY(const Value finished, shown.Finish());
    AppendEscaped(out, *finished.string);
    return {};
  }

  Result<Value> Convert(const Value& value, char conversion) {
    switch (conversion) {
      case 0:
        return value;
      case 's':
        return ToText(rt_, value);
      case 'r':
      case 'a':
        return Repr(rt_, value);
      default:
        return RuntimeFault("ValueError: Unknown conversion specifier {}", conversion);
    }
  }

  Result<Value> FieldValue(std::string_view name) {
    const size_t first_end = std::min(name.find_first_of(".["), name.size());
    CMF_TRY(Value value, First(name.substr(0, first_end)));
    size_t at = first_end;
    while (at < name.size()) {
      if (!rt_.Spend()) return rt_.LimitFault();
      if (name[at] == '.') {
        const size_t end = std::min(name.find_first_of(".[", at + 1), name.size());
        if (end == at + 1) return Bad("Empty attribute in format string");
        CMF_TRY(value, GetAttribute(rt_, value, name.substr(at + 1, end - at - 1)));
        at = end;
      } else if (name[at] == '[') {
        const size_t end = name.find(']', at);
        if (end == std::string_view::npos) return Bad("Missing ']' in format string");
        const std::string_view key = name.substr(at + 1, end - at - 1);
        if (key.empty()) return Bad("Empty attribute in format string");
        const std::optional<int64_t> number = AsNumber(key);
        CMF_TRY(const Value item, number ? Result<Value>(Value::Int(*number)) : rt_.Text(key));
        CMF_TRY(value, GetItem(rt_, value, item));
        at = end + 1;
      } else {
        return Bad("Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return value;
  }

  static std::optional<int64_t> AsNumber(std::string_view text) {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (text.empty() || text[0] == '-' || end != text.data() + text.size() || error != std::errc())
      return std::nullopt;
    return number;
  }

  Result<Value> First(std::string_view name) {
    std::optional<int64_t> number = AsNumber(name);
    if (name.empty()) {
      if (is_manual_)
        return Bad("cannot switch from manual field specification to automatic field numbering");
      is_automatic_ = true;
      number = next_++;
    } else if (number) {
      if (is_automatic_)
        return Bad("cannot switch from automatic field numbering to manual field specification");
      is_manual_ = true;
    }
    if (number) {
      if (*number >= static_cast<int64_t>(arguments_.positional.size())) {
        return Fault(error_name::kRuntime,
                     "IndexError: Replacement index out of range for positional args tuple");
      }
      return arguments_.positional[static_cast<size_t>(*number)];
    }
    if (mapping_ != nullptr) {
      if (const Value* found = FindText(*mapping_, name)) return *found;
    }
    for (const NamedValue& named : arguments_.named) {
      if (named.name == name) return named.value;
    }
    return RuntimeFault("KeyError: '{}'", name);
  }

  Runtime& rt_;
  const bool escapes_;
  const Arguments arguments_;
  const Dict* mapping_;
  int64_t next_ = 0;
  bool is_automatic_ = false;
  bool is_manual_ = false;
};

}  // namespace

Result<Value> BraceFormat(Runtime& rt, const Value& pattern, const Arguments& arguments) {
  TextBuilder out(rt);
  CMF_CHECK(BraceFormatter(rt, pattern.special, arguments, nullptr).Run(*pattern.string, 1, &out));
  return out.Finish(pattern.special);
}

Result<Value> BraceFormatMap(Runtime& rt, const Value& pattern, const Value& mapping) {
  if (!mapping.is(Kind::kDict))
    return RuntimeFault("TypeError: '{}' object is not a mapping", TypeName(mapping));
  TextBuilder out(rt);
  CMF_CHECK(BraceFormatter(rt, pattern.special, {}, mapping.dict).Run(*pattern.string, 1, &out));
  return out.Finish(pattern.special);
}

}  // namespace cmforge::jinja
