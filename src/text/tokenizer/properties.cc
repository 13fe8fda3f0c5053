// Named sets of code points.
#include "text/tokenizer/properties.h"

#include <utf8proc.h>

#include <array>
#include <unordered_map>
#include <vector>

namespace cmforge {

using unicode::Bits;
using unicode::Category;
using unicode::CodePointRange;

namespace {

CodePointSet Union(std::initializer_list<CodePointSet> sets) {
  std::vector<CodePointRange> ranges;
  for (const CodePointSet& set : sets) ranges.insert(ranges.end(), set.ranges().begin(), set.ranges().end());
  return CodePointSet::Of(std::move(ranges));
}

struct NamedCategories {
  std::string_view short_name, long_name;
  uint32_t bits;
};

constexpr uint32_t kCasedLetters = Bits(Category::kLu, Category::kLl, Category::kLt);
constexpr uint32_t kSeparators = Bits(Category::kZs, Category::kZl, Category::kZp);
constexpr uint32_t kOthers = Bits(Category::kCc, Category::kCf, Category::kCo, Category::kCn);

constexpr auto kCategories = std::to_array<NamedCategories>({
    {"L", "Letter", unicode::kLetterBits},
    {"LC", "Cased_Letter", kCasedLetters},
    {"Lu", "Uppercase_Letter", Bits(Category::kLu)},
    {"Ll", "Lowercase_Letter", Bits(Category::kLl)},
    {"Lt", "Titlecase_Letter", Bits(Category::kLt)},
    {"Lm", "Modifier_Letter", Bits(Category::kLm)},
    {"Lo", "Other_Letter", Bits(Category::kLo)},
    {"M", "Mark", unicode::kMarkBits},
    {"Mn", "Nonspacing_Mark", Bits(Category::kMn)},
    {"Mc", "Spacing_Mark", Bits(Category::kMc)},
    {"Me", "Enclosing_Mark", Bits(Category::kMe)},
    {"N", "Number", unicode::kNumberBits},
    {"Nd", "Decimal_Number", Bits(Category::kNd)},
    {"Nl", "Letter_Number", Bits(Category::kNl)},
    {"No", "Other_Number", Bits(Category::kNo)},
    {"P", "Punctuation", unicode::kPunctuationBits},
    {"Pc", "Connector_Punctuation", Bits(Category::kPc)},
    {"Pd", "Dash_Punctuation", Bits(Category::kPd)},
    {"Ps", "Open_Punctuation", Bits(Category::kPs)},
    {"Pe", "Close_Punctuation", Bits(Category::kPe)},
    {"Pi", "Initial_Punctuation", Bits(Category::kPi)},
    {"Pf", "Final_Punctuation", Bits(Category::kPf)},
    {"Po", "Other_Punctuation", Bits(Category::kPo)},
    {"S", "Symbol", unicode::kSymbolBits},
    {"Sm", "Math_Symbol", Bits(Category::kSm)},
    {"Sc", "Currency_Symbol", Bits(Category::kSc)},
    {"Sk", "Modifier_Symbol", Bits(Category::kSk)},
    {"So", "Other_Symbol", Bits(Category::kSo)},
    {"Z", "Separator", kSeparators},
    {"Zs", "Space_Separator", Bits(Category::kZs)},
    {"Zl", "Line_Separator", Bits(Category::kZl)},
    {"Zp", "Paragraph_Separator", Bits(Category::kZp)},
    {"C", "Other", kOthers},
    {"Cc", "Control", Bits(Category::kCc)},
    {"Cf", "Format", Bits(Category::kCf)},
    {"Co", "Private_Use", Bits(Category::kCo)},
    {"Cn", "Unassigned", Bits(Category::kCn)},
});

// Short names of the scripts that patterns of tokenizers use.
constexpr auto kScriptAliases = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"Arab", "Arabic"},     {"Armn", "Armenian"}, {"Beng", "Bengali"},  {"Cyrl", "Cyrillic"},
    {"Deva", "Devanagari"}, {"Geor", "Georgian"}, {"Grek", "Greek"},    {"Hang", "Hangul"},
    {"Hani", "Han"},        {"Hebr", "Hebrew"},   {"Hira", "Hiragana"}, {"Kana", "Katakana"},
    {"Khmr", "Khmer"},      {"Laoo", "Lao"},      {"Latn", "Latin"},    {"Mong", "Mongolian"},
    {"Mymr", "Myanmar"},    {"Taml", "Tamil"},    {"Telu", "Telugu"},   {"Tibt", "Tibetan"},
    {"Zinh", "Inherited"},  {"Zyyy", "Common"},   {"Zzzz", "Unknown"},  {"Qaai", "Inherited"},
});

CodePointSet Everything() { return CodePointSet().Complement(); }
CodePointSet Ascii() { return CodePointSet::Of({{0, 0x7F}}); }
CodePointSet Letters() {
  return Union({CodePointSet::OfCategories(unicode::kLetterBits | Bits(Category::kNl)),
                CodePointSet(unicode::kOtherAlphabetic)});
}
CodePointSet Lower() {
  return Union({CodePointSet::OfCategories(Bits(Category::kLl)), CodePointSet(unicode::kOtherLowercase)});
}
CodePointSet Upper() {
  return Union({CodePointSet::OfCategories(Bits(Category::kLu)), CodePointSet(unicode::kOtherUppercase)});
}
CodePointSet LettersAndDigits() { return Union({Letters(), DigitSet()}); }
// What has ink, and unassigned or white code points excluded.
CodePointSet Graph() {
  return CodePointSet::OfCategories(unicode::kLetterBits | unicode::kMarkBits | unicode::kNumberBits |
                                    unicode::kPunctuationBits | unicode::kSymbolBits |
                                    Bits(Category::kCf, Category::kCo));
}
CodePointSet Print() { return Union({Graph(), CodePointSet::OfCategories(Bits(Category::kZs))}); }
CodePointSet Blank() {
  return Union({CodePointSet::OfCategories(Bits(Category::kZs)), CodePointSet::Of({{9, 9}})});
}
CodePointSet PlainWord() {
  const CodePointSet circled =
      CodePointSet(unicode::kOtherAlphabetic).Intersect(CodePointSet::OfCategories(Bits(Category::kSo)));
  return Union({CodePointSet::OfCategories(unicode::kLetterBits | unicode::kMarkBits |
                                           Bits(Category::kNd, Category::kNl, Category::kPc)),
                circled});
}

struct NamedSet {
  std::string_view name;
  CodePointSet (*make)();
};

constexpr auto kProperties = std::to_array<NamedSet>({
    {"Any", Everything},
    {"Assigned", [] { return CodePointSet::OfCategories(Bits(Category::kCn)).Complement(); }},
    {"ASCII", Ascii},
    {"Alnum", LettersAndDigits},
    {"Alpha", Letters},
    {"Alphabetic", Letters},
    {"Blank", Blank},
    {"Cntrl", [] { return CodePointSet::OfCategories(Bits(Category::kCc)); }},
    {"Digit", DigitSet},
    {"Graph", Graph},
    {"Lower", Lower},
    {"Lowercase", Lower},
    {"Upper", Upper},
    {"Uppercase", Upper},
    {"Print", Print},
    {"Punct", [] { return CodePointSet::OfCategories(unicode::kPunctuationBits); }},
    {"PosixPunct",
     [] { return CodePointSet::OfCategories(unicode::kPunctuationBits | unicode::kSymbolBits); }},
    {"Space", SpaceSet},
    {"White_Space", SpaceSet},
    {"Word", WordSet},
    {"XDigit", HexDigitSet},
    {"Emoji", [] { return CodePointSet(unicode::kEmoji); }},
    {"Emoji_Presentation", [] { return CodePointSet(unicode::kEmojiPresentation); }},
    {"Extended_Pictographic", [] { return CodePointSet(unicode::kExtendedPictographic); }},
    {"Ideographic", [] { return CodePointSet(unicode::kIdeographic); }},
});

constexpr auto kPosix = std::to_array<NamedSet>({
    {"alnum", LettersAndDigits},
    {"alpha", Letters},
    {"ascii", Ascii},
    {"blank", Blank},
    {"cntrl", [] { return CodePointSet::OfCategories(Bits(Category::kCc)); }},
    {"digit", DigitSet},
    {"graph", Graph},
    {"lower", Lower},
    {"print", Print},
    {"punct", [] { return CodePointSet::OfCategories(unicode::kPunctuationBits | unicode::kSymbolBits); }},
    {"space", SpaceSet},
    {"upper", Upper},
    {"word", PlainWord},
    {"xdigit", HexDigitSet},
});

// The last code point that has case is U+1E943; nothing beyond needs a look.
constexpr uint32_t kEndOfCase = 0x1F000;

uint32_t Fold(uint32_t c) {
  // Capital sharp s and dotted capital i fold to several characters; to one each they fold to these.
  if (c == 0x1E9E) return 0xDF;
  if (c == 0x130) return c;
  const auto upper = utf8proc_toupper(static_cast<utf8proc_int32_t>(c));
  return static_cast<uint32_t>(utf8proc_tolower(upper));
}

}  // namespace

CodePointSet WordSet() {
  return Union({PlainWord(), CodePointSet::Of({{0xB2, 0xB3}, {0xB9, 0xB9}, {0xBC, 0xBE}})});
}

CodePointSet SpaceSet() {
  return CodePointSet::Of({{9, 13},
                           {0x20, 0x20},
                           {0x85, 0x85},
                           {0xA0, 0xA0},
                           {0x1680, 0x1680},
                           {0x2000, 0x200A},
                           {0x2028, 0x2029},
                           {0x202F, 0x202F},
                           {0x205F, 0x205F},
                           {0x3000, 0x3000}});
}

CodePointSet DigitSet() { return CodePointSet::OfCategories(Bits(Category::kNd)); }

CodePointSet HexDigitSet() { return CodePointSet::Of({{'0', '9'}, {'A', 'F'}, {'a', 'f'}}); }

std::optional<CodePointSet> PropertySet(std::string_view name) {
  for (const NamedCategories& category : kCategories) {
    if (SamePropertyName(name, category.short_name) || SamePropertyName(name, category.long_name)) {
      return CodePointSet::OfCategories(category.bits);
    }
  }
  for (const NamedSet& property : kProperties) {
    if (SamePropertyName(name, property.name)) return property.make();
  }
  for (const auto& [alias, script] : kScriptAliases) {
    if (SamePropertyName(name, alias)) return CodePointSet::OfScript(script);
  }
  return CodePointSet::OfScript(name);
}

std::optional<CodePointSet> PosixSet(std::string_view name) {
  for (const NamedSet& posix : kPosix) {
    if (posix.name == name) return posix.make();
  }
  return std::nullopt;
}

CodePointSet CaseClosure(const CodePointSet& set) {
  std::vector<bool> wanted(kEndOfCase, false);
  for (const CodePointRange& range : set.ranges()) {
    for (uint32_t c = range.first; c <= range.last && c < kEndOfCase; ++c) {
      const uint32_t folded = Fold(c);
      if (folded < kEndOfCase) wanted[folded] = true;
    }
  }
  std::vector<CodePointRange> ranges(set.ranges().begin(), set.ranges().end());
  for (uint32_t c = 0; c < kEndOfCase; ++c) {
    const uint32_t folded = Fold(c);
    if (folded < kEndOfCase && wanted[folded]) ranges.push_back({c, c});
  }
  return CodePointSet::Of(std::move(ranges));
}

}  // namespace cmforge
