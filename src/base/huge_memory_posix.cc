// Huge pages by madvise(2), where it knows them. Straight from the system: malloc would keep part of what is freed.
#include <sys/mman.h>

#include <cstdint>
#include <new>

#include "base/bytes.h"
#include "base/huge_memory.h"

namespace cmforge {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

size_t Mapped(size_t size) { return AlignUp(size, kHugePage); }

}  // namespace

std::byte* NewHugeMemory(size_t size) {
  if (size > SIZE_MAX - 2 * kHugePage) throw std::bad_alloc();
  const size_t mapped = Mapped(size);
  void* map = ::mmap(nullptr, mapped + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) throw std::bad_alloc();
  auto* from = static_cast<std::byte*>(map);
  const size_t before =
      AlignUp(reinterpret_cast<uintptr_t>(from), kHugePage) - reinterpret_cast<uintptr_t>(from);
  if (before > 0) ::munmap(from, before);
  ::munmap(from + before + mapped, kHugePage - before);
  std::byte* data = from + before;
#ifdef MADV_HUGEPAGE
  ::madvise(data, mapped, MADV_HUGEPAGE);
#endif
  return data;
}

bool TouchHugeMemory(std::byte* data) {
  *const_cast<volatile std::byte*>(data) = std::byte{};
#ifdef MADV_HUGEPAGE
  unsigned char is_here = 0;
  return ::mincore(data + kHugePage / 2, 1, &is_here) == 0 && (is_here & 1) != 0;
#else
  return false;
#endif
}

void FreeHugeMemory(std::byte* data, size_t size) {
  if (data != nullptr) ::munmap(data, Mapped(size));
}

}  // namespace cmforge
