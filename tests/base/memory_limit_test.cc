// The memory limit of a container, and what counts against it.
#include "base/memory_limit.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <vector>

namespace cmforge {
namespace {

namespace fs = std::filesystem;

class MemoryLimits : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) / ("cmforge-memory-" + std::to_string(::getpid()));
    fs::remove_all(root_);
    fs::create_directories(root_ / "memory");
  }
  void TearDown() override { fs::remove_all(root_); }
  void Write(const std::string& name, const std::string& text) { std::ofstream(root_ / name) << text; }
  fs::path root_;
};

TEST_F(MemoryLimits, TheLeastOfWhatIsSaidBinds) {
  const uint64_t machine = MemoryLimit(root_);
  EXPECT_GT(machine, uint64_t{64} << 20);  // physical memory
  Write("memory.max", "max\n");
  EXPECT_EQ(MemoryLimit(root_), machine);
  Write("memory.max", "33554432\n");
  EXPECT_EQ(MemoryLimit(root_), 33554432u);
  Write("memory/memory.limit_in_bytes", "16777216\n");
  EXPECT_EQ(MemoryLimit(root_), 16777216u);
  Write("memory/memory.limit_in_bytes", "9223372036854771712\n");  // v1's word for none
  EXPECT_EQ(MemoryLimit(root_), 33554432u);
  Write("memory.max", "nonsense");
  EXPECT_EQ(MemoryLimit(root_), machine);
}

TEST(UsedMemory, GrowsWithWhatIsWrittenAndNotWithWhatIsMapped) {
  const uint64_t before = UsedMemory();
  if (before == 0) GTEST_SKIP() << "procfs is not here";
  std::vector<char> block(size_t{64} << 20, 1);
  const uint64_t after = UsedMemory();
  EXPECT_GE(after, before + (uint64_t{60} << 20));
  EXPECT_EQ(block[12345], 1);
}

}  // namespace
}  // namespace cmforge
