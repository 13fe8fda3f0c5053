// States: which shapes the Neural Engine takes, and how functions must declare, read and update them.
#include <map>
#include <set>

#include "coreml/lint/subject.h"

namespace cmforge::coreml::lint {
namespace {

using mil::Operation;

constexpr int64_t kAlignment = 32;
constexpr int64_t kMaxDim1 = 1024;
constexpr int64_t kLargeRows = 32;  // of an update
constexpr int64_t kSmallHead = 64;  // head dims below it
constexpr int64_t kLeastContext = 256;

// ---- shapes, once for every state of the model

void CheckShape(const ModelSubject& model, const std::string& name, const mil::TensorType& type,
                Findings& findings) {
  const Shape& shape = type.shape;
  if (type.dtype != mil::DataType::kFloat16 || !type.is_static() || shape.empty()) {
    findings.Add(rules::kStateType, model, fmt::format("state '{}' is {}", name, TypeText(type)));
    return;
  }
  if (shape.back() == 3) {
    findings.Add(rules::kStateTrailing3, model,
                 fmt::format("state '{}' {} ends in an axis of 3: the Neural Engine fails when it runs", name,
                             ShapeText(shape)));
  } else if (shape.back() % kAlignment != 0) {
    findings.Add(
        rules::kStateWidth, model,
        fmt::format(
            "state '{}' {}: its last axis is no multiple of {}, which is reported to fail on the Neural "
            "Engine (270 did, 256 did not)",
            name, ShapeText(shape), kAlignment));
  }
  if (shape.size() == 4 && shape[2] % kAlignment != 0) {
    findings.Add(rules::kStateLength, model,
                 fmt::format("state '{}' {}: {} positions are no multiple of {}", name, ShapeText(shape),
                             shape[2], kAlignment));
  }
  if (shape.size() > 1 && shape[1] > kMaxDim1) {
    findings.Add(
        rules::kStateDim1, model,
        fmt::format("state '{}' {}: axis 1 above {} is reported to fail", name, ShapeText(shape), kMaxDim1));
  }
}

// ---- over functions

void CheckDeclarations(const ModelSubject& model, Findings& findings) {
  std::map<std::string, mil::TensorType> states;
  for (const FunctionView& function : model.functions) {
    for (const mil::NamedType& input : function.function().inputs) {
      if (!input.type.is_state()) continue;
      const auto [it, is_new] = states.emplace(input.name, input.type.tensor);
      if (!is_new && !(it->second == input.type.tensor)) {
        findings.Add(rules::kStatesDiffer, model, function,
                     fmt::format("state '{}' is {}, another function has {}", input.name,
                                 TypeText(input.type.tensor), TypeText(it->second)));
      }
    }
  }
  if (states.empty()) return;
  std::set<Shape> shapes;
  for (const auto& [name, type] : states) {
    CheckShape(model, name, type, findings);
    shapes.insert(type.shape);
  }
  if (shapes.size() > 1) {
    findings.Add(rules::kMixedStates, model,
                 fmt::format("{} states of {} shapes: known to make trouble on M1 and A14", states.size(),
                             shapes.size()));
  }
  findings.Add(rules::kCpuOnly, model, "fp16 states: Core ML restricted to the CPU answers NaN");
  for (const FunctionView& function : model.functions) {
    std::set<std::string_view> read;
    for (const Operation& op : function.operations()) {
      if (const std::string* state = op.type == "read_state" ? FunctionView::Name(op, "input") : nullptr)
        read.insert(*state);
    }
    for (const auto& [name, type] : states) {
      if (!function.Input(name)) {
        findings.Add(rules::kStateUnread, model, function, fmt::format("does not declare state '{}'", name));
      } else if (!read.contains(name)) {
        findings.Add(rules::kStateUnread, model, function,
                     fmt::format("never reads state '{}': Core ML does not load that", name));
      }
    }
  }
}

/// Of functions that serve one conversation, what one stores the others must not lose.
void CheckWrites(const ModelSubject& model, Findings& findings) {
  std::map<std::string, std::set<std::string>> writers;  // functions by state
  for (const FunctionView& function : model.functions) {
    for (const Operation& op : function.function().body.operations) {
      if (const std::string* state = op.type == "write_state" ? FunctionView::Name(op, "input") : nullptr)
        writers[*state].insert(function.name());
    }
  }
  for (const FunctionView& function : model.functions) {
    for (const auto& [state, functions] : writers) {
      if (!function.Input(state) || functions.contains(function.name())) continue;
      findings.Add(rules::kStateUnwritten, model, function,
                   fmt::format("never writes state '{}', which '{}' does: what it was fed is lost", state,
                               *functions.begin()));
    }
  }
}

// ---- updates

/// The numbers of a begin vector, as far as they are known: a constant, or a concatenation of some.
std::vector<std::optional<int64_t>> Begin(const FunctionView& function, const Operation& op) {
  std::vector<std::optional<int64_t>> out;
  if (const auto known = function.Integers(op, "begin")) {
    out.assign(known->begin(), known->end());
    return out;
  }
  const Operation* concat = function.MakerOf(op, "begin");
  if (!concat || concat->type != "concat") return out;
  const auto values = concat->inputs.find("values");
  if (values == concat->inputs.end()) return out;
  for (const mil::Argument& argument : values->second) {
    const auto* name = std::get_if<std::string>(&argument);
    const mil::Value* value = name ? nullptr : &std::get<mil::Value>(argument);
    if (const Operation* maker = name ? function.Maker(*name) : nullptr; maker && maker->type == "const") {
      const auto val = maker->attributes.find("val");
      if (val != maker->attributes.end()) value = &val->second;
    }
    if (const auto known = value ? mil::IntegersOf(*value) : std::nullopt) {
      out.insert(out.end(), known->begin(), known->end());
    } else {
      out.emplace_back();  // one position, known at run time
    }
  }
  return out;
}

/// The state that an update changes a copy of.
const std::string* StateOf(const FunctionView& function, const Operation& update) {
  const Operation* op = &update;
  while (op && op->type == "slice_update") op = function.MakerOf(*op, "x");
  return op && op->type == "read_state" ? FunctionView::Name(*op, "input") : nullptr;
}

void CheckUpdates(const ModelSubject& model, const FunctionView& function, Findings& findings) {
  struct Row {
    std::string_view state;
    int64_t row;
    auto operator<=>(const Row&) const = default;
  };
  std::map<Row, int64_t> single_heads;  // axis 1 of the first update
  for (const Operation& op : function.operations()) {
    const std::string* state = op.type == "slice_update" ? StateOf(function, op) : nullptr;
    const mil::TensorType* update = state ? function.TypeOf(op, "update") : nullptr;
    if (!update || update->rank() < 2) continue;
    const int64_t rows = update->shape.end()[-2], width = update->shape.back();
    if (rows > kLargeRows && width < kSmallHead && !function.Integers(op, "begin")) {
      findings.Add(
          rules::kLargeUpdate, model, function, op,
          fmt::format(
              "{} rows of {} at once: updates of more than {} rows of small heads are reported to fail", rows,
              width, kLargeRows));
    }
    const mil::TensorType* whole = function.TypeOf(*state);
    const auto begin = Begin(function, op);
    if (!whole || whole->rank() < 3 || update->rank() != whole->rank() || update->shape[1] != 1 ||
        whole->shape[1] <= 1 || begin.size() < 2 || !begin[0] || !begin[1])
      continue;
    const auto [it, is_new] = single_heads.emplace(Row{*state, *begin[0]}, *begin[1]);
    if (!is_new && it->second != *begin[1]) {
      findings.Add(
          rules::kSingleHeadUpdates, model, function, op,
          fmt::format("row {} of state '{}' is updated twice, one head each: that does not compile for the "
                      "Neural Engine",
                      *begin[0], *state));
    }
  }
}

void CheckInputs(const ModelSubject& model, const FunctionView& function, Findings& findings) {
  bool has_state = false;
  for (const mil::NamedType& input : function.function().inputs) has_state |= input.type.is_state();
  const auto view = model.package->model.description.Find(function.name());
  if (has_state && view) {
    for (const mil::Feature& feature : *view->inputs) {
      const mil::ArrayFeature* array = feature.array();
      if (array && (array->enumerated_shapes.size() > 1 || !array->shape_range.empty())) {
        findings.Add(
            rules::kFlexibleState, model, function,
            fmt::format(
                "input '{}' allows several shapes and there are states: such models fall back to the CPU",
                feature.name));
      }
    }
  }
  const mil::NamedType* mask = function.Input("causal_mask");
  if (mask && mask->type.is_tensor() && !mask->type.tensor.shape.empty()) {
    const int64_t context = mask->type.tensor.shape.back();
    if (context > 0 && context < kLeastContext) {
      findings.Add(rules::kShortContext, model, function,
                   fmt::format("a context of {}: ANEMLL warns below {}", context, kLeastContext));
    }
  }
}

}  // namespace

void CheckStates(const ModelSubject& model, Findings& findings) {
  CheckDeclarations(model, findings);
  CheckWrites(model, findings);
  for (const FunctionView& function : model.functions) {
    CheckInputs(model, function, findings);
    if (function.is_ordered()) CheckUpdates(model, function, findings);
  }
}

}  // namespace cmforge::coreml::lint
