// What a template can call: global functions, filters, tests and methods, all described by one table entry
// each; and the binding of arguments to parameters as Python does it.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/jinja/runtime.h"

namespace cmforge::jinja {

inline constexpr size_t kMaxParameters = 8;

/// Arguments in the order of the parameters; kMissing where none was given.
struct Bound {
  Value self;  // of a method
  std::array<Value, kMaxParameters> values;
  std::span<const Value> rest;             // "*"
  std::span<const NamedValue> named_rest;  // "**"

  const Value& operator[](size_t i) const { return values[i]; }
  [[nodiscard]] bool has(size_t i) const { return !values[i].is_missing(); }
};

struct Builtin {
  std::string_view name;
  /// Names separated by blanks. "x?" may be left out, "/x" cannot be given by name; "*" takes further
  /// arguments, "**" further named ones.
  std::string_view parameters;
  Result<Value> (*call)(Runtime& rt, const Bound& arguments);
  std::string_view shown = "<function>";  // repr
};

Result<Value> CallBuiltin(Runtime& rt, const Builtin& builtin, const Value& self, const Arguments& arguments);
/// A filter or test on `value`.
Result<Value> ApplyBuiltin(Runtime& rt, const Builtin& builtin, const Value& value,
                           const Arguments& arguments);

struct MethodEntry {
  Builtin builtin;
  bool mutates = false;  // refused by the immutable sandbox
};

/// The method `name` of values like `self`, or null.
const MethodEntry* FindMethod(const Value& self, std::string_view name);
const MethodEntry* FindStringMethod(std::string_view name);
const MethodEntry* FindListMethod(Kind kind, std::string_view name);
const MethodEntry* FindDictMethod(std::string_view name);
const MethodEntry* FindCyclerMethod(std::string_view name);
const MethodEntry* FindNumberMethod(Kind kind, std::string_view name);

const Builtin* FindFilter(std::string_view name);
const Builtin* FindTest(std::string_view name);
const Builtin* FindGlobal(std::string_view name);
inline std::string_view NameOf(const Builtin& builtin) { return builtin.name; }
inline std::string_view NameOf(const MethodEntry& method) { return method.builtin.name; }

/// Looks `name` up in a table sorted by name.
template <class Table>
const auto* FindSorted(const Table& table, std::string_view name) {
  const auto* const at =
      std::lower_bound(std::begin(table), std::end(table), name,
                       [](const auto& entry, std::string_view n) { return NameOf(entry) < n; });
  return at != std::end(table) && NameOf(*at) == name ? at : nullptr;
}

/// dict(…): entries of a mapping or of pairs, then the named ones.
Result<void> UpdateDict(Runtime& rt, Dict* dict, const Arguments& arguments);

/// "<Macro 'name'>".
std::string MacroText(const Macro& macro);

/// A string, or a TypeError about `what`.
Result<const Str*> AsString(const Value& value, std::string_view what);

}  // namespace cmforge::jinja
