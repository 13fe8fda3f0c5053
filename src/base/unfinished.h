// Names of files that are being written and mean nothing to anyone else: a program that must end at once, from a signal
// handler, removes them. Nothing else reads this list. Those of a program that was killed are told by their names.
#pragma once

#include <filesystem>
#include <string_view>

namespace cmforge {

/// From any thread. `ForgetUnfinished` of a name that is not listed does nothing.
void ListUnfinished(const std::filesystem::path& file);
void ForgetUnfinished(const std::filesystem::path& file);

/// Removes all that are listed; for a handler of a fault, after which the process ends: whoever would change the list now
/// waits for that end. Calls nothing but unlink(2).
void RemoveUnfinished();

/// Whether `name` is a temporary name for `target`, TARGET.tmp-PID-N and nothing more, of a process that is gone.
[[nodiscard]] bool IsLeftover(std::string_view name, std::string_view target);

}  // namespace cmforge
