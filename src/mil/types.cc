// Names, widths and text of program types.
#include "mil/types.h"

#include <algorithm>
#include <array>

#include "base/bytes.h"

namespace cmforge::mil {
namespace {

enum class Family : uint8_t { kOther, kFloat, kSigned, kUnsigned };

struct DataTypeRow {
  DataType type;
  std::string_view name;
  uint8_t bits;
  Family family;
};

constexpr std::array kDataTypes = std::to_array<DataTypeRow>({
    {DataType::kBool, "bool", 8, Family::kOther},
    {DataType::kString, "string", 0, Family::kOther},
    {DataType::kFloat16, "fp16", 16, Family::kFloat},
    {DataType::kFloat32, "fp32", 32, Family::kFloat},
    {DataType::kFloat64, "fp64", 64, Family::kFloat},
    {DataType::kBFloat16, "bf16", 16, Family::kFloat},
    {DataType::kInt8, "int8", 8, Family::kSigned},
    {DataType::kInt16, "int16", 16, Family::kSigned},
    {DataType::kInt32, "int32", 32, Family::kSigned},
    {DataType::kInt64, "int64", 64, Family::kSigned},
    {DataType::kInt4, "int4", 4, Family::kSigned},
    {DataType::kUInt8, "uint8", 8, Family::kUnsigned},
    {DataType::kUInt16, "uint16", 16, Family::kUnsigned},
    {DataType::kUInt32, "uint32", 32, Family::kUnsigned},
    {DataType::kUInt64, "uint64", 64, Family::kUnsigned},
    {DataType::kUInt4, "uint4", 4, Family::kUnsigned},
    {DataType::kUInt2, "uint2", 2, Family::kUnsigned},
    {DataType::kUInt1, "uint1", 1, Family::kUnsigned},
    {DataType::kUInt6, "uint6", 6, Family::kUnsigned},
    {DataType::kUInt3, "uint3", 3, Family::kUnsigned},
    {DataType::kFloat8E4M3FN, "fp8e4m3fn", 8, Family::kFloat},
    {DataType::kFloat8E5M2, "fp8e5m2", 8, Family::kFloat},
});

const DataTypeRow& RowOf(DataType type) {
  for (const DataTypeRow& row : kDataTypes) {
    if (row.type == type) return row;
  }
  return kDataTypes[0];  // unreachable: enumerators come from this table
}

std::string DimText(int64_t dim) { return dim == kUnknownDim ? "?" : std::to_string(dim); }

}  // namespace

std::string_view DataTypeName(DataType type) { return RowOf(type).name; }

std::optional<DataType> DataTypeFromName(std::string_view name) {
  for (const DataTypeRow& row : kDataTypes) {
    if (row.name == name) return row.type;
  }
  return std::nullopt;
}

std::optional<DataType> DataTypeFromNumber(uint64_t number) {
  for (const DataTypeRow& row : kDataTypes) {
    if (static_cast<uint64_t>(row.type) == number) return row.type;
  }
  return std::nullopt;
}

int BitsOf(DataType type) { return RowOf(type).bits; }
bool IsFloat(DataType type) { return RowOf(type).family == Family::kFloat; }
bool IsSigned(DataType type) { return RowOf(type).family == Family::kSigned; }
bool IsInteger(DataType type) { return IsSigned(type) || RowOf(type).family == Family::kUnsigned; }

std::optional<uint64_t> StorageBytes(DataType type, int64_t count) {
  const int bits = BitsOf(type);
  if (bits == 0 || count < 0) return std::nullopt;
  const auto total = CheckedMul(static_cast<uint64_t>(count), static_cast<uint64_t>(bits));
  if (!total || *total > ~uint64_t{0} - 7) return std::nullopt;
  return (*total + 7) / 8;
}

bool TensorType::is_static() const {
  return std::none_of(shape.begin(), shape.end(), [](int64_t d) { return d == kUnknownDim; });
}

bool AreCompatible(const TensorType& a, const TensorType& b) {
  return a.dtype == b.dtype &&
         std::equal(a.shape.begin(), a.shape.end(), b.shape.begin(), b.shape.end(),
                    [](int64_t x, int64_t y) { return x == y || x == kUnknownDim || y == kUnknownDim; });
}

Type Type::State(TensorType wrapped) {
  Type type(std::move(wrapped));
  type.kind = Kind::kState;
  return type;
}

Type Type::List(Type element, int64_t length) {
  Type type;
  type.kind = Kind::kList;
  type.parts.push_back(std::move(element));
  type.list_length = length;
  return type;
}

Type Type::Tuple(std::vector<Type> members) {
  Type type;
  type.kind = Kind::kTuple;
  type.parts = std::move(members);
  return type;
}

Type Type::Dictionary(Type key, Type value) {
  Type type;
  type.kind = Kind::kDictionary;
  type.parts.push_back(std::move(key));
  type.parts.push_back(std::move(value));
  return type;
}

std::string TypeText(const TensorType& type) {
  std::string name(DataTypeName(type.dtype));
  if (type.shape.empty()) return name;
  std::string text = "tensor<" + name + ", [";
  for (size_t i = 0; i < type.shape.size(); ++i) text += (i ? ", " : "") + DimText(type.shape[i]);
  return text + "]>";
}

std::string TypeText(const Type& type) {
  switch (type.kind) {
    case Type::Kind::kTensor:
      return TypeText(type.tensor);
    case Type::Kind::kState:
      return "state<" + TypeText(type.tensor) + ">";
    case Type::Kind::kList:
      return "list<" + TypeText(type.parts[0]) + ", " + DimText(type.list_length) + ">";
    case Type::Kind::kDictionary:
      return "dict<" + TypeText(type.parts[0]) + ", " + TypeText(type.parts[1]) + ">";
    case Type::Kind::kTuple:
      break;
  }
  std::string text = "tuple<";
  for (size_t i = 0; i < type.parts.size(); ++i) text += (i ? ", " : "") + TypeText(type.parts[i]);
  return text + ">";
}

}  // namespace cmforge::mil
