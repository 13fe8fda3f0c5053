// The index of a function's values.
#include "coreml/function_view.h"

#include <algorithm>
#include <set>

namespace cmforge::coreml {

using mil::Operation;

FunctionView::FunctionView(std::string name, const mil::Function& function)
    : name_(std::move(name)), function_(&function) {
  const auto define = [&](const mil::NamedType& value, const Operation* maker) {
    Entry& entry = values_[value.name];
    is_ordered_ = is_ordered_ && !entry.type && entry.users.empty();
    entry.maker = maker;
    entry.type = &value.type.tensor;
  };
  for (const mil::NamedType& input : function.inputs) define(input, nullptr);
  for (const Operation& op : function.body.operations) {
    for (const auto& [parameter, arguments] : op.inputs) {
      for (const mil::Argument& argument : arguments) {
        if (const auto* value = std::get_if<std::string>(&argument))
          values_[*value].users.push_back({&op, parameter});
      }
    }
    for (const mil::NamedType& output : op.outputs) define(output, &op);
  }
}

const Operation* FunctionView::Maker(std::string_view value) const {
  const auto it = values_.find(value);
  return it == values_.end() ? nullptr : it->second.maker;
}

const std::vector<FunctionView::Use>& FunctionView::Users(std::string_view value) const {
  static const std::vector<Use> kNone;
  const auto it = values_.find(value);
  return it == values_.end() ? kNone : it->second.users;
}

const mil::TensorType* FunctionView::TypeOf(std::string_view value) const {
  const auto it = values_.find(value);
  return it == values_.end() ? nullptr : it->second.type;
}

const mil::NamedType* FunctionView::Input(std::string_view name) const {
  const auto& inputs = function_->inputs;
  const auto it = std::find_if(inputs.begin(), inputs.end(), [&](const auto& i) { return i.name == name; });
  return it == inputs.end() ? nullptr : &*it;
}

const std::string* FunctionView::Name(const Operation& op, std::string_view parameter) {
  const auto it = op.inputs.find(parameter);
  return it == op.inputs.end() || it->second.empty() ? nullptr : std::get_if<std::string>(&it->second[0]);
}

const mil::TensorType* FunctionView::TypeOf(const Operation& op, std::string_view parameter) const {
  if (const std::string* name = Name(op, parameter)) return TypeOf(*name);
  const auto it = op.inputs.find(parameter);
  if (it == op.inputs.end() || it->second.empty()) return nullptr;
  return &std::get<mil::Value>(it->second[0]).type.tensor;
}

const Operation* FunctionView::MakerOf(const Operation& op, std::string_view parameter) const {
  const std::string* name = Name(op, parameter);
  return name ? Maker(*name) : nullptr;
}

const mil::Value* FunctionView::Constant(const Operation& op, std::string_view parameter) const {
  if (const std::string* name = Name(op, parameter)) {
    const Operation* maker = Maker(*name);
    if (!maker || maker->type != "const") return nullptr;
    const auto val = maker->attributes.find("val");
    return val == maker->attributes.end() ? nullptr : &val->second;
  }
  const auto it = op.inputs.find(parameter);
  if (it == op.inputs.end() || it->second.empty()) return nullptr;
  return &std::get<mil::Value>(it->second[0]);
}

std::optional<std::vector<int64_t>> FunctionView::Integers(const Operation& op,
                                                           std::string_view parameter) const {
  const mil::Value* value = Constant(op, parameter);
  return value ? mil::IntegersOf(*value) : std::nullopt;
}

std::optional<double> FunctionView::Number(const Operation& op, std::string_view parameter) const {
  const mil::Value* value = Constant(op, parameter);
  const auto numbers = value ? mil::FloatsOf(*value) : std::nullopt;
  if (!numbers || numbers->empty()) return std::nullopt;
  for (const double number : *numbers) {
    if (number != numbers->front()) return std::nullopt;
  }
  return numbers->front();
}

bool IsConstantOperation(const Operation& op) {
  return op.type == "const" || op.type.starts_with("constexpr_");
}

bool IsViewOperation(const Operation& op) {
  return op.type == "reshape" || op.type == "transpose" || op.type == "squeeze" || op.type == "expand_dims" ||
         op.type == "identity";
}

const Operation* MakerBehindViews(const FunctionView& function, std::string_view value) {
  const Operation* op = function.Maker(value);
  while (op && IsViewOperation(*op)) op = function.MakerOf(*op, "x");
  return op;
}

std::vector<FunctionView::Use> UsersBehindViews(const FunctionView& function, std::string_view value) {
  std::vector<FunctionView::Use> out;
  std::vector<std::string_view> open{value};
  while (!open.empty()) {
    const std::string_view name = open.back();
    open.pop_back();
    for (const FunctionView::Use& use : function.Users(name)) {
      if (IsViewOperation(*use.op) && use.parameter == "x" && !use.op->outputs.empty()) {
        open.push_back(use.op->outputs[0].name);
      } else {
        out.push_back(use);
      }
    }
  }
  return out;
}

std::vector<FunctionView::Use> ConsumersOf(const FunctionView& function, const Operation& op) {
  std::vector<FunctionView::Use> out;
  std::set<const Operation*> seen;
  std::vector<const Operation*> open{&op};
  while (!open.empty()) {
    const Operation& next = *open.back();
    open.pop_back();
    if (next.outputs.size() != 1 || !seen.insert(&next).second) continue;
    for (const FunctionView::Use& use : UsersBehindViews(function, next.outputs[0].name)) {
      if (IsConstantOperation(*use.op)) {
        open.push_back(use.op);
      } else {
        out.push_back(use);
      }
    }
  }
  return out;
}

}  // namespace cmforge::coreml
