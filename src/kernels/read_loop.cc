// Four streams of whole cache lines; eight sums, so that no addition waits for another. 64-bit loads that the
// compiler joins to vectors: memory is far slower than they are.
#include "kernels/read_loop.h"

#include <cstring>

#include "kernels/isa.h"

namespace cmforge {
namespace {

constexpr size_t kLine = 64, kStreams = 4, kAhead = 1024;

template <bool kPrefetches>
uint64_t Read(const std::byte* p, size_t lines) {
  uint64_t sums[kLine / 8] = {};
  const size_t each = lines / kStreams;
  const auto add = [&](const std::byte* line) {
    uint64_t words[kLine / 8];
    std::memcpy(words, line, kLine);
    for (size_t i = 0; i < kLine / 8; ++i) sums[i] += words[i];
  };
  for (size_t line = 0; line < each; ++line) {
    for (size_t s = 0; s < kStreams; ++s) {
      const std::byte* at = p + (s * each + line) * kLine;
      if constexpr (kPrefetches) __builtin_prefetch(at + kAhead);
      add(at);
    }
  }
  for (size_t line = kStreams * each; line < lines; ++line) add(p + line * kLine);
  uint64_t total = 0;
  for (const uint64_t sum : sums) total += sum;
  return total;
}

}  // namespace

uint64_t ReadAll(std::span<const std::byte> bytes) {
  const size_t lines = bytes.size() / kLine;
  uint64_t total = WantsPrefetch() ? Read<true>(bytes.data(), lines) : Read<false>(bytes.data(), lines);
  for (const std::byte b : bytes.subspan(lines * kLine)) total += std::to_integer<uint64_t>(b);
  return total;
}

}  // namespace cmforge
