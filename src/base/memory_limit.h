// How much memory this process may hold, and how much it holds.
#pragma once

#include <cstdint>
#include <filesystem>

namespace cmforge {

/// The least of physical memory and the container's limits (cgroup v2 memory.max of the process's group and
/// all above it, v1 memory.limit_in_bytes), in bytes; 0 when nothing is known. `cgroup_root` is where cgroup
/// files are looked for; tests give a fake.
[[nodiscard]] uint64_t MemoryLimit(const std::filesystem::path& cgroup_root = "/sys/fs/cgroup");

/// Bytes of memory that no file can take back: what counts against the limit. Mapped weights do not.
[[nodiscard]] uint64_t UsedMemory();

}  // namespace cmforge
