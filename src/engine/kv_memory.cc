// Stretches of huge pages, each cut into blocks from its beginning on.
#include "engine/kv_memory.h"

#include "base/bytes.h"
#include "base/huge_memory.h"

namespace cmforge::engine {

KvMemory::Block KvMemory::NewBlock(int64_t window, size_t size) {
  // At least eight blocks, so that little is left over.
  constexpr size_t kHugePage = size_t{2} << 20, kBlocks = 8;
  Stretch& stretch = stretches_[window];
  if (stretch.size - stretch.used < size) {
    const size_t whole = AlignUp(kBlocks * size, kHugePage);
    stretch = {{NewHugeMemory(whole), HugeMemoryFree{whole}}, whole, 0};
  }
  std::byte* data = stretch.memory.get() + stretch.used;
  stretch.used += size;
  return {data, [memory = stretch.memory](std::byte*) {}};
}

}  // namespace cmforge::engine
