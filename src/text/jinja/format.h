// Python's two ways to format: 'pattern' % values and 'pattern'.format(…).
#pragma once

#include "base/result.h"
#include "text/jinja/runtime.h"
#include "text/jinja/text.h"

namespace cmforge::jinja {

/// pattern % values; a tuple gives several values, a dictionary named ones.
Result<Value> PercentFormat(Runtime& rt, const Value& pattern, const Value& values);

/// pattern.format(*positional, **named), attributes and items of fields included, under the sandbox's rules.
Result<Value> BraceFormat(Runtime& rt, const Value& pattern, const Arguments& arguments);
/// pattern.format_map(mapping).
Result<Value> BraceFormatMap(Runtime& rt, const Value& pattern, const Value& mapping);

/// format(value, spec), appended: the mini-language of {:>10.2f}.
Result<void> AppendFormatted(Runtime& rt, const Value& value, std::string_view spec, TextBuilder* out);

/// Digits of a float in style 'e', 'f' or 'g' (or upper case) with `precision` digits; keeps the point and
/// zeros with `alternate`.
[[nodiscard]] std::string FloatDigits(double magnitude, char style, int precision, bool alternate);

}  // namespace cmforge::jinja
