// How many threads this process may use.
#pragma once

#include <filesystem>

namespace cmforge {

/// The least of online cores, the affinity mask and the container's CPU quota (rounded up), at least 1.
/// `cgroup_root` is where cgroup files are looked for (v2 cpu.max, v1 cpu.cfs_quota_us); tests give a fake.
[[nodiscard]] int UsableCpus(const std::filesystem::path& cgroup_root = "/sys/fs/cgroup");

}  // namespace cmforge
