// Scopes and the checker.
#include "mil/analysis.h"

#include <algorithm>
#include <set>

namespace cmforge::mil {
namespace {

constexpr uint64_t kSmallConstant = 4096;  // bytes of a weight file entry that inference may want to know

Result<void> CheckOutputs(const Operation& op, const std::vector<TensorType>& inferred) {
  if (op.outputs.size() != inferred.size()) {
    return Fail(ErrorKind::kCorrupt,
                fmt::format("{} outputs declared, {} are made", op.outputs.size(), inferred.size()));
  }
  for (size_t i = 0; i < inferred.size(); ++i) {
    const NamedType& declared = op.outputs[i];
    if (!declared.type.is_tensor() || !AreCompatible(declared.type.tensor, inferred[i])) {
      return Fail(ErrorKind::kCorrupt, fmt::format("'{}' is declared {}, its inputs give {}", declared.name,
                                                   TypeText(declared.type), TypeText(inferred[i])));
    }
  }
  return {};
}

/// Where a declared dimension is known and the inferred one is not, the declaration is trusted (and checked
/// when the program runs), and the other way round.
TensorType Merge(const TensorType& inferred, const TensorType& declared) {
  TensorType out = inferred;
  for (size_t i = 0; i < out.shape.size(); ++i) {
    if (out.shape[i] == kUnknownDim) out.shape[i] = declared.shape[i];
  }
  return out;
}

Result<void> CheckWeightReferences(const Operation& op, const Weights& weights) {
  const auto check = [&](const Value& value) -> Result<void> {
    if (!value.blob()) return {};
    CMF_TRY(const Bytes bytes, weights.Data(value));
    (void)bytes;
    return {};
  };
  for (const auto& [name, value] : op.attributes) CMF_CHECK(check(value));
  for (const auto& [name, arguments] : op.inputs) {
    for (const Argument& argument : arguments) {
      if (const auto* value = std::get_if<Value>(&argument)) CMF_CHECK(check(*value));
    }
  }
  return {};
}

Result<void> CheckFeature(const Feature& feature, const NamedType& value, std::string_view what) {
  const ArrayFeature* array = feature.array();
  const auto fail = [&](std::string fact) {
    return Fail(ErrorKind::kCorrupt, fmt::format("{} '{}': {}", what, feature.name, fact));
  };
  const TensorType& tensor = value.type.tensor;
  if (!value.type.is_tensor() && !value.type.is_state())
    return fail(fmt::format("the program has {}", TypeText(value.type)));
  if (feature.is_state != value.type.is_state()) return fail("a state on one side only");
  if (!array) return fail("described as no array");
  if (ElementTypeOf(array->dtype) != tensor.dtype) {
    return fail(fmt::format("described as {}, the program has {}", DataTypeName(*ElementTypeOf(array->dtype)),
                            TypeText(tensor)));
  }
  const bool is_scalar = tensor.shape.empty() && (array->shape.empty() || array->shape == Shape{1});
  const auto fits = [&](const Shape& shape) {
    return is_scalar || std::equal(shape.begin(), shape.end(), tensor.shape.begin(), tensor.shape.end(),
                                   [](int64_t a, int64_t b) { return a == b || b == kUnknownDim; });
  };
  // Outputs whose shape depends on a flexible input may be described without a shape.
  if (array->shape.empty() && what == "output") return {};
  if (!fits(array->shape)) {
    return fail(
        fmt::format("described as {}, the program has {}", ShapeText(array->shape), TypeText(tensor)));
  }
  for (const Shape& shape : array->enumerated_shapes) {
    if (!fits(shape))
      return fail(fmt::format("shape {} is allowed, the program has {}", ShapeText(shape), TypeText(tensor)));
  }
  const auto& shapes = array->enumerated_shapes;
  if (!shapes.empty() && std::find(shapes.begin(), shapes.end(), array->shape) == shapes.end()) {
    return fail(fmt::format("its default shape {} is none of the allowed ones", ShapeText(array->shape)));
  }
  if (!array->shape_range.empty() && array->shape_range.size() != tensor.shape.size()) {
    return fail(fmt::format("{} ranges for {}", array->shape_range.size(), TypeText(tensor)));
  }
  return {};
}

}  // namespace

std::string OperationLabel(const Operation& op) {
  if (!op.outputs.empty()) return fmt::format("{} '{}'", op.type, op.outputs[0].name);
  const auto name = op.attributes.find("name");
  const std::string* text = name == op.attributes.end() ? nullptr : StringOf(name->second);
  return text ? fmt::format("{} '{}'", op.type, *text) : op.type;
}

Result<void> Scope::Define(const std::string& name, Type type, const Value* value, bool is_constant) {
  if (!IsIdentifier(name)) return Fail(ErrorKind::kCorrupt, fmt::format("'{}' is not a valid name", name));
  auto entry = std::make_unique<Entry>();
  entry->type = std::move(type);
  entry->operand = {&entry->type, value, is_constant};
  if (values_.emplace(name, std::move(entry)).second) return {};
  return Fail(ErrorKind::kCorrupt, fmt::format("'{}' is defined twice", name));
}

const Operand* Scope::Find(const std::string& name) const {
  const auto it = values_.find(name);
  return it == values_.end() ? nullptr : &it->second->operand;
}

Operand Scope::Literal(const Value& value, const Weights* weights, Result<void>& status) {
  Operand operand{&value.type, value.blob() ? nullptr : &value, true};
  const bool is_integer = value.type.is_tensor() &&
                          (IsInteger(value.type.tensor.dtype) || value.type.tensor.dtype == DataType::kBool);
  if (!value.blob() || !weights || !is_integer) return operand;
  const auto count = ElementCount(value.type.tensor.shape);
  const auto bytes = count ? StorageBytes(value.type.tensor.dtype, *count) : std::nullopt;
  if (!bytes || *bytes > kSmallConstant) return operand;
  auto contents = weights->Immediate(value, kSmallConstant);
  if (!contents) {
    status = Fail(std::move(contents).error());
    return operand;
  }
  operand.value = Keep(std::move(*contents));
  return operand;
}

Result<OpCall> Scope::Bind(const Operation& op, const Weights* weights) {
  NameMap<std::vector<Operand>> operands;
  Result<void> status;
  for (const auto& [parameter, arguments] : op.inputs) {
    std::vector<Operand>& bound = operands[parameter];
    for (const Argument& argument : arguments) {
      if (const auto* value = std::get_if<Value>(&argument)) {
        bound.push_back(Literal(*value, weights, status));
        CMF_CHECK(std::move(status));
        continue;
      }
      const std::string& name = std::get<std::string>(argument);
      const Operand* operand = Find(name);
      if (!operand)
        return Fail(ErrorKind::kCorrupt,
                    fmt::format("'{}' is not defined (parameter '{}')", name, parameter));
      bound.push_back(*operand);
    }
  }
  // Constants, and compressed constants before iOS 18, hold their parameters as attributes.
  if (op.type == "const" || op.type.starts_with("constexpr_")) {
    for (const auto& [name, value] : op.attributes) {
      if (name == "name") continue;
      operands[name] = {Literal(value, weights, status)};
      CMF_CHECK(std::move(status));
    }
  }
  return OpCall::Bind(op.type, std::move(operands));
}

Result<void> CheckFunction(const std::string& name, const Function& function, const Weights* weights) {
  Scope scope;
  const auto check = [&]() -> Result<void> {
    for (const NamedType& input : function.inputs) CMF_CHECK(scope.Define(input.name, input.type));
    for (const Operation& op : function.body.operations) {
      const auto check_operation = [&]() -> Result<void> {
        CMF_TRY(const OpCall call, scope.Bind(op, weights));
        CMF_TRY(const std::vector<TensorType> inferred, InferTypes(call));
        CMF_CHECK(CheckOutputs(op, inferred));
        if (weights) CMF_CHECK(CheckWeightReferences(op, *weights));
        const bool is_constant = op.type == "const" || call.info().is_constexpr();
        for (size_t i = 0; i < inferred.size(); ++i) {
          const Value* value = op.type == "const" ? call.Get("val").value : nullptr;
          CMF_CHECK(scope.Define(op.outputs[i].name, Merge(inferred[i], op.outputs[i].type.tensor), value,
                                 is_constant));
        }
        return {};
      };
      if (auto status = check_operation(); !status)
        return Fail(std::move(status).error().In(OperationLabel(op)));
    }
    std::set<std::string_view> outputs;
    for (const std::string& output : function.body.outputs) {
      if (!scope.Find(output))
        return Fail(ErrorKind::kCorrupt, fmt::format("output '{}' is not defined", output));
      if (!outputs.insert(output).second)
        return Fail(ErrorKind::kCorrupt, fmt::format("output '{}' occurs twice", output));
    }
    return {};
  };
  if (auto status = check(); !status)
    return Fail(std::move(status).error().In(fmt::format("function '{}'", name)));
  return {};
}

Result<void> CheckDescription(const std::string& name, const Function& function,
                              const Description& description) {
  const auto view = description.Find(name);
  if (!view) return Fail(ErrorKind::kCorrupt, "not described");
  if (std::count_if(description.functions.begin(), description.functions.end(),
                    [&](const FunctionDescription& one) { return one.name == name; }) > 1)
    return Fail(ErrorKind::kCorrupt, "described twice");
  for (const auto* features : {view->inputs, view->states, view->outputs}) {
    std::set<std::string_view> names;
    for (const Feature& feature : *features) {
      if (!names.insert(feature.name).second)
        return Fail(ErrorKind::kCorrupt, fmt::format("'{}' is described twice", feature.name));
    }
  }
  NameMap<const NamedType*> values;
  for (const NamedType& input : function.inputs) values[input.name] = &input;
  const size_t described = view->inputs->size() + view->states->size();
  if (described != function.inputs.size()) {
    return Fail(ErrorKind::kCorrupt, fmt::format("{} inputs and states are described, the program has {}",
                                                 described, function.inputs.size()));
  }
  for (const auto* features : {view->inputs, view->states}) {
    for (const Feature& feature : *features) {
      const auto it = values.find(feature.name);
      if (it == values.end()) {
        return Fail(ErrorKind::kCorrupt,
                    fmt::format("input '{}' is described, the program has none", feature.name));
      }
      CMF_CHECK(CheckFeature(feature, *it->second, "input"));
    }
  }
  for (const Operation& op : function.body.operations) {
    for (const NamedType& output : op.outputs) values[output.name] = &output;
  }
  for (const Feature& feature : *view->outputs) {
    const auto& outputs = function.body.outputs;
    if (std::find(outputs.begin(), outputs.end(), feature.name) == outputs.end()) {
      return Fail(ErrorKind::kCorrupt,
                  fmt::format("output '{}' is described, the program has none", feature.name));
    }
    const auto value = values.find(feature.name);
    if (value == values.end())
      return Fail(ErrorKind::kCorrupt, fmt::format("output '{}' is not defined", feature.name));
    CMF_CHECK(CheckFeature(feature, *value->second, "output"));
  }
  if (view->outputs->size() != function.body.outputs.size()) {
    return Fail(ErrorKind::kCorrupt, fmt::format("{} outputs are described, the program has {}",
                                                 view->outputs->size(), function.body.outputs.size()));
  }
  return {};
}

Result<void> CheckModel(const Model& model, const Weights* weights) {
  for (const auto& [name, function] : model.program.functions) {
    CMF_CHECK(CheckFunction(name, function, weights));
    if (auto status = CheckDescription(name, function, model.description); !status) {
      return Fail(std::move(status).error().In(fmt::format("function '{}': description", name)));
    }
  }
  const std::string main = model.DefaultFunction();
  if (!model.program.functions.contains(main)) {
    return Fail(ErrorKind::kCorrupt, fmt::format("default function '{}' is not in the program", main));
  }
  return {};
}

}  // namespace cmforge::mil
