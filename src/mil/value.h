// Compile-time values of a program: tensors held here, references into a weight file, and the lists, tuples
// and dictionaries that attributes use.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "mil/types.h"

namespace cmforge::mil {

/// Elements in row-major order: little-endian, bool one byte (0 or 1), sub-byte types packed from the least
/// significant bit of the first byte on (see packed_bits.h).
struct TensorData {
  std::vector<std::byte> bytes;      // every type but string
  std::vector<std::string> strings;  // string
  bool operator==(const TensorData&) const = default;
};

/// Names an entry of a weight file: the offset of the entry's header, not of its data.
struct BlobRef {
  std::string file;  // "@model_path/weights/weight.bin"
  uint64_t offset = 0;
  bool operator==(const BlobRef&) const = default;
};

inline constexpr std::string_view kWeightFile = "@model_path/weights/weight.bin";

struct Value {
  struct Entry;                        // key and value; a pair would have to know Value already
  using Items = std::vector<Value>;    // list, tuple
  using Entries = std::vector<Entry>;  // dictionary

  Type type;
  std::string doc;
  std::variant<TensorData, BlobRef, Items, Entries> data;

  [[nodiscard]] const TensorData* tensor() const { return std::get_if<TensorData>(&data); }
  [[nodiscard]] const BlobRef* blob() const { return std::get_if<BlobRef>(&data); }
  bool operator==(const Value& other) const;
};

struct Value::Entry {
  Value key, value;
  bool operator==(const Entry&) const = default;
};

inline bool Value::operator==(const Value& other) const {
  return type == other.type && doc == other.doc && data == other.data;
}

/// Values made by hand. Shapes must fit the number of elements (a mistake of ours otherwise).
[[nodiscard]] Value Int32(int32_t value);
[[nodiscard]] Value Int32s(const std::vector<int32_t>& values);  // rank 1
[[nodiscard]] Value Bool(bool value);
[[nodiscard]] Value Bools(const std::vector<bool>& values);  // rank 1
[[nodiscard]] Value String(std::string value);
[[nodiscard]] Value Float(DataType dtype, float value);  // fp16 or fp32 scalar
[[nodiscard]] Value Floats(DataType dtype, Shape shape, const std::vector<float>& values);
[[nodiscard]] Value Raw(TensorType type, std::vector<std::byte> bytes);
[[nodiscard]] Value FromBlob(TensorType type, uint64_t offset, std::string file = std::string(kWeightFile));
[[nodiscard]] Value StringMap(const std::map<std::string, std::string>& entries);

/// Elements of an immediate integer or bool tensor; nothing for other kinds of values, and blobs.
[[nodiscard]] std::optional<std::vector<int64_t>> IntegersOf(const Value& value);
/// Elements of an immediate float tensor.
[[nodiscard]] std::optional<std::vector<double>> FloatsOf(const Value& value);
/// The text of a scalar string.
[[nodiscard]] const std::string* StringOf(const Value& value);

/// 8-bit floats: the number of a code, and the code of a number that has one.
[[nodiscard]] double Float8Number(DataType dtype, uint8_t code);
[[nodiscard]] std::optional<uint8_t> Float8Code(DataType dtype, double number);

/// An immediate tensor whose number of bytes or strings is that of its type; whole dimensions only.
/// Fails: kCorrupt with both numbers.
Result<void> CheckTensorData(const TensorType& type, const TensorData& data);

}  // namespace cmforge::mil
