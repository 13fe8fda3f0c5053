// One function with an index of its values: who makes each, who uses it, what is known of it.
#pragma once

#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "mil/program.h"

namespace cmforge::coreml {

class FunctionView {
 public:
  struct Use {
    const mil::Operation* op = nullptr;
    std::string_view parameter;
  };

  /// `function` must outlive the view.
  FunctionView(std::string name, const mil::Function& function);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const mil::Function& function() const { return *function_; }
  [[nodiscard]] const std::vector<mil::Operation>& operations() const { return function_->body.operations; }
  /// Every value is defined once, before its first use. Rules that follow values rely on it: no circles.
  [[nodiscard]] bool is_ordered() const { return is_ordered_; }

  /// The operation that makes a value; null for inputs and unknown names.
  [[nodiscard]] const mil::Operation* Maker(std::string_view value) const;
  [[nodiscard]] const std::vector<Use>& Users(std::string_view value) const;
  /// Of a value, or of what a state wraps; null for unknown names.
  [[nodiscard]] const mil::TensorType* TypeOf(std::string_view value) const;
  [[nodiscard]] const mil::NamedType* Input(std::string_view name) const;

  // ---- the first argument of a parameter
  /// Its name; null for literals and absent parameters.
  [[nodiscard]] static const std::string* Name(const mil::Operation& op, std::string_view parameter);
  [[nodiscard]] const mil::TensorType* TypeOf(const mil::Operation& op, std::string_view parameter) const;
  /// Who makes it; null for literals, inputs, absent parameters.
  [[nodiscard]] const mil::Operation* MakerOf(const mil::Operation& op, std::string_view parameter) const;
  /// Its contents: a literal's, or those of a const operation; null where they are not known.
  [[nodiscard]] const mil::Value* Constant(const mil::Operation& op, std::string_view parameter) const;
  [[nodiscard]] std::optional<std::vector<int64_t>> Integers(const mil::Operation& op,
                                                             std::string_view parameter) const;
  /// The one number a constant consists of, however often.
  [[nodiscard]] std::optional<double> Number(const mil::Operation& op, std::string_view parameter) const;

 private:
  struct Entry {
    const mil::Operation* maker = nullptr;
    const mil::TensorType* type = nullptr;
    std::vector<Use> users;
  };

  std::string name_;
  const mil::Function* function_;
  bool is_ordered_ = true;
  std::unordered_map<std::string_view, Entry> values_;
};

/// const or constexpr_*.
[[nodiscard]] bool IsConstantOperation(const mil::Operation& op);

/// Moves elements and changes none: reshape, transpose, squeeze, ...
[[nodiscard]] bool IsViewOperation(const mil::Operation& op);

/// Calls visit(name, value) for every attribute of an operation and every value written into it.
template <class Visit>
void ForEachValue(const mil::Operation& op, Visit visit) {
  for (const auto& [name, value] : op.attributes) visit(name, value);
  for (const auto& [parameter, arguments] : op.inputs) {
    for (const mil::Argument& argument : arguments) {
      if (const auto* value = std::get_if<mil::Value>(&argument)) visit(parameter, *value);
    }
  }
}

/// Where a value comes from behind view operations.
[[nodiscard]] const mil::Operation* MakerBehindViews(const FunctionView& function, std::string_view value);

/// Users behind view operations.
[[nodiscard]] std::vector<FunctionView::Use> UsersBehindViews(const FunctionView& function,
                                                              std::string_view value);

/// Operations that compute with a constant, behind views and other constants made of it.
[[nodiscard]] std::vector<FunctionView::Use> ConsumersOf(const FunctionView& function,
                                                         const mil::Operation& op);

}  // namespace cmforge::coreml
