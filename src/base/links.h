// Outputs are written where a link leads, so that the link stays.
#pragma once

#include <filesystem>

namespace cmforge {

/// Where the links at `path` lead in the end, whether or not something is there; `path` where it is none.
[[nodiscard]] std::filesystem::path FollowLinks(const std::filesystem::path& path);

}  // namespace cmforge
