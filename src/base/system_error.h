// What the system said when a file could not be used, and what its owner can do: the end of a message.
#pragma once

#include <string>

namespace cmforge {

/// "permission denied: change its permissions", for an errno value: its text in lower case, then a remedy.
[[nodiscard]] std::string SystemFault(int error);

}  // namespace cmforge
