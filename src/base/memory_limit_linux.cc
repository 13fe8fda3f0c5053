// MemoryLimit and UsedMemory from the cgroup files and procfs.
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "base/memory_limit.h"

namespace cmforge {
namespace {

/// The number in a file; "max", nothing or no file: no limit.
uint64_t LimitIn(const std::filesystem::path& file) {
  uint64_t bytes = 0;
  return (std::ifstream(file) >> bytes) && bytes > 0 ? bytes : UINT64_MAX;
}

}  // namespace

uint64_t MemoryLimit(const std::filesystem::path& cgroup_root) {
  uint64_t least = UINT64_MAX;
  if (const long pages = ::sysconf(_SC_PHYS_PAGES), size = ::sysconf(_SC_PAGESIZE); pages > 0 && size > 0) {
    least = static_cast<uint64_t>(pages) * static_cast<uint64_t>(size);
  }
  // A process without cgroup namespaces sits in a nested group: every ancestor's limit binds.
  std::filesystem::path relative;
  std::ifstream self("/proc/self/cgroup");
  for (std::string line; std::getline(self, line);) {
    if (line.rfind("0::", 0) == 0) relative = std::filesystem::path(line.substr(3)).relative_path();
  }
  for (auto at = cgroup_root / relative;; at = at.parent_path()) {
    least = std::min(least, LimitIn(at / "memory.max"));
    if (at == cgroup_root || !at.has_relative_path()) break;
  }
  for (const auto& v1 : {cgroup_root / "memory", cgroup_root}) {
    least = std::min(least, LimitIn(v1 / "memory.limit_in_bytes"));
  }
  return least == UINT64_MAX ? 0 : least;
}

uint64_t UsedMemory() {
  std::ifstream statm("/proc/self/statm");
  uint64_t total = 0, resident = 0, of_files = 0;
  const long size = ::sysconf(_SC_PAGESIZE);
  if (!(statm >> total >> resident >> of_files) || size <= 0) return 0;
  return (resident - std::min(resident, of_files)) * static_cast<uint64_t>(size);
}

}  // namespace cmforge
