// Code points of UTF-8 text and what Python's str knows about them: classes, case mappings, code point
// positions. Ill-formed bytes count as one code point each and are passed through.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace cmforge::jinja {

/// The code point at `*at`, which is moved behind it. A byte that starts nothing well-formed comes out as
/// 0xDC80..0xDCFF (Python's surrogateescape). Surrogates encoded as three bytes are accepted.
char32_t DecodeUtf8(std::string_view text, uint64_t* at);
/// Escaped bytes (0xDC80..0xDCFF) become that byte again.
void AppendUtf8(std::string* out, char32_t c);

/// Bytes of the code point that starts at `at`.
[[nodiscard]] uint64_t CodePointSize(std::string_view text, uint64_t at);
[[nodiscard]] uint64_t CountCodePoints(std::string_view text);
/// Byte position of code point `count` from the front; text.size() when there are fewer.
[[nodiscard]] uint64_t SkipCodePoints(std::string_view text, uint64_t count);
/// Byte position where the code point that ends at `end` starts.
[[nodiscard]] uint64_t PreviousCodePoint(std::string_view text, uint64_t end);
[[nodiscard]] bool IsAscii(std::string_view text);

// As the methods of str of these names, for one code point.
[[nodiscard]] bool IsSpace(char32_t c);
[[nodiscard]] bool IsLineBreak(char32_t c);
[[nodiscard]] bool IsPrintable(char32_t c);
[[nodiscard]] bool IsAlpha(char32_t c);
[[nodiscard]] bool IsDecimal(char32_t c);
[[nodiscard]] bool IsDigit(char32_t c);
[[nodiscard]] bool IsNumeric(char32_t c);
[[nodiscard]] bool IsAlnum(char32_t c);
[[nodiscard]] bool IsLower(char32_t c);
[[nodiscard]] bool IsUpper(char32_t c);
[[nodiscard]] bool IsTitle(char32_t c);  // category Lt
[[nodiscard]] bool IsCased(char32_t c);
[[nodiscard]] bool IsIdentifierStart(char32_t c);
[[nodiscard]] bool IsIdentifierPart(char32_t c);
[[nodiscard]] bool IsIdentifier(std::string_view text);
/// 0..9 of a decimal digit of any script.
[[nodiscard]] int DecimalValue(char32_t c);

// Full case mappings of one code point, appended as UTF-8.
void AppendUpper(std::string* out, char32_t c);
void AppendTitle(std::string* out, char32_t c);
void AppendFolded(std::string* out, char32_t c);
/// `text` and `at` (where `c` starts) decide the form of a final sigma.
void AppendLower(std::string* out, char32_t c, std::string_view text, uint64_t at);

}  // namespace cmforge::jinja
