// Builds a function operation by operation, inferring every result's type. Errors stick: the first one is
// remembered, later calls do nothing, and Finish returns it, so that graph code reads as the graph.
#pragma once

#include <set>

#include "mil/analysis.h"

namespace cmforge::mil {

/// A value of the function being built.
struct Var {
  std::string name;
  TensorType type;
};

/// What a parameter of an operation is given: a value, several, or contents that become a const operation.
class Arg {
 public:
  Arg(const Var& var) : data_(std::vector{var}) {}        // NOLINT: arguments read as plain values
  Arg(std::vector<Var> vars) : data_(std::move(vars)) {}  // NOLINT
  Arg(Value value) : data_(std::move(value)) {}           // NOLINT
  Arg(int value) : Arg(Int32(value)) {}                   // NOLINT
  Arg(bool value) : Arg(Bool(value)) {}                   // NOLINT
  Arg(const char* text) : Arg(String(text)) {}            // NOLINT
  Arg(std::vector<int32_t> values) : Arg(Int32s(std::move(values))) {}  // NOLINT
  Arg(std::vector<bool> values) : Arg(Bools(values)) {}                 // NOLINT

  [[nodiscard]] const std::variant<std::vector<Var>, Value>& data() const { return data_; }

 private:
  std::variant<std::vector<Var>, Value> data_;
};

using Args = std::vector<std::pair<std::string_view, Arg>>;

class FunctionBuilder {
 public:
  explicit FunctionBuilder(Opset opset = Opset::kIos18) { function_.opset = opset; }

  Var Input(std::string_view name, TensorType type);
  Var State(std::string_view name, TensorType type);  // its type; read with Read

  /// Adds one operation; `name` (made unique, cleaned to an identifier) names its result, or its first one.
  Var Op(std::string_view type, const Args& args, std::string_view name = "");
  std::vector<Var> Ops(std::string_view type, const Args& args, std::string_view name = "");

  /// A const operation. Equal small values of one function are made once.
  Var Const(const Value& value, std::string_view name = "");
  /// A compressed constant: contents are bound as values (the iOS 18 form), results of other compressed
  /// constants by name.
  Var Constexpr(std::string_view type, const Args& parameters, std::string_view name);
  std::vector<Var> Constexprs(std::string_view type, const Args& parameters, std::string_view name);

  Var Read(const Var& state);
  void Write(const Var& state, const Var& data);

  /// Gives a value the name callers will see. The value must be the result of an operation of this function.
  void Output(const Var& var, std::string_view name);

  [[nodiscard]] bool ok() const { return status_.has_value(); }
  void Fail(Error error) {
    if (status_) status_ = cmforge::Fail(std::move(error));
  }

  /// The function. Fails: with the first error, "conv 'y': ...".
  Result<Function> Finish();

 private:
  std::string UniqueName(std::string_view wanted);
  std::vector<Var> Append(Operation op, std::string_view name);
  std::vector<Var> Add(std::string_view type, const Args& args, std::string_view name, bool literals);
  Var Single(std::vector<Var> vars, std::string_view type);

  Function function_;
  Scope scope_;
  Result<void> status_;
  std::set<std::string> names_;
  std::map<std::string, Var> constants_;  // by type and contents
  int64_t next_ = 0;
};

}  // namespace cmforge::mil
