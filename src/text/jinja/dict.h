// The insertion ordered dictionary of a rendering.
#pragma once

#include <string_view>

#include "base/result.h"
#include "text/jinja/runtime.h"

namespace cmforge::jinja {

/// The value of `key`, or null. Fails when the key is not hashable.
Result<Value*> FindKey(const Dict& dict, const Value& key);
[[nodiscard]] Value* FindHashed(const Dict& dict, const Value& key, uint64_t hash);
[[nodiscard]] Value* FindText(const Dict& dict, std::string_view key);

/// Sets or adds. A key that is there keeps its place and its first spelling.
Result<void> SetKey(Runtime& rt, Dict* dict, const Value& key, const Value& value);
Result<void> SetText(Runtime& rt, Dict* dict, std::string_view key, const Value& value);  // copies a new key

/// Takes out entry number `at`; those behind move up.
void RemoveEntry(Dict* dict, uint64_t at);

/// A new dictionary with the same entries.
Result<Dict*> CopyDict(Runtime& rt, const Dict& dict);

[[nodiscard]] inline Value DictValue(Dict* dict) { return Value::Of(Kind::kDict, dict); }

}  // namespace cmforge::jinja
