// Look-ups in the Unicode tables.
#include "text/tokenizer/unicode_tables.h"

#include <cassert>
#include <cstring>

namespace cmforge::unicode {

namespace {

constexpr uint32_t kWordBits = kLetterBits | kMarkBits | Bits(Category::kNd, Category::kNl, Category::kPc);

bool IsWord(uint32_t c) {
  const auto category = static_cast<Category>(ValueInRuns(kCategoryRuns, c));
  if (Bit(category) & kWordBits) return true;
  return category == Category::kSo && Contains(kOtherAlphabetic, c);
}

}  // namespace

CategoryTable::CategoryTable() {
  int pages = 0;
  uint32_t c = 0;
  size_t run = 0;
  for (uint32_t block = 0; block <= kMaxCodePoint >> 8; ++block) {
    uint8_t page[256];
    for (uint8_t& value : page) {
      while (run + 1 < kCategoryRuns.size() && kCategoryRuns[run + 1] >> 8 <= c) ++run;
      value = static_cast<uint8_t>(kCategoryRuns[run] & 0xFF);
      ++c;
    }
    int same = 0;
    while (same < pages && std::memcmp(pages_[same], page, sizeof page) != 0) ++same;
    if (same == pages) {
      assert(pages < kMaxPages);
      std::memcpy(pages_[pages++], page, sizeof page);
    }
    index_[block] = static_cast<uint8_t>(same);
  }
}

const CategoryTable& CategoryTable::Get() {
  static const CategoryTable table;
  return table;
}

bool IsPatternWord(uint32_t c) {
  // The engine's \w has six superscripts and fractions of Latin-1 besides, which [[:word:]] has not.
  return IsWord(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || (c >= 0xBC && c <= 0xBE);
}

bool IsTokenWord(uint32_t c) { return c == 0x200C || c == 0x200D || IsWord(c); }

bool IsNumeric(uint32_t c) {
  return (Bit(static_cast<Category>(ValueInRuns(kCategoryRuns, c))) & kNumberBits) != 0 ||
         Contains(kNumericAfterUnicode16, c);
}

bool IsBertPunctuation(uint32_t c) {
  if (c < 0x80)
    return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126);
  const auto category = static_cast<Category>(ValueInRuns(kCategoryRuns, c));
  if (Bit(category) & kPunctuationBits) return !Contains(kNotBertPunctuation, c);
  return Contains(kOldBertPunctuation, c);
}

}  // namespace cmforge::unicode
