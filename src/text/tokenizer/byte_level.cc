// Spelling bytes in the byte-level alphabet, and back.
#include "text/tokenizer/byte_level.h"

#include "text/tokenizer/utf8.h"

namespace cmforge::byte_level {

void AppendSpelling(std::string_view bytes, std::string& out) {
  for (const char byte : bytes) utf8::Append(out, kCharacterOf[static_cast<uint8_t>(byte)]);
}

bool AppendBytes(std::string_view spelling, std::string& out) {
  const size_t before = out.size();
  const char* at = spelling.data();
  const char* const end = at + spelling.size();
  while (at != end) {
    const uint32_t c = utf8::Next(at);
    if (c >= kByteOf.size() || kByteOf[c] < 0) {
      out.resize(before);
      return false;
    }
    out.push_back(static_cast<char>(kByteOf[c]));
  }
  return true;
}

}  // namespace cmforge::byte_level
