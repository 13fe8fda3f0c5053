// Memory of cache blocks: zeros, apart from each other, and given back.
#include "engine/kv_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#if defined(__linux__)
#include <sys/prctl.h>
#endif

#include <algorithm>
#include <cstring>

#include "engine/kv_cache.h"
#include "model/language_model.h"

namespace cmforge::engine {
namespace {

constexpr size_t kSizes[] = {64, 4096 - 64, size_t{256} << 10, size_t{3} << 20};
constexpr size_t kHugePage = size_t{2} << 20;

/// Of the huge page around `at`, whether anything is mapped.
bool IsMapped(const std::byte* at) {
  auto* page = reinterpret_cast<std::byte*>(reinterpret_cast<uintptr_t>(at) / kHugePage * kHugePage);
  return ::msync(page, 4096, MS_ASYNC) == 0;
}

TEST(KvMemory, BlocksAreZeroAlignedAndApart) {
  KvMemory memory;
  for (const size_t size : kSizes) {
    std::vector<KvMemory::Block> blocks;
    for (int i = 0; i < 40; ++i) {
      blocks.push_back(memory.NewBlock(i % 3 * 512, size));
      std::byte* block = blocks.back().get();
      EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 64, 0u);
      EXPECT_TRUE(std::all_of(block, block + size, [](std::byte b) { return b == std::byte{}; }));
      std::memset(block, i + 1, size);
    }
    for (int i = 0; i < 40; ++i) {
      const std::byte* block = blocks[static_cast<size_t>(i)].get();
      EXPECT_TRUE(std::all_of(block, block + size, [i](std::byte b) { return b == std::byte(i + 1); }));
      EXPECT_EQ(blocks[static_cast<size_t>(i)].use_count(), 1);
    }
  }
}

#if defined(__linux__)
TEST(KvMemory, WithoutHugePagesBlocksAreWrittenBeforeTheyAreRead) {
  ASSERT_EQ(::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0);
  KvMemory memory;
  for (const size_t size : kSizes) {
    const KvMemory::Block block = memory.NewBlock(0, size);
    for (size_t i = 0; i < size; i += 4096) {
      unsigned char is_here = 0;
      auto* page = reinterpret_cast<std::byte*>(reinterpret_cast<uintptr_t>(block.get() + i) / 4096 * 4096);
      EXPECT_EQ(::mincore(page, 1, &is_here), 0);
      EXPECT_EQ(is_here & 1, 1) << size << " " << i;
      EXPECT_EQ(block[static_cast<std::ptrdiff_t>(i)], std::byte{});
    }
  }
  ::prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
}
#endif

TEST(KvMemory, GoesWithItsLastBlockWhoeverHoldsIt) {
  for (const size_t size : kSizes) {
    auto memory = std::make_unique<KvMemory>();
    KvMemory::Block first = memory->NewBlock(0, size), second = memory->NewBlock(0, size), shared = second;
    const std::byte *a = first.get(), *b = second.get();
    memory.reset();
    first.reset();
    second.reset();
    EXPECT_TRUE(IsMapped(a) && IsMapped(b));
    std::memset(shared.get(), 1, size);
    shared.reset();
    EXPECT_FALSE(IsMapped(a) || IsMapped(b)) << size;
  }
}

TEST(KvMemory, DroppingBlocksOfAWindowGivesBackThoughOtherLayersKeepTheirs) {
  const auto memory = std::make_shared<KvMemory>();
  KvCache whole(KvType::kF16, 8, 128, 0, memory), windowed(KvType::kF16, 8, 128, 100, memory);
  const int64_t end = 64 * kPagePositions;
  for (int64_t position = 0; position < end; position += kPagePositions) {
    whole.Reserve(position, position + kPagePositions);
    windowed.Reserve(position, position + kPagePositions);
  }
  const std::byte *kept = whole.pages()[0], *dropped = windowed.pages()[0];
  EXPECT_TRUE(IsMapped(kept) && IsMapped(dropped));
  windowed.DropBefore(end);
  EXPECT_TRUE(IsMapped(kept) && IsMapped(windowed.pages()[0]));
  EXPECT_FALSE(IsMapped(dropped));
}

}  // namespace
}  // namespace cmforge::engine
