// value.name, value[key] and slices, with the sandbox's refusals.
#pragma once

#include <string_view>

#include "base/result.h"
#include "text/jinja/runtime.h"

namespace cmforge::jinja {

/// value.name: the attribute, else the item; undefined when there is neither. Fails on an undefined value.
Result<Value> GetAttribute(Runtime& rt, const Value& value, std::string_view name);
/// value[key]: the item, else the attribute.
Result<Value> GetItem(Runtime& rt, const Value& value, const Value& key);
/// value[start:stop:step]; none for what is left out.
Result<Value> GetSlice(Runtime& rt, const Value& value, const Value& start, const Value& stop,
                       const Value& step);
/// The attribute alone; kMissing when there is none.
Result<Value> OwnAttribute(Runtime& rt, const Value& value, std::string_view name);

}  // namespace cmforge::jinja
