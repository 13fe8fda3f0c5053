// Sets of code points in PCRE2's words. PCRE2 tries the ranges of a class one after the other but finds the
// category of a character in a table, so categories are named and only the rest is spelled out.
#include "text/tokenizer/pattern_class.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <cstring>

#include "base/result.h"

namespace cmforge {

namespace {

using unicode::Category;
using unicode::CodePointRange;

constexpr std::string_view kNames[] = {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl",
                                       "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc",
                                       "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cn", "Cs"};

// Names of all letters, marks, ... together.
struct Major {
  char name;
  uint32_t bits;
};
constexpr Major kMajors[] = {{'L', unicode::kLetterBits},
                             {'M', unicode::kMarkBits},
                             {'N', unicode::kNumberBits},
                             {'P', unicode::kPunctuationBits},
                             {'S', unicode::kSymbolBits}};

// In Unicode 14, the only code point of another category than in 16 (besides those that were not assigned).
constexpr uint32_t kMovedFromMnToMc = 0x1171E;

bool LibraryHasUnicode14() {
  char version[32] = "";
  if (pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, nullptr) > static_cast<int>(sizeof version)) return false;
  pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, version);
  return std::strncmp(version, "14.", 3) == 0;
}

void WriteRange(const CodePointRange& range, std::string& out) {
  out += WriteCodePoint(range.first);
  if (range.last == range.first) return;
  if (range.last > range.first + 1) out += '-';
  out += WriteCodePoint(range.last);
}

// The inside of a class for a set without unassigned code points (as a rule).
std::string WriteMembers(const CodePointSet& set) {
  std::string out;
  // ASCII first: PCRE2 has a bit map for it.
  const CodePointSet ascii = CodePointSet::Of({{0, 0x7F}});
  const CodePointSet members_in_ascii = set.Intersect(ascii);
  for (const CodePointRange& range : members_in_ascii.ranges()) WriteRange(range, out);

  uint32_t whole = 0;
  CodePointSet named;
  if (LibraryHasUnicode14()) {
    const CodePointSet older = CodePointSet(unicode::kNewerThanUnicode14).Complement();
    for (int category = 0; category < static_cast<int>(Category::kCn); ++category) {
      if (!set.Contains(CodePointSet::OfCategories(uint32_t{1} << category).Intersect(older))) continue;
      if (category == static_cast<int>(Category::kMn) && !set.Contains(kMovedFromMnToMc)) continue;
      whole |= uint32_t{1} << category;
    }
    named = CodePointSet::OfCategories(whole).Intersect(older).Minus(
        CodePointSet::Of({{kMovedFromMnToMc, kMovedFromMnToMc}}));
    for (const Major& major : kMajors) {
      if ((whole & major.bits) != major.bits) continue;
      out += fmt::format("\\p{{{}}}", major.name);
      whole &= ~major.bits;
    }
    for (int category = 0; category < static_cast<int>(Category::kCn); ++category) {
      if (whole >> category & 1) out += fmt::format("\\p{{{}}}", kNames[category]);
    }
  }
  const CodePointSet rest = set.Minus(named).Minus(ascii);
  for (const CodePointRange& range : rest.ranges()) WriteRange(range, out);
  return out;
}

}  // namespace

std::string WriteCodePoint(uint32_t c) {
  const bool is_word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  return is_word ? std::string(1, static_cast<char>(c)) : fmt::format("\\x{{{:x}}}", c);
}

std::string WriteClass(const CodePointSet& set) {
  if (set.empty()) return "(?!)";
  constexpr uint32_t kNeverAssigned = 0x2FE0;  // a stand-in for all unassigned code points
  if (!set.Contains(kNeverAssigned)) return fmt::format("[{}]", WriteMembers(set));
  const CodePointSet complement = set.Complement();
  if (complement.empty()) return "(?s:.)";
  return fmt::format("[^{}]", WriteMembers(complement));
}

}  // namespace cmforge
