// The printable alphabet of byte-level tokenizers: each byte is one character, 33-126, 161-172 and 174-255
// themselves, the others U+0100 and up in order.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace cmforge::byte_level {

inline constexpr std::array<uint16_t, 256> kCharacterOf = [] {
  std::array<uint16_t, 256> table{};
  uint16_t next = 256;
  for (uint16_t byte = 0; byte < 256; ++byte) {
    const bool is_printable =
        (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255);
    table[byte] = is_printable ? byte : next++;
  }
  return table;
}();

/// By character (all are below 324): its byte, or -1.
inline constexpr std::array<int16_t, 324> kByteOf = [] {
  std::array<int16_t, 324> table{};
  table.fill(-1);
  for (int16_t byte = 0; byte < 256; ++byte) table[kCharacterOf[static_cast<size_t>(byte)]] = byte;
  return table;
}();

/// The alphabet's spelling of `bytes`, appended.
void AppendSpelling(std::string_view bytes, std::string& out);

/// The bytes that `spelling` (well-formed UTF-8) stands for, appended; false (and nothing appended) when it
/// holds a character outside the alphabet.
bool AppendBytes(std::string_view spelling, std::string& out);

}  // namespace cmforge::byte_level
