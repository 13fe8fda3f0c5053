// Hand-written scanners for the split patterns that most models share, several times as fast as the pattern
// engine and, as the tests show, of the same result on every text.
#pragma once

#include <string_view>

#include "text/tokenizer/unicode_tables.h"

namespace cmforge {

/// Where the match that begins at `at` (< text.size()) ends. Matches follow each other without gaps.
using ScanFn = size_t (*)(std::string_view text, size_t at, const unicode::CategoryTable& categories);

/// The scanner for exactly this pattern, or nullptr.
[[nodiscard]] ScanFn KnownPattern(std::string_view pattern);

/// The patterns that have one, for tests.
[[nodiscard]] std::span<const std::string_view> KnownPatterns();

inline constexpr std::string_view kGpt2Pattern =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

}  // namespace cmforge
