// A Core ML model: the program and the description of its inputs, outputs and states that callers see.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "mil/program.h"

namespace cmforge::mil {

/// Numbers are those of the protobuf form (kind in the high bits, width in the low ones).
enum class ArrayDataType : uint32_t {
  kFloat32 = 65568,
  kDouble = 65600,
  kInt32 = 131104,
  kInt8 = 131080,
  kFloat16 = 65552,
};
[[nodiscard]] std::optional<DataType> ElementTypeOf(ArrayDataType type);
[[nodiscard]] std::optional<ArrayDataType> ArrayTypeOf(DataType type);

struct SizeRange {
  uint64_t lower = 0;
  int64_t upper = -1;  // -1: no bound
  bool operator==(const SizeRange&) const = default;
};

struct ArrayFeature {
  Shape shape;  // the default one where others are allowed; a scalar input is [1]
  ArrayDataType dtype = ArrayDataType::kFloat32;
  std::vector<Shape> enumerated_shapes;                               // all shapes allowed, or none
  std::vector<SizeRange> shape_range;                                 // one a dimension, or none
  std::optional<std::variant<int32_t, float, double>> default_value;  // of an optional input
  bool operator==(const ArrayFeature&) const = default;
};

/// A feature of a kind that language models do not use (image, dictionary, ...), kept as its bytes.
struct OpaqueFeature {
  std::string type_bytes;
  bool operator==(const OpaqueFeature&) const = default;
};

struct Feature {
  std::string name;
  std::string doc;
  std::variant<ArrayFeature, OpaqueFeature> type;  // of a state: the array it wraps
  bool is_state = false;
  bool is_optional = false;

  [[nodiscard]] const ArrayFeature* array() const { return std::get_if<ArrayFeature>(&type); }
  bool operator==(const Feature&) const = default;
};

struct FunctionDescription {
  std::string name;
  std::vector<Feature> inputs, outputs, states;
  bool operator==(const FunctionDescription&) const = default;
};

struct Metadata {
  std::string short_description, version, author, license;
  NameMap<std::string> user_defined;
  bool operator==(const Metadata&) const = default;
};

struct Description {
  /// A model whose one function is called main uses these and leaves `functions` empty; every other model
  /// the other way round.
  std::vector<Feature> inputs, outputs, states;
  std::vector<FunctionDescription> functions;
  std::string default_function;
  std::string predicted_feature, predicted_probabilities;  // classifiers
  Metadata metadata;

  /// Views of one function's features; `function` empty: the default one. Null when there is none.
  struct View {
    const std::vector<Feature>*inputs, *outputs, *states;
  };
  [[nodiscard]] std::optional<View> Find(std::string_view function) const;
  bool operator==(const Description&) const = default;
};

struct Model {
  int64_t specification_version = 9;  // iOS 18, macOS 15
  Description description;
  bool is_updatable = false;
  Program program;

  /// The function a caller gets that names none.
  [[nodiscard]] std::string DefaultFunction() const;
  bool operator==(const Model&) const = default;
};

/// The description that belongs to a program: features of every function, in the form `Description` asks for.
/// Dimensions unknown to the program must be described by the caller afterwards (enumerated shapes, ranges).
/// Fails: kUnsupported for types a feature cannot have (name and type given).
Result<Description> DescribeProgram(const Program& program, const std::string& default_function = "main");

}  // namespace cmforge::mil
