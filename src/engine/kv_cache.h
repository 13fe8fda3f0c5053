// Keys and values of one attention layer for one sequence, in blocks of 64 positions that are shared between
// forks until one of them writes. A windowed cache drops blocks that no later query can see.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/kv_memory.h"
#include "kernels/elementwise.h"

namespace cmforge::engine {

class KvCache {
 public:
  KvCache() = default;
  KvCache(KvType type, int64_t kv_heads, int64_t head_dim, int64_t window, std::shared_ptr<KvMemory> memory);

  /// Where blocks come from, from now on.
  void set_memory(std::shared_ptr<KvMemory> memory) { memory_ = std::move(memory); }

  /// Makes positions [begin, end) writable. Allocates; nothing else here does.
  void Reserve(int64_t begin, int64_t end);

  /// One head of `count` positions of one page, reserved before; FloatKernels::store_kv.
  void Store(const FloatKernels& kernels, int64_t position, int64_t count, int64_t head, const float* keys,
             int64_t key_stride, const float* values, int64_t value_stride);

  /// Drops what no query at `position` or later sees, keeping one block more so that short rewinds stay
  /// possible.
  void DropBefore(int64_t position);

  /// Whether blocks for all positions [begin, end) are here.
  [[nodiscard]] bool Covers(int64_t begin, int64_t end) const {
    return begin >= first_page_ * kPagePositions && end <= (first_page_ + page_count()) * kPagePositions;
  }
  /// Whether every key that a query at `position` sees is still here.
  [[nodiscard]] bool CanRewindTo(int64_t position) const;
  /// Forgets positions from `position` on.
  void Truncate(int64_t position);

  [[nodiscard]] const KvPageLayout& layout() const { return layout_; }
  [[nodiscard]] int64_t kv_heads() const { return kv_heads_; }
  [[nodiscard]] int64_t window() const { return window_; }
  /// Pointers to the blocks; the first holds positions from first_page() * 64. Page of head h: block +
  /// HeadOffset(h).
  [[nodiscard]] const std::byte* const* pages() const { return pointers_.data(); }
  [[nodiscard]] int64_t first_page() const { return first_page_; }
  [[nodiscard]] int64_t page_count() const { return static_cast<int64_t>(blocks_.size()); }
  [[nodiscard]] int64_t HeadOffset(int64_t head) const { return head * layout_.bytes; }
  [[nodiscard]] int64_t block_bytes() const { return kv_heads_ * layout_.bytes; }
  [[nodiscard]] uint64_t bytes() const { return static_cast<uint64_t>(page_count() * block_bytes()); }

  /// For snapshots: blocks [first_page, first_page + count) with zeroed contents, to be written by the
  /// caller.
  void Restore(int64_t first_page, int64_t count);
  [[nodiscard]] std::byte* MutableBlock(int64_t index) { return blocks_[static_cast<size_t>(index)].get(); }

 private:
  using Block = KvMemory::Block;
  [[nodiscard]] Block NewBlock() const;
  void RefreshPointers();

  KvPageLayout layout_;
  int64_t kv_heads_ = 0;
  int64_t window_ = 0;  // 0: none
  int64_t first_page_ = 0;
  std::shared_ptr<KvMemory> memory_;
  std::vector<Block> blocks_;
  std::vector<const std::byte*> pointers_;
};

}  // namespace cmforge::engine
