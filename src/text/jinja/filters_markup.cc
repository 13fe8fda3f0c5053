// Filters that make or unmake HTML and URLs.
#include <charconv>

#include "text/jinja/compare.h"
#include "text/jinja/dict.h"
#include "text/jinja/filters.h"
#include "text/jinja/iterate.h"
#include "text/jinja/print.h"
#include "text/jinja/text.h"

namespace cmforge::jinja::filters {
namespace {

// Percent escapes for everything but letters, digits and _.-~/; in a query a blank is + and / is escaped too.
Result<void> AppendQuoted(Runtime& rt, const Value& value, bool in_query, TextBuilder* out) {
  CMF_TRY(const Value text, ToText(rt, value));
  const std::string_view all = text.text();
  if (!rt.Spend(static_cast<int64_t>(all.size() / 16))) return rt.LimitFault();
  for (uint64_t i = 0; i < all.size(); ++i) {
    const char c = all[i];
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                          c == '_' || c == '.' || c == '-' || c == '~' || (c == '/' && !in_query);
    if (is_plain) {
      out->Append(*text.string, i, i + 1);
    } else if (c == ' ' && in_query) {
      out->AppendFor("+", *text.string, i);
    } else {
      out->AppendFor(fmt::format("%{:02X}", static_cast<unsigned char>(c)), *text.string, i);
    }
  }
  return {};
}

}  // namespace

Result<Value> UrlEncode(Runtime& rt, const Bound& b) {
  TextBuilder out(rt);
  if (b[0].is_string() || !IsIterable(b[0])) {
    CMF_CHECK(AppendQuoted(rt, b[0], false, &out));
    return out.Finish();
  }
  Value pairs = b[0];
  if (pairs.is(Kind::kDict)) {
    pairs = Value::Of(Kind::kDictView, rt.heap.New<DictView>(pairs.dict, DictView::What::kItems));
  }
  CMF_TRY(Iterator* const items, Iterate(rt, pairs));
  bool is_first = true;
  while (true) {
    CMF_TRY(const Value item, items->Next(rt));
    if (item.is_missing()) return out.Finish();
    CMF_TRY(const std::vector<Value> pair, Collect(rt, item));
    if (pair.size() != 2) return Fault(error_name::kRuntime, "ValueError: urlencode wants pairs");
    if (!is_first) out.Append("&");
    is_first = false;
    CMF_CHECK(AppendQuoted(rt, pair[0], true, &out));
    out.Append("=");
    CMF_CHECK(AppendQuoted(rt, pair[1], true, &out));
  }
}

Result<Value> XmlAttr(Runtime& rt, const Bound& b) {
  if (b[0].is_undefined()) return UndefinedFault(b[0]);
  if (!b[0].is(Kind::kDict)) {
    return RuntimeFault("AttributeError: '{}' object has no attribute 'items'", TypeName(b[0]));
  }
  TextBuilder out(rt);
  for (const Dict::Entry& e : b[0].dict->span()) {
    if (e.value.is_none() || e.value.is_undefined()) continue;
    CMF_TRY(const Str* const key, AsString(e.key, "attribute name"));
    if (key->view().find_first_of(" \t\n\r\f\v/>=") != std::string_view::npos) {
      return RuntimeFault("ValueError: Invalid character in attribute name: '{}'", key->view());
    }
    if (out.size() > 0 || !b.has(1) || IsTrue(b[1])) out.Append(" ");
    CMF_TRY(const Value value, ToText(rt, e.value));
    AppendEscaped(&out, *key);
    out.Append("=\"");
    if (value.is_markup()) {
      out.Append(*value.string);
    } else {
      AppendEscaped(&out, *value.string);
    }
    out.Append("\"");
  }
  return out.Finish();
}

namespace {

// Everything from each `open` to the next `close` behind it is left out.
Result<Value> Without(Runtime& rt, const Str& text, std::string_view open, std::string_view close) {
  const std::string_view all = text.view();
  TextBuilder out(rt);
  uint64_t at = 0;
  while (true) {
    const uint64_t begin = Find(all, open, at);
    if (begin == std::string_view::npos) break;
    const uint64_t end = Find(all, close, begin + open.size());
    if (end == std::string_view::npos) break;
    out.Append(text, at, begin);
    at = end + close.size();
  }
  out.Append(text, at, all.size());
  return out.Finish();
}

struct Entity {
  std::string_view name;
  char32_t code;
};
// The named ones that turn up in text; others stay as they are.
constexpr Entity kEntities[] = {
    {"amp", '&'},      {"apos", '\''},    {"bull", 0x2022}, {"copy", 0xA9},     {"deg", 0xB0},
    {"eacute", 0xE9},  {"euro", 0x20AC},  {"gt", '>'},      {"hellip", 0x2026}, {"laquo", 0xAB},
    {"ldquo", 0x201C}, {"lsquo", 0x2018}, {"lt", '<'},      {"mdash", 0x2014},  {"middot", 0xB7},
    {"nbsp", 0xA0},    {"ndash", 0x2013}, {"quot", '"'},    {"raquo", 0xBB},    {"rdquo", 0x201D},
    {"reg", 0xAE},     {"rsquo", 0x2019}, {"times", 0xD7},  {"trade", 0x2122},
};

// The character of "#65", "#x41" or a name; 0: none.
char32_t EntityCode(std::string_view name) {
  if (!name.starts_with('#')) {
    for (const Entity& e : kEntities) {
      if (e.name == name) return e.code;
    }
    return 0;
  }
  name.remove_prefix(1);
  const bool is_hex = name.starts_with('x') || name.starts_with('X');
  if (is_hex) name.remove_prefix(1);
  uint32_t code = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), code, is_hex ? 16 : 10);
  if (name.empty() || end != name.data() + name.size()) return 0;
  const bool is_bad =
      error != std::errc() || code == 0 || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF);
  return is_bad ? 0xFFFD : code;
}

void AppendUnescaped(const Str& text, TextBuilder* out) {
  const std::string_view all = text.view();
  uint64_t plain = 0;
  for (uint64_t i = Find(all, "&"); i != std::string_view::npos; i = Find(all, "&", i + 1)) {
    const std::string_view rest = all.substr(i + 1, 12);
    const size_t end = rest.find(';');
    if (end == std::string_view::npos) continue;
    const char32_t code = EntityCode(rest.substr(0, end));
    if (code == 0) continue;
    std::string character;
    AppendUtf8(&character, code);
    out->Append(text, plain, i);
    out->AppendFor(character, text, i);
    plain = i + end + 2;
  }
  out->Append(text, plain, all.size());
}

}  // namespace

// Comments and tags go, white space shrinks to single blanks, entities become characters.
Result<Value> StripTags(Runtime& rt, const Bound& b) {
  CMF_TRY(const Value value, ToText(rt, b[0]));
  if (!rt.Spend(static_cast<int64_t>(value.string->size / 4))) return rt.LimitFault();
  CMF_TRY(const Value without_comments, Without(rt, *value.string, "<!--", "-->"));
  CMF_TRY(const Value plain, Without(rt, *without_comments.string, "<", ">"));
  TextBuilder words(rt);
  const Str& text = *plain.string;
  const std::string_view rest = text.view();
  bool pending_blank = false;
  for (uint64_t i = 0; i < rest.size();) {
    const uint64_t begin = i;
    if (IsSpace(DecodeUtf8(rest, &i))) {
      pending_blank = words.size() > 0;
      continue;
    }
    if (pending_blank) words.AppendFor(" ", text, begin);
    pending_blank = false;
    words.Append(text, begin, i);
  }
  CMF_TRY(const Value joined, words.Finish());
  TextBuilder out(rt);
  AppendUnescaped(*joined.string, &out);
  return out.Finish();
}

Result<Value> Urlize(Runtime&, const Bound&) {
  return Fault(error_name::kRuntime, "the filter 'urlize' is not supported: it makes links for web pages");
}

}  // namespace cmforge::jinja::filters
