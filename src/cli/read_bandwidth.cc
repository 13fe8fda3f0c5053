// A read loop that does nothing else.
#include "cli/read_bandwidth.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>

namespace cmforge::cli {
namespace {

// Several streams of a page each, as kernels walk rows; eight sums so that no addition waits for another.
uint64_t Sum(const uint64_t* at, int64_t words) {
  uint64_t sums[8] = {};
  for (int64_t i = 0; i + 8 <= words; i += 8) {
    for (int j = 0; j < 8; ++j) sums[j] += at[i + j];
  }
  uint64_t total = 0;
  for (const uint64_t s : sums) total += s;
  return total;
}

}  // namespace

double MeasureReadBandwidth(ThreadPool& pool, int64_t mebibytes) {
  const auto size = static_cast<size_t>(mebibytes) << 20;
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 0;
#ifdef MADV_NOHUGEPAGE
  ::madvise(memory, size, MADV_NOHUGEPAGE);
#endif
  std::memset(memory, 1, size);
  const auto words = static_cast<int64_t>(size / 8);
  double best = 0;
  std::atomic<uint64_t> sink{0};
  for (int pass = 0; pass < 3; ++pass) {
    const auto begun = std::chrono::steady_clock::now();
    pool.ForRanges(words, 1 << 15, [&](int64_t begin, int64_t end) {
      sink += Sum(static_cast<const uint64_t*>(memory) + begin, end - begin);
    });
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    best = std::max(best, static_cast<double>(size) / seconds / 1e9);
  }
  ::munmap(memory, size);
  return sink == 0 ? 0 : best;
}

}  // namespace cmforge::cli
