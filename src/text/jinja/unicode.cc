// Python's view of Unicode on top of utf8proc and a few tables.
#include "text/jinja/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <span>

#include "text/jinja/unicode_tables.h"

namespace cmforge::jinja {
namespace {

utf8proc_category_t Category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

bool Contains(const CodeRange* ranges, size_t count, char32_t c) {
  const CodeRange* end = ranges + count;
  const CodeRange* at =
      std::lower_bound(ranges, end, c, [](const CodeRange& r, char32_t x) { return r.last < x; });
  return at != end && at->first <= c;
}

bool AppendSpecial(std::string* out, const SpecialCase* cases, size_t count, char32_t c) {
  const SpecialCase* end = cases + count;
  const SpecialCase* at =
      std::lower_bound(cases, end, c, [](const SpecialCase& s, char32_t x) { return s.from < x; });
  if (at == end || at->from != c) return false;
  for (const char32_t to : at->to) {
    if (to != 0) AppendUtf8(out, to);
  }
  return true;
}

bool IsCaseIgnorable(char32_t c) {
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      break;
  }
  static constexpr char32_t kMidLetters[] = {0x27,   0x2E,   0x3A,   0xB7,   0x387,  0x55F,
                                             0x5F4,  0x2018, 0x2019, 0x2024, 0x2027, 0xFE13,
                                             0xFE52, 0xFE55, 0xFF07, 0xFF0E, 0xFF1A};
  return std::binary_search(std::begin(kMidLetters), std::end(kMidLetters), c);
}

// Sigma ends a word when a cased letter stands before it and none after it, ignoring marks between.
bool IsFinalSigma(std::string_view text, uint64_t at) {
  bool cased_before = false;
  for (uint64_t i = at; i > 0;) {
    i = PreviousCodePoint(text, i);
    uint64_t j = i;
    const char32_t c = DecodeUtf8(text, &j);
    if (IsCaseIgnorable(c)) continue;
    cased_before = IsCased(c);
    break;
  }
  if (!cased_before) return false;
  uint64_t i = at;
  DecodeUtf8(text, &i);
  while (i < text.size()) {
    const char32_t c = DecodeUtf8(text, &i);
    if (IsCaseIgnorable(c)) continue;
    return !IsCased(c);
  }
  return true;
}

}  // namespace

char32_t DecodeUtf8(std::string_view text, uint64_t* at) {
  const auto byte = [&](uint64_t i) { return static_cast<unsigned char>(text[i]); };
  const uint64_t i = *at;
  const uint64_t left = text.size() - i;
  const char32_t b0 = byte(i);
  const auto continues = [&](uint64_t k) { return (byte(i + k) & 0xC0u) == 0x80; };
  if (b0 < 0x80) {
    *at = i + 1;
    return b0;
  }
  if (b0 >= 0xC2 && b0 <= 0xDF && left >= 2 && continues(1)) {
    *at = i + 2;
    return ((b0 & 0x1Fu) << 6) | (byte(i + 1) & 0x3Fu);
  }
  if (b0 >= 0xE0 && b0 <= 0xEF && left >= 3 && continues(1) && continues(2)) {
    const char32_t c = ((b0 & 0x0Fu) << 12) | ((byte(i + 1) & 0x3Fu) << 6) | (byte(i + 2) & 0x3Fu);
    if (c >= 0x800) {
      *at = i + 3;
      return c;
    }
  }
  if (b0 >= 0xF0 && b0 <= 0xF4 && left >= 4 && continues(1) && continues(2) && continues(3)) {
    const char32_t c = ((b0 & 0x07u) << 18) | ((byte(i + 1) & 0x3Fu) << 12) | ((byte(i + 2) & 0x3Fu) << 6) |
                       (byte(i + 3) & 0x3Fu);
    if (c >= 0x10000 && c <= 0x10FFFF) {
      *at = i + 4;
      return c;
    }
  }
  *at = i + 1;
  return 0xDC00 + b0;
}

void AppendUtf8(std::string* out, char32_t c) {
  const auto put = [out](char32_t b) { out->push_back(static_cast<char>(b)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | (c >> 6));
    put(0x80 | (c & 0x3F));
  } else if (c >= 0xDC80 && c <= 0xDCFF) {
    put(c - 0xDC00);
  } else if (c < 0x10000) {
    put(0xE0 | (c >> 12));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | (c >> 18));
    put(0x80 | ((c >> 12) & 0x3F));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

uint64_t CodePointSize(std::string_view text, uint64_t at) {
  uint64_t end = at;
  DecodeUtf8(text, &end);
  return end - at;
}

uint64_t CountCodePoints(std::string_view text) {
  uint64_t count = 0;
  for (uint64_t i = 0; i < text.size(); ++count) {
    if (static_cast<unsigned char>(text[i]) < 0x80) {
      ++i;
    } else {
      DecodeUtf8(text, &i);
    }
  }
  return count;
}

uint64_t SkipCodePoints(std::string_view text, uint64_t count) {
  uint64_t i = 0;
  for (; count > 0 && i < text.size(); --count) DecodeUtf8(text, &i);
  return i;
}

uint64_t PreviousCodePoint(std::string_view text, uint64_t end) {
  for (uint64_t size = 2; size <= 4 && size <= end; ++size) {
    if (CodePointSize(text.substr(0, end), end - size) == size) return end - size;
  }
  return end - 1;
}

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

bool IsSpace(char32_t c) {
  if (c < 0x80) return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsLineBreak(char32_t c) {
  return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool IsPrintable(char32_t c) {
  if (c < 0x80) return c >= 0x20 && c != 0x7F;
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool IsAlpha(char32_t c) {
  const utf8proc_category_t k = Category(c);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}
bool IsDecimal(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_ND; }
bool IsDigit(char32_t c) { return IsDecimal(c) || Contains(kOtherDigit, kOtherDigitCount, c); }
bool IsNumeric(char32_t c) {
  const utf8proc_category_t k = Category(c);
  return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO ||
         Contains(kOtherNumeric, kOtherNumericCount, c);
}
bool IsAlnum(char32_t c) { return IsAlpha(c) || IsNumeric(c); }
bool IsLower(char32_t c) {
  return Category(c) == UTF8PROC_CATEGORY_LL || Contains(kOtherLowercase, kOtherLowercaseCount, c);
}
bool IsUpper(char32_t c) {
  return Category(c) == UTF8PROC_CATEGORY_LU || Contains(kOtherUppercase, kOtherUppercaseCount, c);
}
bool IsTitle(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_LT; }
bool IsCased(char32_t c) { return IsLower(c) || IsUpper(c) || IsTitle(c); }

bool IsIdentifierStart(char32_t c) {
  if (c == '_') return true;
  const utf8proc_category_t k = Category(c);
  return (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO) || k == UTF8PROC_CATEGORY_NL ||
         c == 0x2118 || c == 0x212E;
}

bool IsIdentifierPart(char32_t c) {
  if (IsIdentifierStart(c)) return true;
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return c == 0xB7 || c == 0x387 || (c >= 0x1369 && c <= 0x1371) || c == 0x19DA;
  }
}

bool IsIdentifier(std::string_view text) {
  if (text.empty()) return false;
  uint64_t i = 0;
  if (!IsIdentifierStart(DecodeUtf8(text, &i))) return false;
  while (i < text.size()) {
    if (!IsIdentifierPart(DecodeUtf8(text, &i))) return false;
  }
  return true;
}

int DecimalValue(char32_t c) {
  if (c >= '0' && c <= '9') return static_cast<int>(c - '0');
  if (!IsDecimal(c)) return -1;
  // Digits of a script are ten in a row that starts where the category does, or at a multiple of ten behind
  // it (mathematical digits come in five such rows).
  char32_t first = c;
  while (IsDecimal(first - 1)) --first;
  return static_cast<int>((c - first) % 10);
}

void AppendUpper(std::string* out, char32_t c) {
  if (c < 0x80) {
    out->push_back(static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c));
  } else if (!AppendSpecial(out, kSpecialUpper, kSpecialUpperCount, c)) {
    AppendUtf8(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
  }
}

void AppendTitle(std::string* out, char32_t c) {
  if (c < 0x80) {
    AppendUpper(out, c);
  } else if (!AppendSpecial(out, kSpecialTitle, kSpecialTitleCount, c)) {
    AppendUtf8(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
  }
}

void AppendFolded(std::string* out, char32_t c) {
  if (c < 0x80) {
    out->push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c));
    return;
  }
  utf8proc_int32_t folded[8];
  int last = 0;
  const utf8proc_ssize_t n =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), folded, 8, UTF8PROC_CASEFOLD, &last);
  if (n < 1 || n > 8) {
    AppendUtf8(out, c);
    return;
  }
  for (utf8proc_ssize_t i = 0; i < n; ++i) AppendUtf8(out, static_cast<char32_t>(folded[i]));
}

void AppendLower(std::string* out, char32_t c, std::string_view text, uint64_t at) {
  if (c < 0x80) {
    out->push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c));
  } else if (c == 0x130) {
    AppendUtf8(out, 'i');
    AppendUtf8(out, 0x307);
  } else if (c == 0x3A3) {
    AppendUtf8(out, IsFinalSigma(text, at) ? 0x3C2 : 0x3C3);
  } else {
    AppendUtf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
}

}  // namespace cmforge::jinja
