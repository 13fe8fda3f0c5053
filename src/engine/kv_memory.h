// Memory of a sequence's cache blocks, on huge pages: decoding reads all of it once a token, from a place a head and a
// block, and every place of its own small pages costs a walk through the page tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

namespace cmforge::engine {

class KvMemory {
 public:
  using Block = std::shared_ptr<std::byte[]>;

  /// `size` bytes of 0, cut from a stretch that blocks of several layers share and that goes when the last of them does.
  /// `window` of the cache: those that drop blocks on the way have stretches of their own.
  [[nodiscard]] Block NewBlock(int64_t window, size_t size);

 private:
  struct Stretch {
    std::shared_ptr<std::byte> memory;
    size_t size = 0, used = 0;
    bool is_huge = false;
  };
  std::map<int64_t, Stretch> stretches_;  // the ones to cut from, by window
};

}  // namespace cmforge::engine
