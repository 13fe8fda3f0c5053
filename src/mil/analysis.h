// Walks a function in order of execution with the types and known contents of every value: what the checker
// and the interpreter's planner share.
#pragma once

#include <deque>
#include <unordered_map>

#include "mil/model.h"
#include "mil/ops.h"
#include "mil/weights.h"

namespace cmforge::mil {

/// Values of one function by name.
class Scope {
 public:
  /// `value`: its contents where they are known; must outlive the scope (see Keep).
  /// Fails: kCorrupt when the name is taken or no identifier.
  Result<void> Define(const std::string& name, Type type, const Value* value = nullptr,
                      bool is_constant = false);
  /// Takes over a value that was computed; the result lives as long as the scope.
  const Value* Keep(Value value) { return &kept_.emplace_back(std::move(value)); }
  [[nodiscard]] const Operand* Find(const std::string& name) const;

  /// The operands of an operation: names looked up, literals and (of const and constexpr) attributes taken as
  /// they are, small integers in weight files read. Fails: kCorrupt for undefined names; as OpCall::Bind.
  Result<OpCall> Bind(const Operation& op, const Weights* weights);

 private:
  struct Entry {
    Type type;
    Operand operand;
  };
  Operand Literal(const Value& value, const Weights* weights, Result<void>& status);

  std::unordered_map<std::string, std::unique_ptr<Entry>> values_;
  std::deque<Value> kept_;
};

/// The name errors give an operation: its type and first output.
[[nodiscard]] std::string OperationLabel(const Operation& op);

/// Everything a program promises: names defined once and before use, parameters as the operations take them,
/// declared types that agree with inferred ones, outputs that exist, a description that fits the program, and
/// (with `weights`) weight references of the right type and size.
/// Fails: kCorrupt or kUnsupported, "function 'f': conv 'y': ...".
Result<void> CheckModel(const Model& model, const Weights* weights);

/// Its parts: the program's, and the description's against a function whose values are defined.
Result<void> CheckDescription(const std::string& name, const Function& function,
                              const Description& description);
Result<void> CheckFunction(const std::string& name, const Function& function, const Weights* weights);

}  // namespace cmforge::mil
