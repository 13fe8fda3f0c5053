// SentencePiece's character map.
#include "text/tokenizer/precompiled.h"

#include <utf8proc.h>

#include <cstring>

#include "base/bytes.h"
#include "text/tokenizer/unicode_tables.h"
#include "text/tokenizer/utf8.h"

namespace cmforge {

namespace {

Result<std::vector<char>> DecodeBase64(std::string_view text) {
  std::vector<char> out;
  out.reserve(text.size() / 4 * 3 + 3);
  uint32_t bits = 0;
  int count = 0;
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    uint32_t value = 0;
    if (c >= 'A' && c <= 'Z') {
      value = static_cast<uint32_t>(c - 'A');
    } else if (c >= 'a' && c <= 'z') {
      value = static_cast<uint32_t>(c - 'a' + 26);
    } else if (c >= '0' && c <= '9') {
      value = static_cast<uint32_t>(c - '0' + 52);
    } else if (c == '+' || c == '/') {
      value = c == '+' ? 62 : 63;
    } else {
      return Fail(ErrorKind::kCorrupt, fmt::format("character {} is not of base64", i));
    }
    bits = bits << 6 | value;
    count += 6;
    if (count >= 8) {
      count -= 8;
      out.push_back(static_cast<char>(bits >> count & 0xFF));
    }
  }
  return out;
}

// The units of the double array: a label, an offset to the children, a mark "a key ends here"; or a value.
bool HasLeaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t ValueOf(uint32_t unit) { return unit & 0x7FFFFFFF; }
uint32_t LabelOf(uint32_t unit) { return unit & 0x800000FF; }
uint32_t OffsetOf(uint32_t unit) { return (unit >> 10) << ((unit & 0x200) >> 6); }

bool JoinsCluster(utf8proc_int32_t before, utf8proc_int32_t c, utf8proc_int32_t* state) {
  const bool breaks = utf8proc_grapheme_break_stateful(before, c, state);
  return !breaks ||
         (c >= 0x897 && unicode::Contains(unicode::kGraphemeExtendAfterUnicode15, static_cast<uint32_t>(c)) &&
          before != '\n' && before != '\r');
}

}  // namespace

Result<Precompiled> Precompiled::FromBase64(std::string_view text) {
  CMF_TRY(const std::vector<char> bytes, DecodeBase64(text));
  if (bytes.size() < 4)
    return Fail(ErrorKind::kCorrupt, fmt::format("a map of {} bytes, at least 4", bytes.size()));
  const auto trie_bytes = LoadLe<uint32_t>(reinterpret_cast<const std::byte*>(bytes.data()));
  if (trie_bytes % 4 != 0 || trie_bytes > bytes.size() - 4) {
    return Fail(ErrorKind::kCorrupt,
                fmt::format("a trie of {} bytes in a map of {}", trie_bytes, bytes.size()));
  }
  Precompiled result;
  result.trie_.resize(trie_bytes / 4);
  if (trie_bytes > 0) std::memcpy(result.trie_.data(), bytes.data() + 4, trie_bytes);
  result.replacements_.assign(bytes.begin() + 4 + trie_bytes, bytes.end());
  if (!IsUtf8(result.replacements_)) return Fail(ErrorKind::kCorrupt, "replacements that are not UTF-8");
  return result;
}

std::string_view Precompiled::Find(std::string_view text) const {
  const auto unit_at = [&](uint32_t position) { return position < trie_.size() ? trie_[position] : 0; };
  if (trie_.empty()) return {};
  uint32_t position = OffsetOf(trie_[0]);
  for (const char character : text) {
    const auto byte = static_cast<uint8_t>(character);
    if (byte == 0) break;
    position ^= byte;
    const uint32_t unit = unit_at(position);
    if (LabelOf(unit) != byte) return {};
    position ^= OffsetOf(unit);
    if (!HasLeaf(unit)) continue;
    const uint32_t begin = ValueOf(unit_at(position));
    if (begin > replacements_.size()) return {};
    const std::string_view rest = std::string_view(replacements_).substr(begin);
    // The value may point into the middle of a character only in a hostile file.
    if (!rest.empty() && (static_cast<uint8_t>(rest[0]) & 0xC0) == 0x80) return {};
    return rest.substr(0, rest.find('\0'));
  }
  return {};
}

// Grapheme clusters of fewer than 6 bytes are looked up as a whole, and the shortest key that begins them
// stands for all of them; so a mark can vanish after a ligature. That is how the reference does it.
Result<Piece> Precompiled::Apply(const Piece& in, std::string& buffer, PatternScratch&) const {
  buffer.clear();
  size_t from_start = 0;
  bool is_changed = false;
  const char* at = in.text.data();
  const char* const end = at + in.text.size();
  while (at != end) {
    const char* const begin = at;
    auto before = static_cast<utf8proc_int32_t>(utf8::Next(at));
    utf8proc_int32_t state = 0;
    while (at != end) {
      const auto c = static_cast<utf8proc_int32_t>(utf8::Decode(at));
      if (!JoinsCluster(before, c, &state)) break;
      before = c;
      at += utf8::LengthOf(*at);
    }
    const auto put = [&](std::string_view part, std::string_view replacement) {
      const auto offset = static_cast<size_t>(part.data() - in.text.data());
      if (replacement.data() != nullptr) is_changed = true;
      buffer += replacement.data() != nullptr ? replacement : part;
      if (offset < in.from_start) from_start = buffer.size();
    };
    const std::string_view cluster(begin, static_cast<size_t>(at - begin));
    if (cluster.size() < 6) {
      if (const std::string_view found = Find(cluster); found.data() != nullptr) {
        put(cluster, found);
        continue;
      }
    }
    for (const char* p = begin; p != at;) {
      const std::string_view part(p, static_cast<size_t>(utf8::LengthOf(*p)));
      put(part, Find(part));
      p += part.size();
    }
  }
  if (!is_changed) return in;
  return Piece{buffer, from_start};
}

}  // namespace cmforge
