// Writes a set of code points as a PCRE2 class, short and quick to match.
#pragma once

#include <string>

#include "text/tokenizer/code_point_set.h"

namespace cmforge {

/// Matches exactly the members. Whole categories are written as \p{..} where the PCRE2 in use knows that
/// Unicode version's differences to ours, else every range is spelled out.
[[nodiscard]] std::string WriteClass(const CodePointSet& set);

/// One character that means itself.
[[nodiscard]] std::string WriteCodePoint(uint32_t c);

}  // namespace cmforge
