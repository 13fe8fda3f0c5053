// Reading and writing protobuf fields.
#include "mil/wire.h"

namespace cmforge::mil {

Result<uint64_t> WireReader::Varint() {
  uint64_t value = 0;
  for (size_t i = 0; i < 10 && i < rest_.size(); ++i) {
    const auto byte = std::to_integer<uint64_t>(rest_[i]);
    value |= (byte & 0x7F) << (7 * i);
    if (byte < 0x80) {
      rest_ = rest_.subspan(i + 1);
      return value;
    }
  }
  return Fail(ErrorKind::kCorrupt,
              rest_.size() < 10 ? "message ends inside a number" : "number longer than 10 bytes");
}

Result<WireField> WireReader::Next() {
  WireField field;
  CMF_TRY(const uint64_t key, Varint());
  if (key >> 3 == 0 || key >> 32 != 0)
    return Fail(ErrorKind::kCorrupt, fmt::format("field key {} is not valid", key));
  field.number = static_cast<uint32_t>(key >> 3);
  field.type = static_cast<WireType>(key & 7);
  switch (field.type) {
    case WireType::kVarint: {
      CMF_TRY(field.value, Varint());
      return field;
    }
    case WireType::kFixed32:
    case WireType::kFixed64: {
      const size_t width = field.type == WireType::kFixed32 ? 4 : 8;
      if (rest_.size() < width) return Fail(ErrorKind::kCorrupt, "message ends inside a number");
      field.value = width == 4 ? LoadLe<uint32_t>(rest_.data()) : LoadLe<uint64_t>(rest_.data());
      rest_ = rest_.subspan(width);
      return field;
    }
    case WireType::kBytes: {
      CMF_TRY(const uint64_t length, Varint());
      if (length > rest_.size()) {
        return Fail(ErrorKind::kCorrupt, fmt::format("field {} claims {} bytes, {} are left in its message",
                                                     field.number, length, rest_.size()));
      }
      field.bytes = rest_.first(length);
      rest_ = rest_.subspan(length);
      return field;
    }
  }
  return Fail(ErrorKind::kCorrupt,
              fmt::format("field {} has wire type {}, which no model uses", field.number, key & 7));
}

Result<void> AppendVarints(const WireField& field, std::vector<int64_t>& out) {
  if (field.type == WireType::kVarint) {
    out.push_back(static_cast<int64_t>(field.value));
    return {};
  }
  if (field.type != WireType::kBytes)
    return Fail(ErrorKind::kCorrupt, "a list of numbers has a wrong wire type");
  // A packed list is a run of bare varints: count them first, so that the vector grows once.
  size_t count = 0;
  for (const std::byte b : field.bytes) count += std::to_integer<uint8_t>(b) < 0x80;
  out.reserve(out.size() + count);
  uint64_t value = 0;
  int shift = 0;
  for (const std::byte b : field.bytes) {
    if (shift > 63) return Fail(ErrorKind::kCorrupt, "number longer than 10 bytes");
    const auto byte = std::to_integer<uint64_t>(b);
    value |= (byte & 0x7F) << shift;
    shift += 7;
    if (byte < 0x80) {
      out.push_back(static_cast<int64_t>(value));
      value = 0;
      shift = 0;
    }
  }
  if (shift) return Fail(ErrorKind::kCorrupt, "message ends inside a number");
  return {};
}

Result<void> AppendFixed(const WireField& field, size_t width, std::vector<std::byte>& out) {
  if (field.type == WireType::kBytes) {
    if (field.bytes.size() % width != 0) {
      return Fail(ErrorKind::kCorrupt,
                  fmt::format("{} bytes are no whole number of {}-byte elements", field.bytes.size(), width));
    }
    out.insert(out.end(), field.bytes.begin(), field.bytes.end());
    return {};
  }
  if (field.type != (width == 4 ? WireType::kFixed32 : WireType::kFixed64)) {
    return Fail(ErrorKind::kCorrupt, "a list of numbers has a wrong wire type");
  }
  const auto bytes = std::as_bytes(std::span(&field.value, 1));
  out.insert(out.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(width));
  return {};
}

void WireWriter::Raw(uint64_t value) {
  for (; value >= 0x80; value >>= 7) out_.push_back(static_cast<char>(value | 0x80));
  out_.push_back(static_cast<char>(value));
}

void WireWriter::Varint(uint32_t number, uint64_t value) {
  Key(number, WireType::kVarint);
  Raw(value);
}

void WireWriter::Text(uint32_t number, std::string_view text) {
  Key(number, WireType::kBytes);
  Raw(text.size());
  out_ += text;
}

void WireWriter::PackedVarints(uint32_t number, const std::vector<int64_t>& values) {
  if (values.empty()) return;
  WireWriter packed;
  for (const int64_t value : values) packed.Raw(static_cast<uint64_t>(value));
  Text(number, packed.out_);
}

void WireWriter::Fixed32(uint32_t number, uint32_t value) {
  Key(number, WireType::kFixed32);
  out_.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void WireWriter::Fixed64(uint32_t number, uint64_t value) {
  Key(number, WireType::kFixed64);
  out_.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace cmforge::mil
