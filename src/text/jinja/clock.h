// Dates as strftime writes them in the C locale.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "text/jinja/template.h"

namespace cmforge::jinja {

/// Directives of glibc's strftime, with its flags (- _ 0 ^ #) and widths; unknown ones stay as written. A
/// local time has no zone: %z and %Z are empty. Fails: kLimit when the text gets out of hand.
Result<std::string> FormatTime(std::string_view format, const LocalTime& time);

}  // namespace cmforge::jinja
