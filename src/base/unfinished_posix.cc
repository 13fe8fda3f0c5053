// The list, behind a lock that a signal handler may take: those who hold it read no file, so none of them is ever the
// one whose fault is handled.
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <set>
#include <string>

#include "base/unfinished.h"

namespace cmforge {
namespace {

std::atomic_flag is_taken = ATOMIC_FLAG_INIT;

std::set<std::string>& Names() {
  static auto* const names = new std::set<std::string>;  // lives to the end: a handler may come at any time
  return *names;
}

class Taken {
 public:
  Taken() {
    while (is_taken.test_and_set(std::memory_order_acquire)) ::usleep(1);
  }
  ~Taken() { is_taken.clear(std::memory_order_release); }
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;
};

}  // namespace

void ListUnfinished(const std::filesystem::path& file) {
  const Taken taken;
  Names().insert(file.string());
}

void ForgetUnfinished(const std::filesystem::path& file) {
  const Taken taken;
  Names().erase(file.string());
}

void RemoveUnfinished() {
  constexpr int kMostTries =
      1'000'000;  // a signal that somebody sent may have come while its own thread holds the list
  for (int i = 0; is_taken.test_and_set(std::memory_order_acquire); ++i) {
    if (i == kMostTries) return;
  }
  for (const std::string& name : Names()) ::unlink(name.c_str());
}

bool IsLeftover(std::string_view name, std::string_view target) {
  constexpr std::string_view kMark = ".tmp-";
  if (!name.starts_with(target)) return false;
  name.remove_prefix(target.size());
  if (!name.starts_with(kMark)) return false;
  name.remove_prefix(kMark.size());
  const char* const end = name.data() + name.size();
  pid_t pid = 0;
  int number = 0;
  const auto [dash, is_no_pid] = std::from_chars(name.data(), end, pid);
  if (is_no_pid != std::errc() || dash == end || *dash != '-') return false;
  const auto [last, is_no_number] = std::from_chars(dash + 1, end, number);
  if (is_no_number != std::errc() || last != end || pid <= 0 || number < 0) return false;
  return ::kill(pid, 0) != 0 && errno == ESRCH;
}

}  // namespace cmforge
