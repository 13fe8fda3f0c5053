// UTF-8 helpers.
#include "text/tokenizer/utf8.h"

#include <cstring>

namespace cmforge::utf8 {

namespace {

enum class Kind { kComplete, kUnfinished, kIllFormed };

struct Step {
  Kind kind;
  size_t length;  // of the character, or of the maximal ill-formed (or unfinished) prefix
};

Step Look(const uint8_t* b, size_t size) {
  if (b[0] < 0x80) return {Kind::kComplete, 1};
  size_t need = 0;
  uint8_t low = 0x80, high = 0xBF;
  if (b[0] >= 0xC2 && b[0] <= 0xDF) {
    need = 2;
  } else if (b[0] >= 0xE0 && b[0] <= 0xEF) {
    need = 3;
    if (b[0] == 0xE0) low = 0xA0;
    if (b[0] == 0xED) high = 0x9F;
  } else if (b[0] >= 0xF0 && b[0] <= 0xF4) {
    need = 4;
    if (b[0] == 0xF0) low = 0x90;
    if (b[0] == 0xF4) high = 0x8F;
  } else {
    return {Kind::kIllFormed, 1};
  }
  for (size_t i = 1; i < need; ++i) {
    if (i == size) return {Kind::kUnfinished, i};
    if (b[i] < low || b[i] > high) return {Kind::kIllFormed, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Kind::kComplete, need};
}

const uint8_t* AsUnsigned(std::string_view text) { return reinterpret_cast<const uint8_t*>(text.data()); }

}  // namespace

void Append(std::string& out, uint32_t c) {
  const auto put = [&](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6);
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

size_t CountCodePoints(std::string_view text) {
  size_t count = 0;
  for (const char c : text) count += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
  return count;
}

size_t ValidPrefix(std::string_view text) {
  const uint8_t* bytes = AsUnsigned(text);
  size_t at = 0;
  while (at < text.size()) {
    if (at + 8 <= text.size()) {  // eight ASCII bytes at once
      uint64_t word;
      std::memcpy(&word, bytes + at, 8);
      if ((word & 0x8080808080808080u) == 0) {
        at += 8;
        continue;
      }
    }
    const Step step = Look(bytes + at, text.size() - at);
    if (step.kind != Kind::kComplete) return at;
    at += step.length;
  }
  return at;
}

void LossyReader::Push(std::string_view bytes, std::string& out) {
  std::string joined;
  if (!held_.empty()) {
    joined = held_;
    joined += bytes;
    bytes = joined;
    held_.clear();
  }
  while (!bytes.empty()) {
    const size_t valid = ValidPrefix(bytes);
    out += bytes.substr(0, valid);
    bytes.remove_prefix(valid);
    if (bytes.empty()) break;
    const Step step = Look(AsUnsigned(bytes), bytes.size());
    if (step.kind == Kind::kUnfinished) {
      held_ = bytes;
      break;
    }
    out += kReplacement;
    bytes.remove_prefix(step.length);
  }
}

}  // namespace cmforge::utf8
