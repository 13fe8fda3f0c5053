// Translates the pattern language of tokenizer files (Oniguruma's) into PCRE2's, with every class of
// characters resolved by our own Unicode tables, so that the library's version does not matter.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace cmforge {

/// `pattern` UTF-8. The result is for PCRE2_UTF | PCRE2_MULTILINE with "\n" as the only newline.
/// Fails: kCorrupt (syntax: the byte), kUnsupported (constructs we don't have: the byte), kLimit (a pattern
/// above 16 KiB, nested deeper than 100, or with more than 500 classes).
///
/// What differs from PCRE2 and is taken care of: (?m) is "dot matches newline"; `^` and `$` are line anchors;
/// \h is a hexadecimal digit, \v a vertical tab; classes nest and intersect ([a-z&&[^b]]); {n,m}+ repeats and
/// is not possessive; {n}? is optional, not lazy; {,n} counts from 0; (?i) in the middle encloses the
/// alternatives that follow it. Not taken care of: under (?i) one character that folds to several (ß to ss)
/// stays apart.
Result<std::string> TranslatePattern(std::string_view pattern);

}  // namespace cmforge
