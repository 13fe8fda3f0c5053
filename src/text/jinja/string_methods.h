// What filters share with the methods of str.
#pragma once

#include "base/result.h"
#include "text/jinja/runtime.h"

namespace cmforge::jinja {

// Of a string value; Markup stays Markup.
Result<Value> ToUpper(Runtime& rt, const Value& text);
Result<Value> ToLower(Runtime& rt, const Value& text);
Result<Value> Capitalize(Runtime& rt, const Value& text);
/// `chars` missing or none: white space.
Result<Value> StripValue(Runtime& rt, const Value& text, const Value& chars, bool left, bool right);

/// str.isupper() or str.islower().
[[nodiscard]] bool IsAllOneCase(std::string_view text, bool upper);

struct Line {
  uint64_t begin = 0;
  uint64_t end = 0;   // without the line break
  uint64_t next = 0;  // behind it
};
/// The line of str.splitlines() that starts at `begin`; there is none at the end of the text.
[[nodiscard]] Line NextLine(std::string_view text, uint64_t begin);

/// `most` replacements from the left; negative: all.
Result<Value> Replace(Runtime& rt, const Str& text, const Str& from, const Str& to, int64_t most,
                      bool is_markup);

/// Filled to `width` code points: on the right (side -1), the left (1), both (0).
Result<Value> Pad(Runtime& rt, const Str& text, int64_t width, std::string_view fill, int side,
                  bool is_markup);

}  // namespace cmforge::jinja
