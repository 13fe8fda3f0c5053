#include "base/links.h"

namespace cmforge {

std::filesystem::path FollowLinks(const std::filesystem::path& path) {
  constexpr int kMostHops = 40;  // as the system allows
  std::error_code ignored;
  std::filesystem::path real = path;
  for (int hops = 0; hops < kMostHops && std::filesystem::is_symlink(real, ignored); ++hops)
    real = real.parent_path() / std::filesystem::read_symlink(real, ignored);
  return real;
}

}  // namespace cmforge
