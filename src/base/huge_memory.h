// Memory that is read over and over: weights that are copied instead of mapped, keys and values. It lies on huge pages
// where the system has them: its pages' addresses then stay in the processor's table of them.
#pragma once

#include <cstddef>

namespace cmforge {

/// `size` bytes of 0, aligned to far more than a cache line. The system gives them as they are first touched and has
/// them back once they are freed. Throws std::bad_alloc.
[[nodiscard]] std::byte* NewHugeMemory(size_t size);
/// Writes the first byte, a 0, and says whether a huge page came with it.
[[nodiscard]] bool TouchHugeMemory(std::byte* data);
void FreeHugeMemory(std::byte* data, size_t size);

struct HugeMemoryFree {
  size_t size = 0;
  void operator()(std::byte* data) const { FreeHugeMemory(data, size); }
};

}  // namespace cmforge
