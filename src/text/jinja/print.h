// Values as text: Python's str() and repr(), and json.dumps as transformers calls it.
#pragma once

#include "base/result.h"
#include "text/jinja/runtime.h"
#include "text/jinja/text.h"

namespace cmforge::jinja {

/// str(value), appended.
Result<void> AppendText(Runtime& rt, const Value& value, TextBuilder* out);
/// str(value) as a string value; a string is itself, without copying, and keeps being Markup.
Result<Value> ToText(Runtime& rt, const Value& value);

/// repr(value), appended.
Result<void> AppendRepr(Runtime& rt, const Value& value, TextBuilder* out);
Result<Value> Repr(Runtime& rt, const Value& value);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool has_indent = false;
  std::string_view indent = {};  // one level
  std::string_view item_separator = ", ";
  std::string_view key_separator = ": ";
};
/// json.dumps(value). Fails for what JSON does not have.
Result<void> AppendJson(Runtime& rt, const Value& value, const JsonStyle& style, TextBuilder* out);

}  // namespace cmforge::jinja
