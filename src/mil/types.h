// The types of Core ML programs: element types with their protobuf numbers and text names, and the type
// terms built of them (tensor, list, tuple, dictionary, state).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/tensor_source.h"

namespace cmforge::mil {

/// Numbers are those of the protobuf form.
enum class DataType : uint8_t {
  kBool = 1,
  kString = 2,
  kFloat16 = 10,
  kFloat32 = 11,
  kFloat64 = 12,
  kBFloat16 = 13,
  kInt8 = 21,
  kInt16 = 22,
  kInt32 = 23,
  kInt64 = 24,
  kInt4 = 25,
  kUInt8 = 31,
  kUInt16 = 32,
  kUInt32 = 33,
  kUInt64 = 34,
  kUInt4 = 35,
  kUInt2 = 36,
  kUInt1 = 37,
  kUInt6 = 38,
  kUInt3 = 39,
  kFloat8E4M3FN = 40,
  kFloat8E5M2 = 41,
};

[[nodiscard]] std::string_view DataTypeName(DataType type);  // "fp16", as in model.mil
[[nodiscard]] std::optional<DataType> DataTypeFromName(std::string_view name);
[[nodiscard]] std::optional<DataType> DataTypeFromNumber(uint64_t number);

[[nodiscard]] int BitsOf(DataType type);  // bits an element takes when stored; bool 8, string 0
[[nodiscard]] bool IsFloat(DataType type);
[[nodiscard]] bool IsInteger(DataType type);  // signed, unsigned and sub-byte; not bool
[[nodiscard]] bool IsSigned(DataType type);   // of an integer type
[[nodiscard]] inline bool IsSubByte(DataType type) { return BitsOf(type) > 0 && BitsOf(type) < 8; }

/// Bytes of `count` elements, sub-byte ones packed. Nothing for strings, negative counts and overflow.
[[nodiscard]] std::optional<uint64_t> StorageBytes(DataType type, int64_t count);

/// A dimension that is only known when the program runs ("?").
inline constexpr int64_t kUnknownDim = -1;

struct TensorType {
  DataType dtype = DataType::kFloat32;
  Shape shape;  // empty: a scalar

  [[nodiscard]] int64_t rank() const { return static_cast<int64_t>(shape.size()); }
  [[nodiscard]] bool is_static() const;
  bool operator==(const TensorType&) const = default;
};

/// Equal element type and rank, and equal dimensions wherever both are known.
[[nodiscard]] bool AreCompatible(const TensorType& a, const TensorType& b);

struct Type {
  enum class Kind : uint8_t { kTensor, kList, kTuple, kDictionary, kState };

  Kind kind = Kind::kTensor;
  TensorType tensor;                  // kTensor, and the wrapped tensor of kState
  std::vector<Type> parts;            // list: element; tuple: members; dictionary: key, value
  int64_t list_length = kUnknownDim;  // kList

  Type() = default;
  Type(TensorType t) : tensor(std::move(t)) {}  // NOLINT: a tensor type is a type
  Type(DataType dtype, Shape shape) : tensor{dtype, std::move(shape)} {}

  [[nodiscard]] static Type State(TensorType wrapped);
  [[nodiscard]] static Type List(Type element, int64_t length = kUnknownDim);
  [[nodiscard]] static Type Tuple(std::vector<Type> members);
  [[nodiscard]] static Type Dictionary(Type key, Type value);

  [[nodiscard]] bool is_tensor() const { return kind == Kind::kTensor; }
  [[nodiscard]] bool is_state() const { return kind == Kind::kState; }
  bool operator==(const Type&) const = default;
};

/// As model.mil writes it: "tensor<fp16, [1, ?]>", "int32", "state<tensor<fp16, [2, 4]>>".
[[nodiscard]] std::string TypeText(const TensorType& type);
[[nodiscard]] std::string TypeText(const Type& type);

}  // namespace cmforge::mil
