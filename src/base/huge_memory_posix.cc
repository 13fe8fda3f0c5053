// Huge pages by madvise(2), where it knows them.
#include <sys/mman.h>

#include <new>

#include "base/huge_memory.h"

namespace cmforge {
namespace {

constexpr std::align_val_t kAlignment{size_t{2} << 20};

}  // namespace

std::byte* NewHugeMemory(size_t size) {
  auto* data = new (kAlignment) std::byte[size];
#ifdef MADV_HUGEPAGE
  ::madvise(data, size, MADV_HUGEPAGE);
#endif
  return data;
}

void FreeHugeMemory(std::byte* data) { ::operator delete[](data, kAlignment); }

}  // namespace cmforge
