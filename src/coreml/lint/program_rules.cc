// What every reader of programs demands: a program that holds together, described as it is, in a version that has
// all it uses.
#include <algorithm>
#include <set>

#include "coreml/lint/subject.h"

namespace cmforge::coreml::lint {
namespace {

using mil::Opset;

/// What needs a version: the least opset and what of it.
struct Need {
  Opset opset = Opset::kIos15;
  std::string what;

  void Widen(Opset wanted, std::string reason) {
    if (wanted > opset) *this = {wanted, std::move(reason)};
  }
};

constexpr std::string_view kOfIos18[] = {"read_state",
                                         "write_state",
                                         "slice_update",
                                         "scaled_dot_product_attention",
                                         "constexpr_blockwise_shift_scale",
                                         "constexpr_lut_to_sparse",
                                         "constexpr_sparse_blockwise_shift_scale"};

int64_t SpecificationOf(Opset opset) { return static_cast<int64_t>(opset) + 1; }

Need NeedOf(const FunctionView& function) {
  Need need;
  for (const mil::NamedType& input : function.function().inputs) {
    if (input.type.is_state()) need.Widen(Opset::kIos18, "states");
  }
  for (const mil::Operation& op : function.operations()) {
    if (std::find(std::begin(kOfIos18), std::end(kOfIos18), op.type) != std::end(kOfIos18))
      need.Widen(Opset::kIos18, op.type);
    // Parameters of compressed constants are attributes before iOS 18.
    if (op.type.starts_with("constexpr_") && !op.inputs.empty() && op.type != "constexpr_cast")
      need.Widen(Opset::kIos18, op.type + " with bound parameters");
    for (const mil::NamedType& output : op.outputs) {
      if (op.type == "const" && mil::IsSubByte(output.type.tensor.dtype))
        need.Widen(Opset::kIos18, fmt::format("constants of {}", DataTypeName(output.type.tensor.dtype)));
    }
  }
  return need;
}

void CheckVersion(const ModelSubject& model, Findings& findings) {
  const mil::Model& m = model.package->model;
  int64_t wanted = m.program.functions.size() > 1 ? SpecificationOf(Opset::kIos18) : 6;
  std::string what = fmt::format("{} functions", m.program.functions.size());
  const auto want = [&](int64_t version, const std::string& reason) {
    if (version > wanted) {
      wanted = version;
      what = reason;
    }
  };
  for (const FunctionView& function : model.functions) {
    const Opset opset = function.function().opset;
    want(SpecificationOf(opset), fmt::format("opset {} of function '{}'", OpsetTag(opset), function.name()));
    const Need need = NeedOf(function);
    if (need.opset > opset) {
      findings.Add(rules::kVersion, model, function,
                   fmt::format("{} came with {}, the function is written in {}", need.what,
                               OpsetTag(need.opset), OpsetTag(opset)));
    }
    want(SpecificationOf(need.opset), need.what);
    const auto view = m.description.Find(function.name());
    if (!view) continue;
    int64_t enumerated = 0;
    for (const auto* features : {view->inputs, view->outputs}) {
      for (const mil::Feature& feature : *features) {
        const mil::ArrayFeature* array = feature.array();
        if (!array) continue;
        if (array->dtype == mil::ArrayDataType::kFloat16) want(7, fmt::format("fp16 '{}'", feature.name));
        if (array->dtype == mil::ArrayDataType::kInt8) want(10, fmt::format("int8 '{}'", feature.name));
        enumerated += features == view->inputs && !array->enumerated_shapes.empty();
      }
    }
    if (enumerated > 1) want(9, fmt::format("{} inputs of enumerated shapes", enumerated));
  }
  if (m.specification_version < wanted) {
    findings.Add(rules::kVersion, model,
                 fmt::format("specification version {}, {} needs {}", m.specification_version, what, wanted));
  }
}

bool RemovePrefix(std::string& text, const std::string& prefix) {
  if (!text.starts_with(prefix)) return false;
  text.erase(0, prefix.size());
  return true;
}

/// A constant of it is not where it should be: the file is not there, is cut, or is another one.
bool LacksWeights(const mil::Operation& op, const mil::Weights& weights) {
  bool is_lost = false;
  ForEachValue(op, [&](const auto&, const mil::Value& value) {
    is_lost = is_lost || (value.blob() && !weights.Data(value));
  });
  return is_lost;
}

/// The message without function and operation, which a finding names apart.
void AddFault(const ModelSubject& model, const FunctionView& function, const Error& error,
              Findings& findings) {
  std::string reason = error.message;
  RemovePrefix(reason, fmt::format("function '{}': ", function.name()));
  const bool is_unknown = error.kind == ErrorKind::kUnsupported && function.is_ordered();
  const Rule& rule = is_unknown ? rules::kUnknownOperation : rules::kProgram;
  for (const mil::Operation& op : function.function().body.operations) {
    if (!RemovePrefix(reason, mil::OperationLabel(op) + ": ")) continue;
    const bool lacks_weights = LacksWeights(op, *model.package->weights);
    findings.Add(lacks_weights ? rules::kWeightFile : rule, model, function, op, std::move(reason));
    return;
  }
  findings.Add(rule, model, function, std::move(reason));
}

void CheckOpenShapes(const ModelSubject& model, const FunctionView& function, Findings& findings) {
  const auto view = model.package->model.description.Find(function.name());
  if (!view) return;
  for (const mil::Feature& feature : *view->inputs) {
    const mil::NamedType* input = function.Input(feature.name);
    const mil::ArrayFeature* array = feature.array();
    if (!input || !array || input->type.tensor.is_static()) continue;
    if (array->enumerated_shapes.empty() && array->shape_range.empty()) {
      findings.Add(rules::kOpenShape, model, function,
                   fmt::format("input '{}' is {} and no allowed shapes are described", feature.name,
                               TypeText(input->type)));
    }
  }
}

}  // namespace

void CheckProgram(const ModelSubject& model, Findings& findings) {
  const mil::Model& m = model.package->model;
  for (const FunctionView& function : model.functions) {
    if (auto status = CheckFunction(function.name(), function.function(), model.package->weights.get());
        !status)
      AddFault(model, function, status.error(), findings);
    if (!function.is_ordered()) continue;  // reported; outputs may name nothing
    if (auto status = CheckDescription(function.name(), function.function(), m.description); !status)
      findings.Add(rules::kDescription, model, function, status.error().message);
    CheckOpenShapes(model, function, findings);
    for (const mil::Operation& op : function.operations()) {
      if (IsConstantOperation(op)) continue;
      for (const mil::NamedType& output : op.outputs) {
        if (output.type.is_tensor() && mil::IsSubByte(output.type.tensor.dtype)) {
          findings.Add(rules::kSubByteValue, model, function, op,
                       fmt::format("its result is {}: no such value exists at run time",
                                   DataTypeName(output.type.tensor.dtype)));
        }
      }
    }
  }
  const std::string main = m.DefaultFunction();
  if (!m.program.functions.contains(main)) {
    findings.Add(rules::kDescription, model,
                 fmt::format("the default function '{}' is not in the program", main));
  }
  CheckVersion(model, findings);
}

}  // namespace cmforge::coreml::lint
