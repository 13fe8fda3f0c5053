// Scanners for well-known split patterns. Each tries the alternatives of its pattern in order, with what
// backtracking would find worked out by hand in the comments.
#include "text/tokenizer/known_patterns.h"

#include <array>

#include "text/tokenizer/utf8.h"

namespace cmforge {

namespace {

using unicode::Bits;
using unicode::Category;
using unicode::CategoryTable;

// Classes of characters as bits: the categories, and white space and line ends above them.
constexpr uint32_t kSpace = uint32_t{1} << 30;
constexpr uint32_t kLineEnd = uint32_t{1} << 31;  // \r \n
constexpr uint32_t kLetter = unicode::kLetterBits;
constexpr uint32_t kMark = unicode::kMarkBits;
constexpr uint32_t kNumber = unicode::kNumberBits;
static_assert(unicode::kCategoryCount <= 30);

constexpr std::array<uint32_t, 128> kAscii = [] {
  std::array<uint32_t, 128> table{};
  for (uint32_t c = 0; c < 128; ++c) {
    uint32_t bits = Bits(Category::kPo);  // any punctuation will do: no pattern here tells them apart
    if ((c >= 'a' && c <= 'z')) bits = Bits(Category::kLl);
    if ((c >= 'A' && c <= 'Z')) bits = Bits(Category::kLu);
    if ((c >= '0' && c <= '9')) bits = Bits(Category::kNd);
    if (c < 32 || c == 127) bits = Bits(Category::kCc);
    if (c == ' ' || (c >= 9 && c <= 13)) bits = kSpace;
    if (c == '\r' || c == '\n') bits |= kLineEnd;
    table[c] = bits;
  }
  return table;
}();

class Text {
 public:
  Text(std::string_view text, const CategoryTable& categories)
      : begin_(text.data()), size_(text.size()), categories_(categories) {}

  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] char operator[](size_t at) const { return begin_[at]; }

  /// The class of the character at `at`; 0 at the end.
  [[nodiscard]] uint32_t At(size_t at) const {
    if (at >= size_) return 0;
    const auto byte = static_cast<uint8_t>(begin_[at]);
    if (byte < 0x80) return kAscii[byte];
    const uint32_t c = utf8::Decode(begin_ + at);
    return unicode::IsWhiteSpace(c) ? kSpace : unicode::Bit(categories_.Of(c));
  }
  [[nodiscard]] size_t After(size_t at) const { return at + static_cast<size_t>(utf8::LengthOf(begin_[at])); }
  [[nodiscard]] size_t Before(size_t at) const {
    return static_cast<size_t>(utf8::Previous(begin_ + at) - begin_);
  }
  /// The end of the run of characters with a bit of `bits` from `at` on.
  [[nodiscard]] size_t RunOf(uint32_t bits, size_t at) const {
    while (at < size_ && (At(at) & bits) != 0) at = After(at);
    return at;
  }
  [[nodiscard]] size_t RunOfNone(uint32_t bits, size_t at) const {
    while (at < size_ && (At(at) & bits) == 0) at = After(at);
    return at;
  }

 private:
  const char* begin_;
  size_t size_;
  const CategoryTable& categories_;
};

// 's 't 're 've 'm 'll 'd: the end, or `at` when there is none. Long s folds to s.
size_t Contraction(const Text& text, size_t at, bool ignore_case) {
  if (at + 1 >= text.size() || text[at] != '\'') return at;
  const auto letter = [&](size_t i) -> char {
    if (i >= text.size()) return '\0';
    const char c = text[i];
    return ignore_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  };
  switch (letter(at + 1)) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return at + 2;
    case 'r':
    case 'v':
      return letter(at + 2) == 'e' ? at + 3 : at;
    case 'l':
      return letter(at + 2) == 'l' ? at + 3 : at;
    case '\xC5':
      return ignore_case && at + 2 < text.size() && text[at + 2] == '\xBF' ? at + 3 : at;
    default:
      return at;
  }
}

// \s*[\r\n]+|\s+(?!\S)|\s+ (the first alternative unless `line_ends` is false), where a blank stands at `at`.
// The first ends after the last line end of the run; the second gives back the last blank, for the word that
// follows, unless the run is all there is; the third is left with a single blank.
size_t Blanks(const Text& text, size_t at, bool line_ends) {
  size_t end = at;
  size_t after_line_end = 0;
  while (end < text.size()) {
    const uint32_t bits = text.At(end);
    if ((bits & kSpace) == 0) break;
    end = text.After(end);
    if (bits & kLineEnd) after_line_end = end;
  }
  if (line_ends && after_line_end != 0) return after_line_end;
  if (end == text.size()) return end;
  const size_t shorter = text.Before(end);
  return shorter > at ? shorter : end;
}

// \p{N}{1,most}
size_t Digits(const Text& text, size_t at, int most) {
  for (int i = 0; i < most && (text.At(at) & kNumber) != 0; ++i) at = text.After(at);
  return at;
}

// " ?[^\s\p{L}\p{N}]+[\r\n]*" with `inside` for the categories excluded; `slash` adds '/' to the end. `at`
// itself when it does not match.
size_t Symbols(const Text& text, size_t at, uint32_t inside, bool line_ends, bool slash) {
  const size_t begin = text[at] == ' ' ? at + 1 : at;
  size_t end = text.RunOfNone(kSpace | inside, begin);
  if (end == begin) return at;
  while (line_ends && end < text.size() &&
         (text[end] == '\r' || text[end] == '\n' || (slash && text[end] == '/'))) {
    ++end;
  }
  return end;
}

size_t ScanGpt2(std::string_view view, size_t at, const CategoryTable& categories) {
  const Text text(view, categories);
  if (const size_t end = Contraction(text, at, false); end != at) return end;
  const size_t word = text[at] == ' ' ? at + 1 : at;
  const uint32_t bits = text.At(word);
  if (bits & kLetter) return text.RunOf(kLetter, word);
  if (bits & kNumber) return text.RunOf(kNumber, word);
  if (const size_t end = Symbols(text, at, kLetter | kNumber, false, false); end != at) return end;
  return Blanks(text, at, false);
}

// The family of cl100k: contraction | [^\r\n\p{L}\p{N}]?letters+ | digits | symbols | blanks.
template <uint32_t kWord, int kMostDigits>
size_t ScanCl100k(std::string_view view, size_t at, const CategoryTable& categories) {
  const Text text(view, categories);
  if (const size_t end = Contraction(text, at, true); end != at) return end;
  const uint32_t bits = text.At(at);
  // A mark may be the leading non-letter or part of the run itself: the same end either way.
  if (bits & kWord) return text.RunOf(kWord, text.After(at));
  if (bits & kNumber) return Digits(text, at, kMostDigits);
  if ((bits & kLineEnd) == 0) {
    const size_t next = text.After(at);
    if (text.At(next) & kWord) return text.RunOf(kWord, text.After(next));
  }
  if (const size_t end = Symbols(text, at, kWord | kNumber, true, false); end != at) return end;
  return Blanks(text, at, true);
}

// o200k's words tell upper case from lower. From `begin`: upper* lower+ is the first choice. The run of upper
// is taken whole; when no lower follows it, it is given back up to the last character that counts as both.
// Otherwise upper+ lower*. `begin` itself when neither matches.
constexpr uint32_t kUpper = Bits(Category::kLu, Category::kLt, Category::kLm, Category::kLo) | kMark;
constexpr uint32_t kLower = Bits(Category::kLl, Category::kLm, Category::kLo) | kMark;

size_t FirstWordChoice(const Text& text, size_t begin) {
  size_t after_both = begin;
  size_t end = begin;
  while (end < text.size()) {
    const uint32_t bits = text.At(end);
    if ((bits & kUpper) == 0) break;
    end = text.After(end);
    if (bits & kLower) after_both = end;
  }
  const size_t lower = text.RunOf(kLower, end);
  return lower > end ? lower : after_both;
}

size_t SecondWordChoice(const Text& text, size_t begin) { return text.RunOf(kUpper, begin); }

template <int kMostDigits, bool kContractions>
size_t ScanO200k(std::string_view view, size_t at, const CategoryTable& categories) {
  const Text text(view, categories);
  const uint32_t bits = text.At(at);
  const bool may_lead = (bits & (kLetter | kNumber | kLineEnd)) == 0;
  const size_t next = text.After(at);
  for (const auto choice : {FirstWordChoice, SecondWordChoice}) {
    for (const size_t begin : {may_lead ? next : at, at}) {
      const size_t end = choice(text, begin);
      if (end != begin) return kContractions ? Contraction(text, end, true) : end;
    }
  }
  if (bits & kNumber) return Digits(text, at, kMostDigits);
  if (const size_t end = Symbols(text, at, kLetter | kNumber, true, true); end != at) return end;
  return Blanks(text, at, true);
}

struct Known {
  std::string_view pattern;
  ScanFn scan;
};

// Spelled as the files of the models spell them.
constexpr auto kKnown = std::to_array<Known>({
    {kGpt2Pattern, ScanGpt2},
    // Qwen 2 and 3
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
     "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     ScanCl100k<kLetter, 1>},
    // Llama 3
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
     "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     ScanCl100k<kLetter, 3>},
    // Qwen 3.5
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| "
     "?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|"
     "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     ScanCl100k<kLetter | kMark, 1>},
    // cl100k
    {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|"
     "\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
     ScanCl100k<kLetter, 3>},
    // o200k: GPT-4o, gpt-oss
    {"[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
     "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*"
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
     "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     ScanO200k<3, true>},
    // Tekken
    {"[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|"
     "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|"
     "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     ScanO200k<1, false>},
});

constexpr auto kKnownPatterns = [] {
  std::array<std::string_view, kKnown.size()> patterns{};
  for (size_t i = 0; i < kKnown.size(); ++i) patterns[i] = kKnown[i].pattern;
  return patterns;
}();

}  // namespace

ScanFn KnownPattern(std::string_view pattern) {
  for (const Known& known : kKnown) {
    if (known.pattern == pattern) return known.scan;
  }
  return nullptr;
}

std::span<const std::string_view> KnownPatterns() { return kKnownPatterns; }

}  // namespace cmforge
