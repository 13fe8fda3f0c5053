// Binds the names of a parsed template to variables, by Jinja's scoping: which constructs open a scope, what
// a name set later in a scope is before that, and what macros see.
#pragma once

#include "base/result.h"
#include "text/jinja/program.h"

namespace cmforge::jinja {

/// Fills variables, scopes and functions. Fails: "syntax" for what Jinja's compiler refuses (unknown filters
/// outside of branches, break outside of a loop, assigning to `loop` in a loop).
Result<void> BindNames(Program* program);

}  // namespace cmforge::jinja
