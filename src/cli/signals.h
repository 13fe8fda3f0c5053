// Signals of the program: Ctrl-C asks the work to stop and, pressed again, ends it; a mapped file that became
// shorter ends it with a message instead of a crash.
#pragma once

#include <atomic>
#include <string_view>

namespace cmforge::cli {

/// Installs the handlers for SIGINT, SIGTERM and SIGBUS, and one for memory that is refused, in whatever thread. Call
/// once, from main.
void InstallSignalHandlers();

/// Set by the first SIGINT or SIGTERM.
[[nodiscard]] std::atomic<bool>& Interrupted();

/// The name shown when a mapped file shrinks.
void NameMappedFile(std::string_view path);

}  // namespace cmforge::cli
