// Chunks of the rendering's memory.
#include "text/jinja/heap.h"

#include <algorithm>

namespace cmforge::jinja {
namespace {
constexpr uint64_t kFirstChunk = 16 << 10;
constexpr uint64_t kLargestChunk = 1 << 20;
}  // namespace

void Heap::Grow(Region* region, uint64_t size) {
  uint64_t chunk = std::min(kLargestChunk, kFirstChunk << std::min<uint64_t>(chunks_.size(), 10));
  // A large piece gets room behind it, in case it is a text that grows.
  if (size > chunk / 2) chunk = size + size / 2;
  chunks_.push_back(std::make_unique_for_overwrite<char[]>(chunk));
  region->next = chunks_.back().get();
  region->end = region->next + chunk;
  used_ += static_cast<int64_t>(chunk);
}

std::string_view Heap::JoinText(std::string_view head, std::string_view tail) {
  if (tail.empty()) return head;
  if (head.empty()) return CopyText(tail);
  const bool head_is_last = head.data() + head.size() == texts_.next;
  if (head_is_last && tail.size() <= static_cast<uint64_t>(texts_.end - texts_.next)) {
    std::memcpy(texts_.next, tail.data(), tail.size());
    texts_.next += tail.size();
    return {head.data(), head.size() + tail.size()};
  }
  char* at = Take(&texts_, head.size() + tail.size());
  std::memcpy(at, head.data(), head.size());
  std::memcpy(at + head.size(), tail.data(), tail.size());
  return {at, head.size() + tail.size()};
}

}  // namespace cmforge::jinja
