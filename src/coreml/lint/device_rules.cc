// What runs beside the Neural Engine, by the rules of device_plan.h: lookups and counting at a graph's edge are as they
// should be, in its middle they cost a round trip.
#include <set>

#include "coreml/device_plan.h"
#include "coreml/lint/subject.h"

namespace cmforge::coreml::lint {
namespace {

using mil::Operation;

constexpr int64_t kOlderDevices = 16384;  // along any axis

/// Values computed from states or float inputs: the Neural Engine has them. Others follow from positions and ids.
std::set<std::string_view> ComputedValues(const FunctionView& function) {
  std::set<std::string_view> computed;
  for (const mil::NamedType& input : function.function().inputs) {
    if (input.type.is_state() || mil::IsFloat(input.type.tensor.dtype)) computed.insert(input.name);
  }
  for (const Operation& op : function.operations()) {
    bool is_computed = false;
    for (const auto& [parameter, arguments] : op.inputs) {
      for (const mil::Argument& argument : arguments) {
        const auto* name = std::get_if<std::string>(&argument);
        is_computed = is_computed || (name && computed.contains(*name));
      }
    }
    if (!is_computed) continue;
    for (const mil::NamedType& output : op.outputs) computed.insert(output.name);
  }
  return computed;
}

bool UsesAny(const Operation& op, const std::set<std::string_view>& values) {
  for (const auto& [parameter, arguments] : op.inputs) {
    for (const mil::Argument& argument : arguments) {
      const auto* name = std::get_if<std::string>(&argument);
      if (name && values.contains(*name)) return true;
    }
  }
  return false;
}

/// Finitely many shapes are compiled one by one.
bool HasEnumeratedShapesOnly(const ModelSubject& model, const FunctionView& function) {
  const auto view = model.package->model.description.Find(function.name());
  if (!view) return false;
  for (const mil::Feature& feature : *view->inputs) {
    if (feature.array() && !feature.array()->shape_range.empty()) return false;
  }
  return true;
}

void CheckLongAxes(const ModelSubject& model, const FunctionView& function, const Operation& op,
                   Findings& findings) {
  for (const mil::NamedType& output : op.outputs) {
    for (const int64_t dim : output.type.tensor.shape) {
      if (dim <= kOlderDevices) continue;
      findings.Add(rules::kLongAxis, model, function, op,
                   fmt::format("an axis of {}: older devices take {} along any axis", dim, kOlderDevices));
      return;
    }
  }
}

void CheckFunction(const ModelSubject& model, const FunctionView& function, Findings& findings) {
  const std::set<std::string_view> computed = ComputedValues(function);
  const bool is_enumerated = HasEnumeratedShapesOnly(model, function);
  std::map<std::string, int64_t> at_edge;
  const Operation* first_at_edge = nullptr;
  for (const Operation& op : function.operations()) {
    if (IsConstantOperation(op)) continue;
    const Placement placement = PlaceOperation(function, op);
    switch (placement.obstacle) {
      case Obstacle::kNone:
        CheckLongAxes(model, function, op, findings);
        break;
      case Obstacle::kRuntimeGather:
      case Obstacle::kIntegers:
      case Obstacle::kBooleans:
        if (UsesAny(op, computed)) {
          findings.Add(
              rules::kCpuBetween, model, function, op,
              fmt::format("{}: runs on the CPU, between operations of the Neural Engine", placement.reason));
        } else {
          ++at_edge[op.type];
          if (first_at_edge == nullptr) first_at_edge = &op;
        }
        break;
      case Obstacle::kFloat32:
        findings.Add(rules::kFloat32, model, function, op, "fp32: the Neural Engine computes in fp16 only");
        break;
      case Obstacle::kRank:
        findings.Add(rules::kRank, model, function, op, placement.reason + " on the Neural Engine");
        break;
      case Obstacle::kAxis:
        findings.Add(rules::kAxisLimit, model, function, op, placement.reason + " on the Neural Engine");
        break;
      case Obstacle::kRuntimeShape:
        if (!is_enumerated) findings.Add(rules::kRuntimeShape, model, function, op, placement.reason);
        break;
    }
  }
  if (first_at_edge == nullptr) return;
  std::string list;
  for (const auto& [type, count] : at_edge)
    list += fmt::format("{}{} {}", list.empty() ? "" : ", ", count, type);
  findings.Add(rules::kCpuEdge, model, function, *first_at_edge,
               fmt::format("the first of those on the CPU, before the Neural Engine begins: {}", list));
}

}  // namespace

void CheckDevices(const ModelSubject& model, Findings& findings) {
  for (const FunctionView& function : model.functions) {
    if (function.is_ordered()) CheckFunction(model, function, findings);
  }
}

}  // namespace cmforge::coreml::lint
