// Making and reading compile-time values.
#include "mil/value.h"

#include <cmath>

#include "base/half.h"
#include "mil/packed_bits.h"

namespace cmforge::mil {
namespace {

template <class T>
std::vector<std::byte> BytesOf(std::span<const T> values) {
  const auto bytes = std::as_bytes(values);
  return {bytes.begin(), bytes.end()};
}

template <class T>
void AppendAll(Bytes bytes, std::vector<int64_t>& out) {
  for (size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
    out.push_back(static_cast<int64_t>(LoadLe<T>(bytes.data() + at)));
  }
}

}  // namespace

Value Raw(TensorType type, std::vector<std::byte> bytes) {
  Value value;
  value.type = std::move(type);
  value.data = TensorData{std::move(bytes), {}};
  return value;
}

Value Int32(int32_t v) { return Raw({DataType::kInt32, {}}, BytesOf(std::span<const int32_t>(&v, 1))); }

Value Int32s(const std::vector<int32_t>& values) {
  return Raw({DataType::kInt32, {static_cast<int64_t>(values.size())}},
             BytesOf(std::span<const int32_t>(values)));
}

Value Bool(bool v) { return Raw({DataType::kBool, {}}, {std::byte{v}}); }

Value Bools(const std::vector<bool>& values) {
  std::vector<std::byte> bytes;
  for (const bool v : values) bytes.push_back(std::byte{v});
  return Raw({DataType::kBool, {static_cast<int64_t>(values.size())}}, std::move(bytes));
}

Value String(std::string text) {
  Value value;
  value.type = Type(DataType::kString, {});
  value.data = TensorData{{}, {std::move(text)}};
  return value;
}

Value Floats(DataType dtype, Shape shape, const std::vector<float>& values) {
  std::vector<std::byte> bytes;
  if (dtype == DataType::kFloat16) {
    std::vector<uint16_t> halves;
    halves.reserve(values.size());
    for (const float v : values) halves.push_back(F32ToF16(v));
    bytes = BytesOf(std::span<const uint16_t>(halves));
  } else {
    bytes = BytesOf(std::span<const float>(values));
  }
  return Raw({dtype, std::move(shape)}, std::move(bytes));
}

Value Float(DataType dtype, float value) { return Floats(dtype, {}, {value}); }

Value FromBlob(TensorType type, uint64_t offset, std::string file) {
  Value value;
  value.type = std::move(type);
  value.data = BlobRef{std::move(file), offset};
  return value;
}

Value StringMap(const std::map<std::string, std::string>& entries) {
  Value value;
  value.type = Type::Dictionary(Type(DataType::kString, {}), Type(DataType::kString, {}));
  Value::Entries pairs;
  for (const auto& [key, text] : entries) pairs.emplace_back(String(key), String(text));
  value.data = std::move(pairs);
  return value;
}

std::optional<std::vector<int64_t>> IntegersOf(const Value& value) {
  const TensorData* data = value.tensor();
  if (!data || !value.type.is_tensor()) return std::nullopt;
  const Bytes bytes(data->bytes);
  std::vector<int64_t> out;
  const DataType dtype = value.type.tensor.dtype;
  switch (dtype) {
    case DataType::kBool:
    case DataType::kUInt8:
      AppendAll<uint8_t>(bytes, out);
      return out;
    case DataType::kInt8:
      AppendAll<int8_t>(bytes, out);
      return out;
    case DataType::kInt16:
      AppendAll<int16_t>(bytes, out);
      return out;
    case DataType::kUInt16:
      AppendAll<uint16_t>(bytes, out);
      return out;
    case DataType::kInt32:
      AppendAll<int32_t>(bytes, out);
      return out;
    case DataType::kUInt32:
      AppendAll<uint32_t>(bytes, out);
      return out;
    case DataType::kInt64:
    case DataType::kUInt64:
      AppendAll<int64_t>(bytes, out);
      return out;
    default:
      break;
  }
  if (!IsSubByte(dtype)) return std::nullopt;
  const auto count = ElementCount(value.type.tensor.shape);
  const int bits = BitsOf(dtype);
  if (!count || StorageBytes(dtype, *count) != bytes.size()) return std::nullopt;
  for (int64_t i = 0; i < *count; ++i) {
    const uint32_t element = PackedElement(bytes.data(), bits, i);
    out.push_back(IsSigned(dtype) ? SignExtend(element, bits) : static_cast<int64_t>(element));
  }
  return out;
}

std::optional<std::vector<double>> FloatsOf(const Value& value) {
  const TensorData* data = value.tensor();
  if (!data || !value.type.is_tensor()) return std::nullopt;
  const std::vector<std::byte>& bytes = data->bytes;
  std::vector<double> out;
  switch (value.type.tensor.dtype) {
    case DataType::kFloat16:
      for (size_t at = 0; at + 2 <= bytes.size(); at += 2)
        out.push_back(F16ToF32(LoadLe<uint16_t>(&bytes[at])));
      return out;
    case DataType::kBFloat16:
      for (size_t at = 0; at + 2 <= bytes.size(); at += 2)
        out.push_back(Bf16ToF32(LoadLe<uint16_t>(&bytes[at])));
      return out;
    case DataType::kFloat32:
      for (size_t at = 0; at + 4 <= bytes.size(); at += 4) out.push_back(LoadLe<float>(&bytes[at]));
      return out;
    case DataType::kFloat64:
      for (size_t at = 0; at + 8 <= bytes.size(); at += 8) out.push_back(LoadLe<double>(&bytes[at]));
      return out;
    case DataType::kFloat8E4M3FN:
    case DataType::kFloat8E5M2:
      for (const std::byte b : bytes) {
        out.push_back(Float8Number(value.type.tensor.dtype, std::to_integer<uint8_t>(b)));
      }
      return out;
    default:
      return std::nullopt;
  }
}

double Float8Number(DataType dtype, uint8_t code) {
  if (dtype == DataType::kFloat8E5M2) return F16ToF32(static_cast<uint16_t>(code << 8));
  // E4M3FN: bias 7, no infinities, all ones is NaN.
  const int exponent = (code >> 3) & 15, mantissa = code & 7;
  double magnitude = exponent ? std::ldexp(8 + mantissa, exponent - 10) : std::ldexp(mantissa, -9);
  if ((code & 0x7F) == 0x7F) magnitude = std::nan("");
  return code & 0x80 ? -magnitude : magnitude;
}

std::optional<uint8_t> Float8Code(DataType dtype, double number) {
  for (int code = 0; code < 256; ++code) {
    const double candidate = Float8Number(dtype, static_cast<uint8_t>(code));
    const bool is_same = candidate == number && std::signbit(candidate) == std::signbit(number);
    if (is_same || (std::isnan(candidate) && std::isnan(number))) return static_cast<uint8_t>(code);
  }
  return std::nullopt;
}

const std::string* StringOf(const Value& value) {
  const TensorData* data = value.tensor();
  if (!data || !value.type.is_tensor() || value.type.tensor.dtype != DataType::kString) return nullptr;
  return data->strings.size() == 1 ? &data->strings[0] : nullptr;
}

Result<void> CheckTensorData(const TensorType& type, const TensorData& data) {
  const auto count = type.is_static() ? ElementCount(type.shape) : std::nullopt;
  if (!count)
    return Fail(ErrorKind::kCorrupt, fmt::format("{} of a value has no fixed size", TypeText(type)));
  if (type.dtype == DataType::kString) {
    if (data.bytes.empty() && data.strings.size() == static_cast<size_t>(*count)) return {};
    return Fail(ErrorKind::kCorrupt, fmt::format("{} holds {} strings, {} are wanted", TypeText(type),
                                                 data.strings.size(), *count));
  }
  const auto bytes = StorageBytes(type.dtype, *count);
  if (bytes && data.strings.empty() && data.bytes.size() == *bytes) return {};
  return Fail(ErrorKind::kCorrupt, fmt::format("{} holds {} bytes, {} are wanted", TypeText(type),
                                               data.bytes.size(), bytes.value_or(0)));
}

}  // namespace cmforge::mil
