// Set arithmetic on ranges of code points.
#include "text/tokenizer/code_point_set.h"

#include <algorithm>

namespace cmforge {

using unicode::CodePointRange;
using unicode::kMaxCodePoint;

namespace {

constexpr CodePointRange kSurrogates = {0xD800, 0xDFFF};

template <class Accept>
CodePointSet FromRuns(std::span<const uint32_t> runs, const Accept& accept) {
  std::vector<CodePointRange> ranges;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (!accept(runs[i] & 0xFF)) continue;
    const uint32_t first = runs[i] >> 8;
    const uint32_t last = i + 1 < runs.size() ? (runs[i + 1] >> 8) - 1 : kMaxCodePoint;
    if (!ranges.empty() && ranges.back().last + 1 == first) {
      ranges.back().last = last;
    } else {
      ranges.push_back({first, last});
    }
  }
  return CodePointSet::Of(std::move(ranges));
}

}  // namespace

bool SamePropertyName(std::string_view a, std::string_view b) {
  const auto next = [](std::string_view text, size_t& i) -> char {
    while (i < text.size() && (text[i] == ' ' || text[i] == '_' || text[i] == '-')) ++i;
    if (i == text.size()) return '\0';
    const char c = text[i++];
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  };
  size_t i = 0, j = 0;
  while (true) {
    const char x = next(a, i), y = next(b, j);
    if (x != y) return false;
    if (x == '\0') return true;
  }
}

CodePointSet CodePointSet::OfCategories(uint32_t category_bits) {
  return FromRuns(unicode::kCategoryRuns, [&](uint32_t value) {
    return value != static_cast<uint32_t>(unicode::Category::kCs) && (category_bits >> value & 1) != 0;
  });
}

std::optional<CodePointSet> CodePointSet::OfScript(std::string_view name) {
  for (size_t script = 0; script < unicode::kScriptNames.size(); ++script) {
    if (!SamePropertyName(name, unicode::kScriptNames[script])) continue;
    return FromRuns(unicode::kScriptRuns, [&](uint32_t value) { return value == script; });
  }
  return std::nullopt;
}

CodePointSet CodePointSet::Of(std::vector<CodePointRange> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const CodePointRange& a, const CodePointRange& b) { return a.first < b.first; });
  CodePointSet set;
  std::vector<CodePointRange>& joined = set.ranges_;
  const auto put = [&](CodePointRange range) {
    if (range.first > range.last) return;
    if (!joined.empty() && range.first <= joined.back().last + 1) {
      joined.back().last = std::max(joined.back().last, range.last);
    } else {
      joined.push_back(range);
    }
  };
  for (const CodePointRange& range : ranges) {
    if (range.last < kSurrogates.first || range.first > kSurrogates.last) {
      put(range);
      continue;
    }
    put({range.first, std::min(range.last, kSurrogates.first - 1)});
    put({std::max(range.first, kSurrogates.last + 1), range.last});
  }
  return set;
}

CodePointSet CodePointSet::Complement() const {
  std::vector<CodePointRange> gaps;
  uint32_t next = 0;
  for (const CodePointRange& range : ranges_) {
    if (range.first > next) gaps.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kMaxCodePoint) gaps.push_back({next, kMaxCodePoint});
  return Of(std::move(gaps));
}

CodePointSet CodePointSet::Intersect(const CodePointSet& other) const {
  CodePointSet result;
  size_t i = 0, j = 0;
  while (i < ranges_.size() && j < other.ranges_.size()) {
    const uint32_t first = std::max(ranges_[i].first, other.ranges_[j].first);
    const uint32_t last = std::min(ranges_[i].last, other.ranges_[j].last);
    if (first <= last) result.ranges_.push_back({first, last});
    (ranges_[i].last < other.ranges_[j].last ? i : j) += 1;
  }
  return result;
}

}  // namespace cmforge
