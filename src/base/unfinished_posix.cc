// The list, behind a lock that a signal handler may take: those who hold it read no file, so none of them is ever the
// one whose fault is handled.
#include <unistd.h>

#include <atomic>
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

}  // namespace cmforge
