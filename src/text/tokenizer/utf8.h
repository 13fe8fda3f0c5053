// Walking over UTF-8, and turning bytes that may be ill-formed into text, piece by piece.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace cmforge::utf8 {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

/// Bytes of the character that begins with `lead`, in well-formed text.
[[nodiscard]] constexpr int LengthOf(char lead) {
  const auto b = static_cast<uint8_t>(lead);
  return b < 0x80 ? 1 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
}

/// The code point at `at`, which must begin a well-formed character.
[[nodiscard]] inline uint32_t Decode(const char* at) {
  const auto* b = reinterpret_cast<const uint8_t*>(at);
  if (b[0] < 0x80) return b[0];
  if (b[0] < 0xE0) return (b[0] & 0x1Fu) << 6 | (b[1] & 0x3Fu);
  if (b[0] < 0xF0) return (b[0] & 0x0Fu) << 12 | (b[1] & 0x3Fu) << 6 | (b[2] & 0x3Fu);
  return (b[0] & 0x07u) << 18 | (b[1] & 0x3Fu) << 12 | (b[2] & 0x3Fu) << 6 | (b[3] & 0x3Fu);
}

/// The same, moving on to the next character.
[[nodiscard]] inline uint32_t Next(const char*& at) {
  const uint32_t c = Decode(at);
  at += LengthOf(*at);
  return c;
}

/// Where the character that ends before `end` begins; `end` must not be the beginning of the text.
[[nodiscard]] inline const char* Previous(const char* end) {
  do --end;
  while ((static_cast<uint8_t>(*end) & 0xC0) == 0x80);
  return end;
}

void Append(std::string& out, uint32_t code_point);

/// Number of code points of well-formed text.
[[nodiscard]] size_t CountCodePoints(std::string_view text);

/// Byte at which `text` stops being well-formed, or its size.
[[nodiscard]] size_t ValidPrefix(std::string_view text);

/// Bytes in, text out: each maximal ill-formed prefix becomes one U+FFFD (E4 BD: 1, C0 80: 2, ED A0 80: 3).
class LossyReader {
 public:
  /// Appends to `out` all that is certain; an unfinished character stays inside.
  void Push(std::string_view bytes, std::string& out);

  /// True while a character has begun and not ended; ending now would make it U+FFFD.
  [[nodiscard]] bool is_unfinished() const { return !held_.empty(); }

 private:
  std::string held_;  // 0 to 3 bytes
};

}  // namespace cmforge::utf8
