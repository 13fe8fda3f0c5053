// Memory for weights that are copied instead of mapped. It lies on huge pages where the system has them: it is read
// over and over, and its pages' addresses then stay in the processor's table of them.
#pragma once

#include <cstddef>
#include <memory>

namespace cmforge {

/// `size` bytes, contents undefined, aligned to far more than a cache line.
[[nodiscard]] std::byte* NewHugeMemory(size_t size);
void FreeHugeMemory(std::byte* data);

struct HugeMemoryFree {
  void operator()(std::byte* data) const { FreeHugeMemory(data); }
};

}  // namespace cmforge
