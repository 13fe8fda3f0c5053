// Environment names, derived from the commands as they are.
#include "cli/environment.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace cmforge::cli {
namespace {

char Upper(char c) { return static_cast<char>(std::toupper(static_cast<unsigned char>(c))); }

std::string FlagWord(std::string_view name) {
  std::string word;
  for (const char c : name) word += c == '-' ? '_' : Upper(c);
  return word;
}

// Without its hyphens: `moe-mask --stats` must not read what `run --moe-mask-stats` does.
std::string CommandWord(std::string_view name) {
  std::string word;
  for (const char c : name) {
    if (c != '-') word += Upper(c);
  }
  return word;
}

struct Flag {
  CLI::Option* option;
  const CLI::App* app;
  std::string command;  // "PPL", "MOEMASK", "COREML_CONVERT"
};

// By long name: every flag of every command, whatever their depth.
void Collect(CLI::App& app, const std::string& prefix, std::map<std::string, std::vector<Flag>>& flags) {
  for (CLI::Option* option : app.get_options()) {
    if (option->get_lnames().empty()) continue;  // a positional argument
    const std::string& name = option->get_lnames()[0];
    if (name == "help" || name == "version") continue;
    flags[name].push_back({option, &app, prefix});
  }
  for (CLI::App* command : app.get_subcommands({}))
    Collect(*command, (prefix.empty() ? "" : prefix + "_") + CommandWord(command->get_name()), flags);
}

}  // namespace

void NameEnvironment(CLI::App& app, std::span<const char* const> arguments) {
  const CLI::App* chosen = &app;
  for (const char* word : arguments) {
    const auto named =
        chosen->get_subcommands([&](const CLI::App* command) { return command->get_name() == word; });
    if (named.empty()) break;
    chosen = named[0];
  }
  std::map<std::string, std::vector<Flag>> flags;
  Collect(app, "", flags);
  for (auto& [name, uses] : flags) {
    std::map<std::string, int> commands_of;  // by meaning
    for (const Flag& flag : uses) ++commands_of[flag.option->get_description()];
    int most = 0, leaders = 0;
    for (const auto& [meaning, count] : commands_of) {
      leaders = count > most ? 1 : leaders + (count == most ? 1 : 0);
      most = std::max(most, count);
    }
    for (const Flag& flag : uses) {
      if (flag.app != chosen) continue;
      const std::string own = "CMFORGE_" + flag.command + "_" + FlagWord(name);
      const bool has_short = leaders == 1 && commands_of[flag.option->get_description()] == most;
      const bool use_short = has_short && std::getenv(own.c_str()) == nullptr;
      flag.option->envname(use_short ? "CMFORGE_" + FlagWord(name) : own);
    }
  }
}

}  // namespace cmforge::cli
