// The methods of str.
#include "text/jinja/string_methods.h"

#include <algorithm>

#include "text/jinja/callables.h"
#include "text/jinja/dict.h"
#include "text/jinja/format.h"
#include "text/jinja/iterate.h"
#include "text/jinja/numbers.h"
#include "text/jinja/print.h"
#include "text/jinja/text.h"

namespace cmforge::jinja {
namespace {

const Str& Self(const Bound& b) { return *b.self.string; }

// A piece of the string itself: Markup stays Markup.
Value Cut(Runtime& rt, const Bound& b, uint64_t begin, uint64_t end) {
  return rt.View(Piece(rt, *b.self.string, begin, end), b.self.special);
}

tl::unexpected<Error> ValueError(std::string_view fact) { return RuntimeFault("ValueError: {}", fact); }

Result<void> PayFor(Runtime& rt, const Str& text) {
  if (!rt.Spend(static_cast<int64_t>(text.size / 16))) return rt.LimitFault();
  return {};
}

// ---- case ----

enum class Case : uint8_t { kUpper, kLower, kTitle, kCapitalize, kSwap, kFold };

Result<Value> ChangeCase(Runtime& rt, const Value& self, Case to) {
  const Str& text = *self.string;
  CMF_CHECK(PayFor(rt, text));
  const std::string_view all = text.view();
  TextBuilder out(rt);
  std::string piece;
  bool after_cased = false;
  for (uint64_t i = 0; i < all.size();) {
    const uint64_t at = i;
    const char32_t c = DecodeUtf8(all, &i);
    piece.clear();
    switch (to) {
      case Case::kUpper:
        AppendUpper(&piece, c);
        break;
      case Case::kLower:
        AppendLower(&piece, c, all, at);
        break;
      case Case::kFold:
        AppendFolded(&piece, c);
        break;
      case Case::kTitle:
        if (after_cased) {
          AppendLower(&piece, c, all, at);
        } else {
          AppendTitle(&piece, c);
        }
        after_cased = IsCased(c);
        break;
      case Case::kCapitalize:
        if (at > 0) {
          AppendLower(&piece, c, all, at);
        } else {
          AppendTitle(&piece, c);
        }
        break;
      case Case::kSwap:
        if (IsUpper(c)) {
          AppendLower(&piece, c, all, at);
        } else if (IsLower(c)) {
          AppendUpper(&piece, c);
        } else {
          AppendUtf8(&piece, c);
        }
        break;
    }
    out.AppendFor(piece, text, at);
  }
  return out.Finish(self.special);
}

template <Case kTo>
Result<Value> CaseMethod(Runtime& rt, const Bound& b) {
  return ChangeCase(rt, b.self, kTo);
}

// ---- classes ----

template <bool (*kIs)(char32_t), bool kWhenEmpty = false>
Result<Value> AllAre(Runtime& rt, const Bound& b) {
  CMF_CHECK(PayFor(rt, Self(b)));
  const std::string_view all = Self(b).view();
  if (all.empty()) return Value::Bool(kWhenEmpty);
  for (uint64_t i = 0; i < all.size();) {
    if (!kIs(DecodeUtf8(all, &i))) return Value::Bool(false);
  }
  return Value::Bool(true);
}

bool IsAsciiCode(char32_t c) { return c < 0x80; }

Result<Value> IsTitleMethod(Runtime& rt, const Bound& b) {
  CMF_CHECK(PayFor(rt, Self(b)));
  const std::string_view all = Self(b).view();
  bool after_cased = false;
  bool any = false;
  for (uint64_t i = 0; i < all.size();) {
    const char32_t c = DecodeUtf8(all, &i);
    if (IsUpper(c) || IsTitle(c)) {
      if (after_cased) return Value::Bool(false);
      after_cased = any = true;
    } else if (IsLower(c)) {
      if (!after_cased) return Value::Bool(false);
      any = true;
    } else {
      after_cased = false;
    }
  }
  return Value::Bool(any);
}

template <bool kUpper>
Result<Value> IsCaseMethod(Runtime& rt, const Bound& b) {
  CMF_CHECK(PayFor(rt, Self(b)));
  return Value::Bool(IsAllOneCase(Self(b).view(), kUpper));
}

Result<Value> IsIdentifierMethod(Runtime& rt, const Bound& b) {
  CMF_CHECK(PayFor(rt, Self(b)));
  return Value::Bool(IsIdentifier(Self(b).view()));
}

// ---- searching ----

// The bytes of text[start:end]; nothing when start lies behind the text, where not even "" is found.
Result<bool> Window(Runtime& rt, const Str& text, const Value& start, const Value& end, uint64_t* begin,
                    uint64_t* stop) {
  *begin = 0;
  *stop = text.size;
  const bool has_start = !start.is_missing() && !start.is_none();
  const bool has_end = !end.is_missing() && !end.is_none();
  if (!has_start && !has_end) return true;
  CMF_CHECK(PayFor(rt, text));
  const auto size = static_cast<int64_t>(CountCodePoints(text.view()));
  int64_t first = 0;
  int64_t last = size;
  if (has_start) {
    CMF_TRY(first, ToIndex(start));
  }
  if (has_end) {
    CMF_TRY(last, ToIndex(end));
  }
  if (first < 0) first = std::max<int64_t>(0, first < -size ? 0 : first + size);
  if (last < 0) last = std::max<int64_t>(0, last < -size ? 0 : last + size);
  last = std::min(last, size);
  if (first > size || first > last) return false;
  *begin = SkipCodePoints(text.view(), static_cast<uint64_t>(first));
  *stop = *begin + SkipCodePoints(text.view().substr(*begin), static_cast<uint64_t>(last - first));
  return true;
}

// Code point number of the first or last occurrence, -1 when there is none.
Result<int64_t> FindIn(Runtime& rt, const Bound& b, bool from_back) {
  const Str& text = Self(b);
  CMF_TRY(const Str* const needle, AsString(b[0], "argument"));
  CMF_CHECK(PayFor(rt, text));
  uint64_t begin = 0;
  uint64_t stop = 0;
  CMF_TRY(const bool is_inside, Window(rt, text, b[1], b[2], &begin, &stop));
  if (!is_inside) return -1;
  const std::string_view window = text.view().substr(begin, stop - begin);
  uint64_t at = std::string_view::npos;
  if (from_back) {
    const std::vector<uint64_t> found = FindFromBack(window, needle->view(), 1);
    if (!found.empty()) at = found[0];
  } else {
    at = Find(window, needle->view());
  }
  if (at == std::string_view::npos) return -1;
  return static_cast<int64_t>(CountCodePoints(text.view().substr(0, begin + at)));
}

template <bool kFromBack, bool kMustExist>
Result<Value> FindMethod(Runtime& rt, const Bound& b) {
  CMF_TRY(const int64_t at, FindIn(rt, b, kFromBack));
  if (kMustExist && at < 0) return ValueError("substring not found");
  return Value::Int(at);
}

Result<Value> Count(Runtime& rt, const Bound& b) {
  const Str& text = Self(b);
  CMF_TRY(const Str* const needle, AsString(b[0], "argument"));
  CMF_CHECK(PayFor(rt, text));
  uint64_t begin = 0;
  uint64_t stop = 0;
  CMF_TRY(const bool is_inside, Window(rt, text, b[1], b[2], &begin, &stop));
  if (!is_inside) return Value::Int(0);
  const std::string_view window = text.view().substr(begin, stop - begin);
  if (needle->size == 0) return Value::Int(static_cast<int64_t>(CountCodePoints(window)) + 1);
  int64_t count = 0;
  for (uint64_t at = Find(window, needle->view()); at != std::string_view::npos;
       at = Find(window, needle->view(), at + needle->size)) {
    ++count;
  }
  return Value::Int(count);
}

template <bool kAtEnd>
Result<Value> AffixMethod(Runtime& rt, const Bound& b) {
  const Str& text = Self(b);
  uint64_t begin = 0;
  uint64_t stop = 0;
  CMF_TRY(const bool is_inside, Window(rt, text, b[1], b[2], &begin, &stop));
  const std::string_view window = text.view().substr(begin, stop - begin);
  std::span<const Value> affixes(&b[0], 1);
  if (b[0].is(Kind::kTuple)) affixes = b[0].list->span();
  for (const Value& affix : affixes) {
    CMF_TRY(const Str* const wanted, AsString(affix, "startswith or endswith argument"));
    if (!rt.Spend(static_cast<int64_t>(wanted->size / 64 + 1))) return rt.LimitFault();
    if (!is_inside) continue;
    if (kAtEnd ? window.ends_with(wanted->view()) : window.starts_with(wanted->view()))
      return Value::Bool(true);
  }
  return Value::Bool(false);
}

template <bool kAtEnd>
Result<Value> RemoveAffix(Runtime& rt, const Bound& b) {
  const Str& text = Self(b);
  CMF_TRY(const Str* const affix, AsString(b[0], "argument"));
  if (!rt.Spend(static_cast<int64_t>(affix->size / 64))) return rt.LimitFault();
  if (kAtEnd && text.view().ends_with(affix->view())) return Cut(rt, b, 0, text.size - affix->size);
  if (!kAtEnd && text.view().starts_with(affix->view())) return Cut(rt, b, affix->size, text.size);
  return b.self;
}

// ---- cutting ----

template <bool kLeft, bool kRight>
Result<Value> StripMethod(Runtime& rt, const Bound& b) {
  return StripValue(rt, b.self, b[0], kLeft, kRight);
}

// How many cuts at most; negative: any number.
Result<int64_t> MostCuts(const Value& value) {
  if (value.is_missing()) return -1;
  return ToIndex(value);
}

// Words between runs of white space; the last one is the whole rest.
Result<Value> SplitWords(Runtime& rt, const Bound& b, int64_t most) {
  const Str& text = Self(b);
  const std::string_view all = text.view();
  std::vector<Value> words;
  uint64_t i = 0;
  const auto skip_space = [&] {
    while (i < all.size()) {
      uint64_t next = i;
      if (!IsSpace(DecodeUtf8(all, &next))) break;
      i = next;
    }
  };
  for (skip_space(); i < all.size(); skip_space()) {
    if (!rt.Spend()) return rt.LimitFault();
    const uint64_t begin = i;
    if (most >= 0 && static_cast<int64_t>(words.size()) == most) {
      words.push_back(Cut(rt, b, begin, all.size()));
      break;
    }
    while (i < all.size()) {
      uint64_t next = i;
      if (IsSpace(DecodeUtf8(all, &next))) break;
      i = next;
    }
    words.push_back(Cut(rt, b, begin, i));
  }
  return rt.NewList(words);
}

Result<Value> SplitWordsFromBack(Runtime& rt, const Bound& b, int64_t most) {
  const Str& text = Self(b);
  const std::string_view all = text.view();
  std::vector<Value> words;
  uint64_t end = all.size();
  const auto space_before = [&](uint64_t at) {
    const uint64_t previous = PreviousCodePoint(all, at);
    uint64_t next = previous;
    return IsSpace(DecodeUtf8(all, &next)) ? previous : at;
  };
  while (true) {
    while (end > 0 && space_before(end) != end) end = space_before(end);
    if (end == 0) break;
    if (!rt.Spend()) return rt.LimitFault();
    if (most >= 0 && static_cast<int64_t>(words.size()) == most) {
      words.push_back(Cut(rt, b, 0, end));
      break;
    }
    uint64_t begin = end;
    while (begin > 0 && space_before(begin) == begin) begin = PreviousCodePoint(all, begin);
    words.push_back(Cut(rt, b, begin, end));
    end = begin;
  }
  std::reverse(words.begin(), words.end());
  return rt.NewList(words);
}

template <bool kFromBack>
Result<Value> Split(Runtime& rt, const Bound& b) {
  const Str& text = Self(b);
  CMF_CHECK(PayFor(rt, text));
  CMF_TRY(const int64_t most, MostCuts(b[1]));
  if (!b.has(0) || b[0].is_none()) {
    return kFromBack ? SplitWordsFromBack(rt, b, most) : SplitWords(rt, b, most);
  }
  CMF_TRY(const Str* const separator, AsString(b[0], "separator"));
  if (separator->size == 0) return ValueError("empty separator");
  const uint64_t limit = most < 0 ? UINT64_MAX : static_cast<uint64_t>(most);
  std::vector<Value> parts;
  if (kFromBack) {
    CMF_CHECK(rt.Reserve(2 * text.size));
    const uint64_t affordable = static_cast<uint64_t>(rt.options.limits.memory_bytes) / sizeof(Str);
    uint64_t end = text.size;
    for (const uint64_t cut : FindFromBack(text.view(), separator->view(), std::min(limit, affordable))) {
      if (!rt.Spend()) return rt.LimitFault();
      parts.push_back(Cut(rt, b, cut + separator->size, end));
      end = cut;
    }
    if (parts.size() == affordable) return rt.LimitFault();
    parts.push_back(Cut(rt, b, 0, end));
    std::reverse(parts.begin(), parts.end());
    return rt.NewList(parts);
  }
  uint64_t begin = 0;
  while (parts.size() < limit) {
    if (!rt.Spend()) return rt.LimitFault();
    const uint64_t cut = Find(text.view(), separator->view(), begin);
    if (cut == std::string_view::npos) break;
    parts.push_back(Cut(rt, b, begin, cut));
    begin = cut + separator->size;
  }
  parts.push_back(Cut(rt, b, begin, text.size));
  return rt.NewList(parts);
}

template <bool kFromBack>
Result<Value> Partition(Runtime& rt, const Bound& b) {
  const Str& text = Self(b);
  CMF_CHECK(PayFor(rt, text));
  CMF_TRY(const Str* const separator, AsString(b[0], "separator"));
  if (separator->size == 0) return ValueError("empty separator");
  uint64_t at = std::string_view::npos;
  if (kFromBack) {
    const std::vector<uint64_t> found = FindFromBack(text.view(), separator->view(), 1);
    if (!found.empty()) at = found[0];
  } else {
    at = Find(text.view(), separator->view());
  }
  const Value nothing = rt.View(std::string_view());
  if (at == std::string_view::npos) {
    const Value parts[] = {kFromBack ? nothing : b.self, nothing, kFromBack ? b.self : nothing};
    return rt.NewList(parts, Kind::kTuple);
  }
  const Value parts[] = {Cut(rt, b, 0, at), b[0], Cut(rt, b, at + separator->size, text.size)};
  return rt.NewList(parts, Kind::kTuple);
}

Result<Value> SplitLinesMethod(Runtime& rt, const Bound& b) {
  CMF_CHECK(PayFor(rt, Self(b)));
  bool keep = false;
  if (b.has(0)) {
    CMF_TRY(const int64_t flag, ToIndex(b[0]));
    keep = flag != 0;
  }
  std::vector<Value> lines;
  const std::string_view all = Self(b).view();
  for (Line line = NextLine(all, 0); line.begin < all.size(); line = NextLine(all, line.next)) {
    if (!rt.Spend()) return rt.LimitFault();
    lines.push_back(Cut(rt, b, line.begin, keep ? line.next : line.end));
  }
  return rt.NewList(lines);
}

// ---- building ----

Result<Value> JoinMethod(Runtime& rt, const Bound& b) {
  TextBuilder out(rt);
  if (!IsIterable(b[0])) return Fault(error_name::kRuntime, "TypeError: can only join an iterable");
  CMF_TRY(Iterator* const items, Iterate(rt, b[0]));
  bool is_first = true;
  while (true) {
    CMF_TRY(const Value item, items->Next(rt));
    if (item.is_missing()) break;
    CMF_TRY(const Str* const text, AsString(item, "sequence item"));
    if (!is_first) out.Append(Self(b));
    is_first = false;
    if (b.self.special && !item.special) {
      AppendEscaped(&out, *text);
    } else {
      out.Append(*text);
    }
    if (out.overflowed()) break;
  }
  return out.Finish(b.self.special);
}

Result<Value> ReplaceMethod(Runtime& rt, const Bound& b) {
  CMF_TRY(const Str* const from, AsString(b[0], "replace() argument 1"));
  CMF_TRY(const Str* const to, AsString(b[1], "replace() argument 2"));
  CMF_TRY(const int64_t most, MostCuts(b[2]));
  return Replace(rt, Self(b), *from, *to, most, b.self.special);
}

Result<Value> Justify(Runtime& rt, const Bound& b, int side) {
  const Str& text = Self(b);
  CMF_TRY(const int64_t width, ToIndex(b[0]));
  std::string_view fill = " ";
  if (b.has(1)) {
    CMF_TRY(const Str* const given, AsString(b[1], "the fill character"));
    fill = given->view();
    if (CountCodePoints(fill) != 1) {
      return Fault(error_name::kRuntime, "TypeError: The fill character must be exactly one character long");
    }
  }
  return Pad(rt, text, width, fill, side, b.self.special);
}

template <int kSide>
Result<Value> JustifyMethod(Runtime& rt, const Bound& b) {
  return Justify(rt, b, kSide);
}

Result<Value> ZFill(Runtime& rt, const Bound& b) {
  const Str& text = Self(b);
  CMF_TRY(const int64_t width, ToIndex(b[0]));
  const auto size = static_cast<int64_t>(CountCodePoints(text.view()));
  if (width <= size) return b.self;
  CMF_CHECK(rt.Reserve(static_cast<uint64_t>(width)));
  TextBuilder out(rt);
  const uint64_t sign = text.view().starts_with('+') || text.view().starts_with('-') ? 1 : 0;
  out.Append(text, 0, sign);
  out.AppendRepeated("0", static_cast<uint64_t>(width - size));
  out.Append(text, sign, text.size);
  return out.Finish(b.self.special);
}

Result<Value> ExpandTabs(Runtime& rt, const Bound& b) {
  const Str& text = Self(b);
  int64_t size = 8;
  if (b.has(0)) {
    CMF_TRY(size, ToIndex(b[0]));
  }
  TextBuilder out(rt);
  int64_t column = 0;
  const std::string_view all = text.view();
  for (uint64_t i = 0; i < all.size();) {
    const uint64_t at = i;
    const char32_t c = DecodeUtf8(all, &i);
    if (c == '\t') {
      const int64_t fill = size > 0 ? size - column % size : 0;
      CMF_CHECK(rt.Reserve(static_cast<uint64_t>(fill)));
      out.AppendRepeated(" ", static_cast<uint64_t>(fill));
      column += fill;
      if (out.overflowed()) break;
    } else {
      out.Append(text, at, i);
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
  }
  return out.Finish(b.self.special);
}

Result<Value> Translate(Runtime& rt, const Bound& b) {
  const Str& text = Self(b);
  CMF_CHECK(PayFor(rt, text));
  if (!b[0].is(Kind::kDict))
    return RuntimeFault("TypeError: '{}' is not a translation table", TypeName(b[0]));
  TextBuilder out(rt);
  const std::string_view all = text.view();
  for (uint64_t i = 0; i < all.size();) {
    const uint64_t at = i;
    const char32_t c = DecodeUtf8(all, &i);
    CMF_TRY(const Value* const to, FindKey(*b[0].dict, Value::Int(static_cast<int64_t>(c))));
    if (to == nullptr) {
      out.Append(text, at, i);
    } else if (to->is_string()) {
      out.Append(*to->string);
    } else if (to->is(Kind::kInt) && to->integer >= 0 && to->integer <= 0x10FFFF) {
      std::string piece;
      AppendUtf8(&piece, static_cast<char32_t>(to->integer));
      out.AppendFor(piece, text, at);
    } else if (!to->is_none()) {
      return Fault(error_name::kRuntime, "TypeError: character mapping must return integer, None or str");
    }
  }
  return out.Finish();
}

Result<Value> FormatMethod(Runtime& rt, const Bound& b) {
  return BraceFormat(rt, b.self, {b.rest, b.named_rest});
}
Result<Value> FormatMapMethod(Runtime& rt, const Bound& b) { return BraceFormatMap(rt, b.self, b[0]); }

constexpr MethodEntry kMethods[] = {
    {{"capitalize", "", CaseMethod<Case::kCapitalize>}},
    {{"casefold", "", CaseMethod<Case::kFold>}},
    {{"center", "/width /fillchar?", JustifyMethod<0>}},
    {{"count", "/sub /start? /end?", Count}},
    {{"endswith", "/suffix /start? /end?", AffixMethod<true>}},
    {{"expandtabs", "tabsize?", ExpandTabs}},
    {{"find", "/sub /start? /end?", FindMethod<false, false>}},
    {{"format", "* **", FormatMethod}},
    {{"format_map", "/mapping", FormatMapMethod}},
    {{"index", "/sub /start? /end?", FindMethod<false, true>}},
    {{"isalnum", "", AllAre<IsAlnum>}},
    {{"isalpha", "", AllAre<IsAlpha>}},
    {{"isascii", "", AllAre<IsAsciiCode, true>}},
    {{"isdecimal", "", AllAre<IsDecimal>}},
    {{"isdigit", "", AllAre<IsDigit>}},
    {{"isidentifier", "", IsIdentifierMethod}},
    {{"islower", "", IsCaseMethod<false>}},
    {{"isnumeric", "", AllAre<IsNumeric>}},
    {{"isprintable", "", AllAre<IsPrintable, true>}},
    {{"isspace", "", AllAre<IsSpace>}},
    {{"istitle", "", IsTitleMethod}},
    {{"isupper", "", IsCaseMethod<true>}},
    {{"join", "/iterable", JoinMethod}},
    {{"ljust", "/width /fillchar?", JustifyMethod<-1>}},
    {{"lower", "", CaseMethod<Case::kLower>}},
    {{"lstrip", "/chars?", StripMethod<true, false>}},
    {{"partition", "/sep", Partition<false>}},
    {{"removeprefix", "/prefix", RemoveAffix<false>}},
    {{"removesuffix", "/suffix", RemoveAffix<true>}},
    {{"replace", "/old /new /count?", ReplaceMethod}},
    {{"rfind", "/sub /start? /end?", FindMethod<true, false>}},
    {{"rindex", "/sub /start? /end?", FindMethod<true, true>}},
    {{"rjust", "/width /fillchar?", JustifyMethod<1>}},
    {{"rpartition", "/sep", Partition<true>}},
    {{"rsplit", "sep? maxsplit?", Split<true>}},
    {{"rstrip", "/chars?", StripMethod<false, true>}},
    {{"split", "sep? maxsplit?", Split<false>}},
    {{"splitlines", "keepends?", SplitLinesMethod}},
    {{"startswith", "/prefix /start? /end?", AffixMethod<false>}},
    {{"strip", "/chars?", StripMethod<true, true>}},
    {{"swapcase", "", CaseMethod<Case::kSwap>}},
    {{"title", "", CaseMethod<Case::kTitle>}},
    {{"translate", "/table", Translate}},
    {{"upper", "", CaseMethod<Case::kUpper>}},
    {{"zfill", "/width", ZFill}},
};

}  // namespace

const MethodEntry* FindStringMethod(std::string_view name) { return FindSorted(kMethods, name); }

Result<Value> ToUpper(Runtime& rt, const Value& text) { return ChangeCase(rt, text, Case::kUpper); }
Result<Value> ToLower(Runtime& rt, const Value& text) { return ChangeCase(rt, text, Case::kLower); }
Result<Value> Capitalize(Runtime& rt, const Value& text) { return ChangeCase(rt, text, Case::kCapitalize); }

bool IsAllOneCase(std::string_view text, bool upper) {
  bool any = false;
  for (uint64_t i = 0; i < text.size();) {
    const char32_t c = DecodeUtf8(text, &i);
    if (IsTitle(c) || (upper ? IsLower(c) : IsUpper(c))) return false;
    any |= upper ? IsUpper(c) : IsLower(c);
  }
  return any;
}

Result<Value> StripValue(Runtime& rt, const Value& text, const Value& chars, bool left, bool right) {
  if (chars.is_missing() || chars.is_none()) {
    CMF_CHECK(PayFor(rt, *text.string));
    return rt.View(Strip(rt, *text.string, nullptr, left, right), text.special);
  }
  CMF_TRY(const Str* const set, AsString(chars, "strip arg"));
  if (!rt.Spend(static_cast<int64_t>((text.string->size / 16 + 1) * (set->size / 16 + 1))))
    return rt.LimitFault();
  const std::string_view view = set->view();
  return rt.View(Strip(rt, *text.string, &view, left, right), text.special);
}

Line NextLine(std::string_view text, uint64_t begin) {
  for (uint64_t i = begin; i < text.size();) {
    const uint64_t end = i;
    const char32_t c = DecodeUtf8(text, &i);
    if (!IsLineBreak(c)) continue;
    if (c == '\r' && i < text.size() && text[i] == '\n') ++i;
    return {begin, end, i};
  }
  return {begin, text.size(), text.size()};
}

Result<Value> Replace(Runtime& rt, const Str& text, const Str& from, const Str& to, int64_t most,
                      bool is_markup) {
  CMF_CHECK(PayFor(rt, text));
  TextBuilder out(rt);
  const std::string_view all = text.view();
  uint64_t left = most < 0 ? UINT64_MAX : static_cast<uint64_t>(most);
  uint64_t plain = 0;
  if (from.size == 0) {
    // Between all code points, and at both ends.
    for (uint64_t i = 0; left > 0; --left) {
      if (!rt.Spend()) return rt.LimitFault();
      out.Append(to);
      if (i >= all.size() || out.overflowed()) break;
      const uint64_t at = i;
      DecodeUtf8(all, &i);
      out.Append(text, at, i);
      plain = i;
    }
  } else {
    for (; left > 0; --left) {
      const uint64_t at = Find(all, from.view(), plain);
      if (at == std::string_view::npos || out.overflowed()) break;
      if (!rt.Spend()) return rt.LimitFault();
      out.Append(text, plain, at);
      out.Append(to);
      plain = at + from.size;
    }
  }
  out.Append(text, plain, all.size());
  return out.Finish(is_markup);
}

Result<Value> Pad(Runtime& rt, const Str& text, int64_t width, std::string_view fill, int side,
                  bool is_markup) {
  CMF_CHECK(PayFor(rt, text));
  const auto size = static_cast<int64_t>(CountCodePoints(text.view()));
  if (width <= size) return rt.View(text, is_markup);
  const int64_t missing = width - size;
  CMF_CHECK(rt.Reserve(static_cast<uint64_t>(missing)));
  // Centred, an odd blank goes left when the width is odd.
  const int64_t left = side < 0 ? 0 : side > 0 ? missing : missing / 2 + (missing & width & 1);
  TextBuilder out(rt);
  out.AppendRepeated(fill, static_cast<uint64_t>(left));
  out.Append(text);
  out.AppendRepeated(fill, static_cast<uint64_t>(missing - left));
  return out.Finish(is_markup);
}

}  // namespace cmforge::jinja
