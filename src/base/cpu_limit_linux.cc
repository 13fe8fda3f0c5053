// UsableCpus from sched_getaffinity(2) and the cgroup files.
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <thread>

#include "base/cpu_limit.h"

namespace cmforge {
namespace {

// A process without cgroup namespaces sits in a nested group: every ancestor's quota binds.
double QuotaUnder(const std::filesystem::path& root) {
  double least = 1e9;
  const auto consider = [&](double quota, double period) {
    if (quota > 0 && period > 0) least = std::min(least, quota / period);
  };
  std::filesystem::path relative;
  std::ifstream self("/proc/self/cgroup");
  for (std::string line; std::getline(self, line);) {
    if (line.rfind("0::", 0) == 0) relative = std::filesystem::path(line.substr(3)).relative_path();
  }
  for (auto at = root / relative;; at = at.parent_path()) {
    std::string quota;
    double period = 0;
    if (std::ifstream v2(at / "cpu.max"); v2 >> quota >> period && quota != "max") {
      consider(std::atof(quota.c_str()), period);
    }
    if (at == root || !at.has_relative_path()) break;
  }
  for (const auto& v1 : {root / "cpu", root}) {
    double quota = 0, period = 0;
    if (std::ifstream(v1 / "cpu.cfs_quota_us") >> quota &&
        std::ifstream(v1 / "cpu.cfs_period_us") >> period) {
      consider(quota, period);
    }
  }
  return least;
}

}  // namespace

int UsableCpus(const std::filesystem::path& cgroup_root) {
  int cpus = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) cpus = std::min(cpus, std::max(1, CPU_COUNT(&set)));
  const double quota = std::ceil(QuotaUnder(cgroup_root) - 1e-9);
  return std::max(1, static_cast<int>(std::min<double>(cpus, quota)));
}

}  // namespace cmforge
