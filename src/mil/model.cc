// Descriptions looked up, and derived from programs.
#include "mil/model.h"

namespace cmforge::mil {
namespace {

Result<Feature> FeatureFor(const std::string& function, const NamedType& value) {
  const TensorType& tensor = value.type.tensor;
  const auto dtype = ArrayTypeOf(tensor.dtype);
  if ((!value.type.is_tensor() && !value.type.is_state()) || !dtype) {
    return Fail(ErrorKind::kUnsupported, fmt::format("function '{}': '{}' is {}, which no feature can hold",
                                                     function, value.name, TypeText(value.type)));
  }
  ArrayFeature array;
  array.dtype = *dtype;
  if (tensor.is_static()) array.shape = tensor.shape.empty() ? Shape{1} : tensor.shape;
  Feature feature;
  feature.name = value.name;
  feature.type = std::move(array);
  feature.is_state = value.type.is_state();
  return feature;
}

Result<FunctionDescription> DescribeFunction(const std::string& name, const Function& function) {
  FunctionDescription out;
  out.name = name;
  NameMap<const Type*> types;
  for (const NamedType& input : function.inputs) {
    types[input.name] = &input.type;
    CMF_TRY(Feature feature, FeatureFor(name, input));
    (feature.is_state ? out.states : out.inputs).push_back(std::move(feature));
  }
  for (const Operation& op : function.body.operations) {
    for (const NamedType& output : op.outputs) types[output.name] = &output.type;
  }
  for (const std::string& output : function.body.outputs) {
    const auto it = types.find(output);
    if (it == types.end()) {
      return Fail(ErrorKind::kCorrupt,
                  fmt::format("function '{}': output '{}' is not defined", name, output));
    }
    CMF_TRY(Feature feature, FeatureFor(name, NamedType{output, *it->second}));
    if (it->second->tensor.shape.empty()) std::get<ArrayFeature>(feature.type).shape.clear();
    out.outputs.push_back(std::move(feature));
  }
  return out;
}

}  // namespace

std::optional<DataType> ElementTypeOf(ArrayDataType type) {
  switch (type) {
    case ArrayDataType::kFloat32:
      return DataType::kFloat32;
    case ArrayDataType::kDouble:
      return DataType::kFloat64;
    case ArrayDataType::kInt32:
      return DataType::kInt32;
    case ArrayDataType::kInt8:
      return DataType::kInt8;
    case ArrayDataType::kFloat16:
      return DataType::kFloat16;
  }
  return std::nullopt;
}

std::optional<ArrayDataType> ArrayTypeOf(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return ArrayDataType::kFloat32;
    case DataType::kFloat64:
      return ArrayDataType::kDouble;
    case DataType::kInt32:
      return ArrayDataType::kInt32;
    case DataType::kInt8:
      return ArrayDataType::kInt8;
    case DataType::kFloat16:
      return ArrayDataType::kFloat16;
    default:
      return std::nullopt;
  }
}

std::optional<Description::View> Description::Find(std::string_view function) const {
  if (functions.empty()) {
    if (!function.empty() && function != "main") return std::nullopt;
    return View{&inputs, &outputs, &states};
  }
  if (function.empty()) function = default_function;
  for (const FunctionDescription& f : functions) {
    if (f.name == function) return View{&f.inputs, &f.outputs, &f.states};
  }
  return std::nullopt;
}

std::string Model::DefaultFunction() const {
  if (!description.default_function.empty()) return description.default_function;
  if (program.functions.size() == 1) return program.functions.begin()->first;
  return "main";
}

Result<Description> DescribeProgram(const Program& program, const std::string& default_function) {
  Description out;
  for (const auto& [name, function] : program.functions) {
    CMF_TRY(FunctionDescription described, DescribeFunction(name, function));
    out.functions.push_back(std::move(described));
  }
  if (out.functions.size() == 1 && out.functions[0].name == "main") {
    out.inputs = std::move(out.functions[0].inputs);
    out.outputs = std::move(out.functions[0].outputs);
    out.states = std::move(out.functions[0].states);
    out.functions.clear();
    return out;
  }
  if (!program.functions.contains(default_function)) {
    return Fail(ErrorKind::kUsage,
                fmt::format("default function '{}' is not in the program", default_function));
  }
  out.default_function = default_function;
  return out;
}

}  // namespace cmforge::mil
