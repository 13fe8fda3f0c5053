// The protobuf wire format: fields read from untrusted bytes, and messages written with fields in the order
// the caller gives. Only what Core ML model files use: varints, 32- and 64-bit numbers, length-delimited
// bytes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace cmforge::mil {

enum class WireType : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

struct WireField {
  uint32_t number = 0;
  WireType type = WireType::kVarint;
  uint64_t value = 0;  // varint and fixed numbers
  Bytes bytes;         // kBytes

  [[nodiscard]] std::string text() const { return std::string(AsText(bytes)); }
};

/// Walks the fields of one message.
class WireReader {
 public:
  explicit WireReader(Bytes message) : rest_(message) {}

  [[nodiscard]] bool AtEnd() const { return rest_.empty(); }
  /// Fails: kCorrupt for a bad key, a group, a varint above 10 bytes or bytes that leave the message.
  Result<WireField> Next();

 private:
  Result<uint64_t> Varint();
  Bytes rest_;
};

/// Numbers of a repeated field, packed or one at a time: each field with that number appends to `out`.
Result<void> AppendVarints(const WireField& field, std::vector<int64_t>& out);
/// Bytes of a repeated fixed-width field (4 or 8 bytes an element), packed or not.
Result<void> AppendFixed(const WireField& field, size_t width, std::vector<std::byte>& out);

class WireWriter {
 public:
  void Varint(uint32_t number, uint64_t value);  // always written
  void VarintOrNothing(uint32_t number, uint64_t value) {
    if (value) Varint(number, value);
  }
  void Text(uint32_t number, std::string_view text);  // always written
  void TextOrNothing(uint32_t number, std::string_view text) {
    if (!text.empty()) Text(number, text);
  }
  void Blob(uint32_t number, Bytes bytes) { Text(number, AsText(bytes)); }
  void Message(uint32_t number, const WireWriter& message) { Text(number, message.out_); }
  void PackedVarints(uint32_t number, const std::vector<int64_t>& values);  // nothing when empty
  void Fixed32(uint32_t number, uint32_t value);
  void Fixed64(uint32_t number, uint64_t value);

  [[nodiscard]] const std::string& bytes() const { return out_; }

 private:
  void Raw(uint64_t value);
  void Key(uint32_t number, WireType type) { Raw(uint64_t{number} << 3 | static_cast<uint64_t>(type)); }
  std::string out_;
};

}  // namespace cmforge::mil
