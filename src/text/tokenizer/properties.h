// Named sets of code points in patterns: \p{L}, \p{Han}, [[:alpha:]], \w, \s.
#pragma once

#include <optional>
#include <string_view>

#include "text/tokenizer/code_point_set.h"

namespace cmforge {

/// \p{name}: a general category (short or long name), a script, a POSIX name, or one of a few properties.
/// Names are compared loosely (SamePropertyName). nullopt for what we don't have.
[[nodiscard]] std::optional<CodePointSet> PropertySet(std::string_view name);

/// [[:name:]], exact lower-case names.
[[nodiscard]] std::optional<CodePointSet> PosixSet(std::string_view name);

[[nodiscard]] CodePointSet WordSet();      // \w
[[nodiscard]] CodePointSet SpaceSet();     // \s
[[nodiscard]] CodePointSet DigitSet();     // \d
[[nodiscard]] CodePointSet HexDigitSet();  // \h

/// `set` and all that differ from a member by case only (simple case folding).
[[nodiscard]] CodePointSet CaseClosure(const CodePointSet& set);

}  // namespace cmforge
