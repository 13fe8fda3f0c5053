// The arguments that name models, whatever the command.
#include "cli/empty_arguments.h"

#include <algorithm>
#include <array>

namespace cmforge::cli {

Result<void> RefuseEmptyModels(const CLI::App& app) {
  constexpr std::array kModels = {"MODEL",      "FILE",    "A",      "B",      "BASE",
                                  "SPECIALIST", "SKILL",   "DIR",    "path",   "model",
                                  "--hf",       "--model", "--base", "--from", "--against"};
  for (const CLI::App* command : app.get_subcommands()) {
    for (const CLI::Option* option : command->get_options()) {
      const std::string name = option->get_name();
      if (std::find(kModels.begin(), kModels.end(), name) == kModels.end()) continue;
      for (const std::string& value : option->results()) {
        if (!value.empty()) continue;
        return Fail(
            ErrorKind::kUsage,
            fmt::format("{}: an empty name: name a model, or leave it out where that means the built-in one",
                        name));
      }
    }
    CMF_CHECK(RefuseEmptyModels(*command));
  }
  return {};
}

}  // namespace cmforge::cli
