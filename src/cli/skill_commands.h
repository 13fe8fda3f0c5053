// The commands below `skill` that live in files of their own.
#pragma once

#include "cli/command.h"

namespace cmforge::cli {

void AddStandaloneSkill(Cli& cli, CLI::App* group);  // bake, export, apply

}  // namespace cmforge::cli
