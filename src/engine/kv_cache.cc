// Blocks of a cache.
#include "engine/kv_cache.h"

#include <algorithm>
#include <cstring>

namespace cmforge::engine {

KvCache::KvCache(KvType type, int64_t kv_heads, int64_t head_dim, int64_t window,
                 std::shared_ptr<KvMemory> memory)
    : layout_(type, head_dim, head_dim), kv_heads_(kv_heads), window_(window), memory_(std::move(memory)) {}

KvCache::Block KvCache::NewBlock() const {
  return memory_->NewBlock(window_, static_cast<size_t>(block_bytes()));
}

void KvCache::RefreshPointers() {
  pointers_.clear();
  for (const auto& block : blocks_) pointers_.push_back(block.get());
}

void KvCache::Reserve(int64_t begin, int64_t end) {
  if (blocks_.empty()) first_page_ = begin / kPagePositions;
  const int64_t last = (end + kPagePositions - 1) / kPagePositions;
  while (first_page_ + page_count() < last) blocks_.push_back(NewBlock());
  for (int64_t page = begin / kPagePositions; page < last; ++page) {
    Block& block = blocks_[static_cast<size_t>(page - first_page_)];
    if (block.use_count() == 1) continue;
    Block copy = NewBlock();
    std::memcpy(copy.get(), block.get(), static_cast<size_t>(block_bytes()));
    block = std::move(copy);
  }
  RefreshPointers();
}

void KvCache::Store(const FloatKernels& kernels, int64_t position, int64_t count, int64_t head,
                    const float* keys, int64_t key_stride, const float* values, int64_t value_stride) {
  std::byte* block = blocks_[static_cast<size_t>(position / kPagePositions - first_page_)].get();
  kernels.store_kv(layout_, block + HeadOffset(head), position % kPagePositions, count, keys, key_stride,
                   values, value_stride);
}

void KvCache::DropBefore(int64_t position) {
  if (window_ == 0) return;
  const int64_t keep = (position - window_ + 1) / kPagePositions - 1;
  const int64_t drop = std::min(keep - first_page_, page_count());
  if (drop <= 0) return;
  blocks_.erase(blocks_.begin(), blocks_.begin() + drop);
  first_page_ += drop;
  RefreshPointers();
}

bool KvCache::CanRewindTo(int64_t position) const {
  if (window_ == 0 || blocks_.empty()) return true;
  return std::max<int64_t>(0, position - window_ + 1) >= first_page_ * kPagePositions;
}

void KvCache::Truncate(int64_t position) {
  const int64_t last = (position + kPagePositions - 1) / kPagePositions;
  while (page_count() > 0 && first_page_ + page_count() > last) blocks_.pop_back();
  if (position == 0) first_page_ = 0;
  RefreshPointers();
}

void KvCache::Restore(int64_t first_page, int64_t count) {
  first_page_ = first_page;
  blocks_.clear();
  for (int64_t i = 0; i < count; ++i) blocks_.push_back(NewBlock());
  RefreshPointers();
}

}  // namespace cmforge::engine
