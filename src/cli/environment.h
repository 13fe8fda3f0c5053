// Flags from the environment: which variable stands for which flag.
#pragma once

#include <CLI/CLI.hpp>
#include <span>

namespace cmforge::cli {

/// Gives every flag of the command that `arguments` (without the program's name) begin with its variables;
/// the command line wins over them. The flags of other commands get none, so that what is set for them cannot
/// disturb.
///   CMFORGE_<COMMAND>_<FLAG>  (CMFORGE_PPL_CONTEXT, CMFORGE_MOEMASK_STATS) always, and wins over
///   CMFORGE_<FLAG>            where the flag means one thing: a name that means different things to
///   different
///                             commands belongs to the meaning that most of them share, and to none when two
///                             share the lead. A meaning is the words of its help.
void NameEnvironment(CLI::App& app, std::span<const char* const> arguments);

}  // namespace cmforge::cli
