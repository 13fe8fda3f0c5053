// Unicode data for tokenizers: general categories and scripts (Unicode 16), some properties, and the places
// where the reference library's own tables are older or newer, since tokens must agree with that library.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>

namespace cmforge::unicode {

struct CodePointRange {
  uint32_t first, last;  // both included

  bool operator==(const CodePointRange&) const = default;
};
using CodePointRanges = std::span<const CodePointRange>;  // ascending, apart

inline constexpr uint32_t kMaxCodePoint = 0x10FFFF;

enum class Category : uint8_t {
  kLu,
  kLl,
  kLt,
  kLm,
  kLo,
  kMn,
  kMc,
  kMe,
  kNd,
  kNl,
  kNo,
  kPc,
  kPd,
  kPs,
  kPe,
  kPi,
  kPf,
  kPo,
  kSm,
  kSc,
  kSk,
  kSo,
  kZs,
  kZl,
  kZp,
  kCc,
  kCf,
  kCo,
  kCn,
  kCs,
};
inline constexpr int kCategoryCount = 30;

/// Runs that cover all code points: the first of the run << 8 | its category (or script).
extern const std::span<const uint32_t> kCategoryRuns;
extern const std::span<const uint32_t> kScriptRuns;
extern const std::span<const std::string_view> kScriptNames;  // by script; the last is "Unknown"

// Properties.
extern const CodePointRanges kNewerThanUnicode14;
extern const CodePointRanges kOtherAlphabetic, kOtherLowercase, kOtherUppercase;
extern const CodePointRanges kEmoji, kEmojiPresentation, kExtendedPictographic, kIdeographic;

// What single components of the reference library think.
extern const CodePointRanges kScriptlessInPreTokenizer;
extern const CodePointRanges kNumericAfterUnicode16;
extern const CodePointRanges kNotBertPunctuation, kOldBertPunctuation;
extern const CodePointRanges kAccentMarks;
extern const CodePointRanges kBertAccents, kBertControl, kBertChinese;
extern const CodePointRanges kNormalizerInert;
extern const CodePointRanges kGraphemeExtendAfterUnicode15;

[[nodiscard]] inline bool Contains(CodePointRanges ranges, uint32_t c) {
  const auto after =
      std::upper_bound(ranges.begin(), ranges.end(), c,
                       [](uint32_t value, const CodePointRange& r) { return value < r.first; });
  return after != ranges.begin() && c <= (after - 1)->last;
}

/// The category or script index of a code point, by binary search in the runs.
[[nodiscard]] inline uint8_t ValueInRuns(std::span<const uint32_t> runs, uint32_t c) {
  return static_cast<uint8_t>(*(std::upper_bound(runs.begin(), runs.end(), c << 8 | 0xFF) - 1) & 0xFF);
}

/// The same in constant time, for loops over text. Built once, immutable.
class CategoryTable {
 public:
  static const CategoryTable& Get();

  [[nodiscard]] Category Of(uint32_t c) const {
    return static_cast<Category>(pages_[index_[c >> 8]][c & 0xFF]);
  }

 private:
  CategoryTable();
  static constexpr int kMaxPages = 256;
  uint8_t index_[(kMaxCodePoint >> 8) + 1];
  uint8_t pages_[kMaxPages][256];
};

constexpr uint32_t Bit(Category c) { return uint32_t{1} << static_cast<int>(c); }
template <class... C>
constexpr uint32_t Bits(C... c) {
  return (Bit(c) | ...);
}
inline constexpr uint32_t kLetterBits =
    Bits(Category::kLu, Category::kLl, Category::kLt, Category::kLm, Category::kLo);
inline constexpr uint32_t kMarkBits = Bits(Category::kMn, Category::kMc, Category::kMe);
inline constexpr uint32_t kNumberBits = Bits(Category::kNd, Category::kNl, Category::kNo);
inline constexpr uint32_t kPunctuationBits = Bits(Category::kPc, Category::kPd, Category::kPs, Category::kPe,
                                                  Category::kPi, Category::kPf, Category::kPo);
inline constexpr uint32_t kSymbolBits = Bits(Category::kSm, Category::kSc, Category::kSk, Category::kSo);

/// White space as Unicode has it, 25 code points: 9-D, 20, 85, A0, 1680, 2000-200A, 2028, 2029, 202F, 205F,
/// 3000.
[[nodiscard]] inline bool IsWhiteSpace(uint32_t c) {
  return c == ' ' || (c >= 9 && c <= 13) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

/// `\w` of the pattern engine, and of the `single_word` flag of added tokens (which also has the joiners).
[[nodiscard]] bool IsPatternWord(uint32_t c);
[[nodiscard]] bool IsTokenWord(uint32_t c);

[[nodiscard]] bool IsNumeric(uint32_t c);          // the Digits pre-tokenizer
[[nodiscard]] bool IsBertPunctuation(uint32_t c);  // the Punctuation and BertPreTokenizer pre-tokenizers

}  // namespace cmforge::unicode
