// The commands below `coreml`, one per file.
#pragma once

#include "cli/command.h"

namespace cmforge::cli {

void AddCoremlConvert(Cli& cli, CLI::App* parent);
void AddCoremlCheck(Cli& cli, CLI::App* parent);
void AddCoremlLint(Cli& cli, CLI::App* parent);

}  // namespace cmforge::cli
