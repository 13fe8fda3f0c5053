// Small tables beside utf8proc; see unicode.h for what they serve.
#pragma once

#include <cstddef>

namespace cmforge::jinja {

struct CodeRange {
  char32_t first, last;
};
struct SpecialCase {
  char32_t from;
  char32_t to[3];  // unused: 0
};

// All ascending.
extern const CodeRange kOtherLowercase[];  // Lowercase, but not of category Ll
extern const std::size_t kOtherLowercaseCount;
extern const CodeRange kOtherUppercase[];  // Uppercase, but not Lu
extern const std::size_t kOtherUppercaseCount;
extern const CodeRange kOtherDigit[];  // Numeric_Type=Digit
extern const std::size_t kOtherDigitCount;
extern const CodeRange kOtherNumeric[];  // numeric, but of a letter category
extern const std::size_t kOtherNumericCount;
extern const SpecialCase kSpecialUpper[];
extern const std::size_t kSpecialUpperCount;
extern const SpecialCase kSpecialTitle[];
extern const std::size_t kSpecialTitleCount;

}  // namespace cmforge::jinja
