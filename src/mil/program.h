// The program itself, independent of its file forms: functions of one block each, whose operations form a
// list in order of execution; every value has one name and is defined before it is used.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "mil/value.h"

namespace cmforge::mil {

template <class T>
using NameMap = std::map<std::string, T, std::less<>>;  // sorted, so that files are reproducible

struct NamedType {
  std::string name;
  Type type;
  bool operator==(const NamedType&) const = default;
};

/// What a parameter is bound to: the name of a value, or the value itself.
using Argument = std::variant<std::string, Value>;

struct Operation {
  std::string type;                       // "conv"
  NameMap<std::vector<Argument>> inputs;  // several arguments only for variadic parameters
  std::vector<NamedType> outputs;         // none for write_state
  NameMap<Value> attributes;              // "name"; "val" of const; older constexpr parameters

  bool operator==(const Operation&) const = default;
};

struct Block {
  std::vector<std::string> outputs;
  std::vector<Operation> operations;
  NameMap<Value> attributes;
  bool operator==(const Block&) const = default;
};

/// Version of the operation set a function is written in; also the names "CoreML8" and "ios18".
enum class Opset : uint8_t { kIos15 = 5, kIos16 = 6, kIos17 = 7, kIos18 = 8, kIos26 = 9 };
[[nodiscard]] std::optional<Opset> OpsetFromName(std::string_view name);  // either spelling
[[nodiscard]] std::string OpsetCoreMlName(Opset opset);                   // "CoreML8"
[[nodiscard]] std::string OpsetTag(Opset opset);                          // "ios18"

struct Function {
  std::vector<NamedType> inputs;  // states have a state type
  Opset opset = Opset::kIos18;
  Block body;
  NameMap<Value> attributes;
  bool operator==(const Function&) const = default;
};

struct Program {
  int64_t version = 1;
  std::string doc;
  NameMap<Function> functions;
  NameMap<Value> attributes;  // "buildInfo"
  bool operator==(const Program&) const = default;
};

/// True for [A-Za-z_][A-Za-z0-9_@]*.
[[nodiscard]] bool IsIdentifier(std::string_view name);

/// `name` with every byte that an identifier cannot hold replaced by '_'.
[[nodiscard]] std::string MakeIdentifier(std::string_view name);

}  // namespace cmforge::mil
