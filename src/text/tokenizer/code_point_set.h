// Sets of code points as ascending ranges, for character classes of patterns. Surrogates are never members.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "text/tokenizer/unicode_tables.h"

namespace cmforge {

class CodePointSet {
 public:
  CodePointSet() = default;
  explicit CodePointSet(unicode::CodePointRanges ranges) : ranges_(ranges.begin(), ranges.end()) {}

  static CodePointSet OfCategories(uint32_t category_bits);
  /// nullopt for a script that is not known; the name as Unicode spells it ("Old_Italic"), any case, any of
  /// "_- ".
  static std::optional<CodePointSet> OfScript(std::string_view name);

  /// From ranges in any order that may overlap.
  static CodePointSet Of(std::vector<unicode::CodePointRange> ranges);

  [[nodiscard]] CodePointSet Complement() const;
  [[nodiscard]] CodePointSet Intersect(const CodePointSet& other) const;
  [[nodiscard]] CodePointSet Minus(const CodePointSet& other) const { return Intersect(other.Complement()); }
  [[nodiscard]] bool Contains(uint32_t c) const { return unicode::Contains(ranges_, c); }
  [[nodiscard]] bool Contains(const CodePointSet& other) const { return other.Minus(*this).empty(); }
  [[nodiscard]] bool empty() const { return ranges_.empty(); }
  [[nodiscard]] unicode::CodePointRanges ranges() const { return ranges_; }

 private:
  std::vector<unicode::CodePointRange> ranges_;  // ascending, apart
};

/// Compares names of properties: case, blanks, '_' and '-' do not count.
[[nodiscard]] bool SamePropertyName(std::string_view a, std::string_view b);

}  // namespace cmforge
