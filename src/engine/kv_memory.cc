// Stretches of huge pages, each cut into blocks from its beginning on.
#include "engine/kv_memory.h"

#include <cstring>

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
    stretch.is_huge = TouchHugeMemory(stretch.memory.get());
  }
  std::byte* data = stretch.memory.get() + stretch.used;
  stretch.used += size;
  // A small page that is read before it is written faults twice.
  if (!stretch.is_huge) std::memset(data, 0, size);
  return {data, [memory = stretch.memory](std::byte*) {}};
}

}  // namespace cmforge::engine
