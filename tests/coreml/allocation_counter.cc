// operator new and delete of this test program, in a file of their own: nothing here is inlined into callers.
#include "coreml/allocation_counter.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<int64_t> allocations{0};
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
const bool cmforge::coreml::kCountsAllocations = false;
#else
const bool cmforge::coreml::kCountsAllocations = true;

void* operator new(size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size ? size : 1)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
#endif

int64_t cmforge::coreml::Allocations() { return allocations.load(std::memory_order_relaxed); }
