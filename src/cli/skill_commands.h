// The commands below `skill` that live in files of their own.
#pragma once

#include "cli/command.h"

namespace cmforge::cli {

/// Fails: kUsage for what cannot serve as an id, and for words that mean no skill or any.
Result<void> CheckNewSkillId(const std::string& id);

/// A finite number of 0 or more.
[[nodiscard]] CLI::Validator MinDelta();

void AddStandaloneSkill(Cli& cli, CLI::App* group);  // bake, export, apply

}  // namespace cmforge::cli
