// A model, file or output whose name is given and empty, mostly an unset variable of a shell: without a name some
// commands would take the built-in model, which is not what was meant.
#pragma once

#include "cli/command.h"

namespace cmforge::cli {

/// Looks at the parsed command line. Fails: kUsage naming the argument.
Result<void> RefuseEmptyModels(const CLI::App& app);

}  // namespace cmforge::cli
