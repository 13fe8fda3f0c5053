// Errors of the template engine as a command says them.
#pragma once

#include <string_view>

#include "base/result.h"

namespace cmforge::cli {

/// Adds the template's origin where the message lacks it (what a template raises is its own words alone) and
/// what to do. Errors of other parts come back unchanged.
[[nodiscard]] Error TemplateError(Error error, std::string_view origin);

}  // namespace cmforge::cli
