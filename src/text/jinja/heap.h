// Memory of one rendering: objects are bumped out of chunks and freed together, so values need no counting
// and cycles through namespaces do no harm. Small allocations always succeed and are counted; whoever
// allocates in proportion to data asks Runtime first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <new>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "text/jinja/big_int.h"
#include "text/jinja/value.h"

namespace cmforge::jinja {

class Heap {
 public:
  [[nodiscard]] int64_t used_bytes() const { return used_; }

  /// Uninitialised, aligned for any value.
  void* Allocate(uint64_t size) { return Take(&objects_, (size + 7) & ~uint64_t{7}); }

  /// Objects are never destroyed, only forgotten.
  template <class T, class... A>
  T* New(A&&... args) {
    static_assert(alignof(T) <= 8);
    return new (Allocate(sizeof(T))) T{std::forward<A>(args)...};
  }

  template <class T>
  std::span<T> NewArray(uint64_t count) {
    static_assert(alignof(T) <= 8);
    T* first = static_cast<T*>(Allocate(sizeof(T) * count));
    for (uint64_t i = 0; i < count; ++i) new (first + i) T();
    return {first, count};
  }

  std::string_view CopyText(std::string_view text) {
    if (text.empty()) return {};
    char* at = Take(&texts_, text.size());
    std::memcpy(at, text.data(), text.size());
    return {at, text.size()};
  }

  /// `head` followed by `tail` in one piece. When `head` was the last text made here, `tail` goes behind it
  /// in place: appending in a loop stays linear.
  std::string_view JoinText(std::string_view head, std::string_view tail);

  const BigInt* Keep(BigInt value) {
    used_ += static_cast<int64_t>(sizeof(BigInt) + value.size_bytes());
    return &big_ints_.emplace_back(std::move(value));
  }

 private:
  // The rest of a chunk. Objects and texts have chunks of their own.
  struct Region {
    char* next = nullptr;
    char* end = nullptr;
  };

  char* Take(Region* region, uint64_t size) {
    if (size > static_cast<uint64_t>(region->end - region->next)) Grow(region, size);
    char* at = region->next;
    region->next += size;
    return at;
  }
  void Grow(Region* region, uint64_t size);

  std::vector<std::unique_ptr<char[]>> chunks_;
  Region objects_;
  Region texts_;
  int64_t used_ = 0;
  std::deque<BigInt> big_ints_;
};

}  // namespace cmforge::jinja
