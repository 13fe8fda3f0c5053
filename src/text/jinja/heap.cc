// Chunks of the rendering's memory.
#include "text/jinja/heap.h"

#include <algorithm>

namespace cmforge::jinja {
namespace {
constexpr uint64_t kFirstChunk = 16 << 10;
constexpr uint64_t kLargestChunk = 1 << 20;
}  // namespace

void Heap::Grow(uint64_t size) {
  uint64_t chunk = std::min(kLargestChunk, kFirstChunk << std::min<uint64_t>(chunks_.size(), 10));
  // A large piece gets room behind it, in case it is a text that grows.
  if (size > chunk / 2) chunk = (size + size / 2 + 7) & ~uint64_t{7};
  chunks_.push_back(std::make_unique_for_overwrite<char[]>(chunk));
  next_ = chunks_.back().get();
  end_ = next_ + chunk;
  last_text_end_ = nullptr;
  used_ += static_cast<int64_t>(chunk);
}

std::string_view Heap::JoinText(std::string_view head, std::string_view tail) {
  if (tail.empty()) return head;
  if (head.empty()) return CopyText(tail);
  const bool head_is_last = head.data() + head.size() == last_text_end_ && next_ == last_text_next_;
  if (head_is_last && tail.size() <= static_cast<uint64_t>(end_ - last_text_end_)) {
    std::memmove(last_text_end_, tail.data(), tail.size());
    char* const end = last_text_end_ + tail.size();
    next_ = end + ((0 - reinterpret_cast<uintptr_t>(end)) & 7);  // chunks are multiples of 8
    NoteText(end);
    return {head.data(), head.size() + tail.size()};
  }
  char* at = static_cast<char*>(Allocate(head.size() + tail.size()));
  std::memcpy(at, head.data(), head.size());
  std::memcpy(at + head.size(), tail.data(), tail.size());
  NoteText(at + head.size() + tail.size());
  return {at, head.size() + tail.size()};
}

}  // namespace cmforge::jinja
