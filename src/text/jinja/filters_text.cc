// Filters of strings.
#include <algorithm>

#include "text/jinja/compare.h"
#include "text/jinja/filters.h"
#include "text/jinja/format.h"
#include "text/jinja/iterate.h"
#include "text/jinja/numbers.h"
#include "text/jinja/print.h"
#include "text/jinja/string_methods.h"
#include "text/jinja/text.h"

namespace cmforge::jinja::filters {

bool Flag(const Bound& b, size_t i) { return b.has(i) && IsTrue(b[i]); }

Result<Value> Capitalize(Runtime& rt, const Bound& b) {
  CMF_TRY(const Value text, ToText(rt, b[0]));
  return jinja::Capitalize(rt, text);
}

Result<Value> Upper(Runtime& rt, const Bound& b) {
  CMF_TRY(const Value text, ToText(rt, b[0]));
  return ToUpper(rt, text);
}

Result<Value> Lower(Runtime& rt, const Bound& b) {
  CMF_TRY(const Value text, ToText(rt, b[0]));
  return ToLower(rt, text);
}

Result<Value> Center(Runtime& rt, const Bound& b) {
  CMF_TRY(const Value text, ToText(rt, b[0]));
  int64_t width = 80;
  if (b.has(1)) {
    CMF_TRY(width, ToIndex(b[1]));
  }
  return Pad(rt, *text.string, width, " ", 0, text.special);
}

Result<Value> Trim(Runtime& rt, const Bound& b) {
  CMF_TRY(const Value text, ToText(rt, b[0]));
  return StripValue(rt, text, b[1], true, true);
}

// Words begin after white space and after - ( { [ <; their first character is raised, the rest lowered.
Result<Value> Title(Runtime& rt, const Bound& b) {
  CMF_TRY(const Value value, ToText(rt, b[0]));
  const Str& text = *value.string;
  if (!rt.Spend(static_cast<int64_t>(text.size / 16))) return rt.LimitFault();
  TextBuilder out(rt);
  const std::string_view all = text.view();
  const auto begins_word = [](char32_t c) {
    return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || IsSpace(c);
  };
  std::string piece;
  uint64_t word = 0;  // where the current word starts
  bool at_start = true;
  for (uint64_t i = 0; i < all.size();) {
    const uint64_t at = i;
    const char32_t c = DecodeUtf8(all, &i);
    piece.clear();
    if (begins_word(c)) {
      AppendUtf8(&piece, c);
      at_start = true;
    } else if (at_start) {
      AppendUpper(&piece, c);
      at_start = false;
      word = i;
    } else {
      // A final sigma is looked for inside of the rest of the word.
      uint64_t end = i;
      if (c == 0x3A3) {
        while (end < all.size()) {
          uint64_t next = end;
          if (begins_word(DecodeUtf8(all, &next))) break;
          end = next;
        }
      }
      AppendLower(&piece, c, all.substr(word, end - word), at - word);
    }
    out.AppendFor(piece, text, at);
  }
  return out.Finish();
}

Result<Value> String(Runtime& rt, const Bound& b) { return ToText(rt, b[0]); }

Result<Value> Safe(Runtime& rt, const Bound& b) {
  CMF_TRY(const Value text, ToText(rt, b[0]));
  return rt.View(*text.string, true);
}

namespace {
Result<Value> EscapeText(Runtime& rt, const Value& text) {
  TextBuilder out(rt);
  AppendEscaped(&out, *text.string);
  return out.Finish(true);
}
}  // namespace

Result<Value> Escape(Runtime& rt, const Bound& b) {
  CMF_TRY(const Value text, ToText(rt, b[0]));
  if (text.is_markup()) return text;
  return EscapeText(rt, text);
}

Result<Value> ForceEscape(Runtime& rt, const Bound& b) {
  CMF_TRY(const Value text, ToText(rt, b[0]));
  return EscapeText(rt, text);
}

Result<Value> Format(Runtime& rt, const Bound& b) {
  CMF_TRY(const Value pattern, ToText(rt, b[0]));
  if (b.named_rest.empty()) {
    CMF_TRY(const Value values, rt.NewList(b.rest, Kind::kTuple));
    return PercentFormat(rt, pattern, values);
  }
  if (!b.rest.empty()) {
    return Fault(error_name::kTemplate, "can't handle positional and keyword arguments at the same time");
  }
  Value values = Value::Of(Kind::kDict, rt.heap.New<Dict>());
  CMF_CHECK(UpdateDict(rt, values.dict, {{}, b.named_rest}));
  return PercentFormat(rt, pattern, values);
}

Result<Value> Replace(Runtime& rt, const Bound& b) {
  CMF_TRY(const Value text, ToText(rt, b[0]));
  CMF_TRY(const Value from, ToText(rt, b[1]));
  CMF_TRY(const Value to, ToText(rt, b[2]));
  int64_t most = -1;
  if (b.has(3) && !b[3].is_none()) {
    CMF_TRY(most, ToIndex(b[3]));
  }
  return jinja::Replace(rt, *text.string, *from.string, *to.string, most, false);
}

Result<Value> Join(Runtime& rt, const Bound& b) {
  Value separator = rt.View(std::string_view());
  if (b.has(1)) {
    CMF_TRY(separator, ToText(rt, b[1]));
  }
  CMF_TRY(Iterator* const items, Iterate(rt, b[0]));
  TextBuilder out(rt);
  bool is_first = true;
  while (true) {
    CMF_TRY(Value item, items->Next(rt));
    if (item.is_missing()) break;
    if (b.has(2) && !b[2].is_none()) {
      CMF_TRY(item, GetPath(rt, item, b[2]));
    }
    if (!is_first) out.Append(*separator.string);
    is_first = false;
    CMF_CHECK(AppendText(rt, item, &out));
    if (out.overflowed()) break;
  }
  return out.Finish();
}

Result<Value> Indent(Runtime& rt, const Bound& b) {
  if (b[0].is_undefined()) return UndefinedFault(b[0]);
  CMF_TRY(const Str* const text, AsString(b[0], "what is indented"));
  if (!rt.Spend(static_cast<int64_t>(text->size / 16))) return rt.LimitFault();
  Value indent;
  if (b.has(1) && b[1].is_string()) {
    indent = b[1];
  } else {
    int64_t width = 4;
    if (b.has(1)) {
      CMF_TRY(width, ToIndex(b[1]));
    }
    CMF_CHECK(rt.Reserve(static_cast<uint64_t>(std::max<int64_t>(width, 0))));
    TextBuilder blanks(rt);
    blanks.AppendRepeated(" ", static_cast<uint64_t>(std::max<int64_t>(width, 0)));
    CMF_TRY(indent, blanks.Finish());
  }
  const bool indents_blank = Flag(b, 3);
  TextBuilder out(rt);
  if (Flag(b, 2)) out.Append(*indent.string);
  // The text has a newline added, so its last line counts even when it is empty.
  const std::string_view all = text->view();
  uint64_t begin = 0;
  while (true) {
    if (!rt.Spend()) return rt.LimitFault();
    const Line line = NextLine(all, begin);
    if (begin > 0) {
      out.Append("\n");
      if (line.end > line.begin || indents_blank) out.Append(*indent.string);
    }
    out.Append(*text, line.begin, line.end);
    if (line.next == line.end || out.overflowed()) break;
    begin = line.next;
    // A lone carriage return at the end joins with the newline added: no line follows.
    if (begin == all.size() && all[begin - 1] == '\r') break;
  }
  return out.Finish(b[0].special);
}

Result<Value> Truncate(Runtime& rt, const Bound& b) {
  int64_t length = 255;
  if (b.has(1)) {
    CMF_TRY(length, ToIndex(b[1]));
  }
  int64_t leeway = 5;
  if (b.has(4) && !b[4].is_none()) {
    CMF_TRY(leeway, ToIndex(b[4]));
  }
  Value end = rt.View("...");
  if (b.has(3)) end = b[3];
  CMF_TRY(const int64_t end_length, Length(rt, end));
  if (length < end_length) {
    return RuntimeFault("AssertionError: expected length >= {}, got {}", end_length, length);
  }
  if (leeway < 0) return RuntimeFault("AssertionError: expected leeway >= 0, got {}", leeway);
  CMF_TRY(const int64_t size, Length(rt, b[0]));
  if (size - leeway <= length) return b[0];
  CMF_TRY(const Str* const text, AsString(b[0], "what is truncated"));
  CMF_TRY(const Str* const tail, AsString(end, "the end of what is truncated"));
  const std::string_view all = text->view();
  uint64_t kept = SkipCodePoints(all, static_cast<uint64_t>(length - end_length));
  if (!Flag(b, 2)) {
    const uint64_t blank = all.substr(0, kept).rfind(' ');
    if (blank != std::string_view::npos) kept = blank;
  }
  TextBuilder out(rt);
  out.Append(*text, 0, kept);
  out.Append(*tail);
  return out.Finish(b[0].special);
}

Result<Value> WordCount(Runtime& rt, const Bound& b) {
  CMF_TRY(const Value text, ToText(rt, b[0]));
  if (!rt.Spend(static_cast<int64_t>(text.string->size / 16))) return rt.LimitFault();
  int64_t count = 0;
  bool in_word = false;
  for (uint64_t i = 0; i < text.text().size();) {
    const char32_t c = DecodeUtf8(text.text(), &i);
    const bool is_word = c == '_' || IsAlnum(c);
    if (is_word && !in_word) ++count;
    in_word = is_word;
  }
  return Value::Int(count);
}

}  // namespace cmforge::jinja::filters
