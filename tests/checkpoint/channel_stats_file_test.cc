// Channel statistics on disk: the same numbers back, and everything else refused.
#include "checkpoint/channel_stats_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "base/mapped_file.h"

namespace cmforge {
namespace {

class ChannelStatsFile : public testing::Test {
 protected:
  ~ChannelStatsFile() override { std::filesystem::remove(path_); }
  ErrorKind Refused() const {
    const auto read = ReadChannelStats(path_);
    EXPECT_FALSE(read);
    return read ? ErrorKind::kInternal : read.error().kind;
  }
  const std::filesystem::path path_ =
      std::filesystem::path(testing::TempDir()) / fmt::format("channel-{}.stats", getpid());
};

TEST_F(ChannelStatsFile, GivesBackWhatWasWritten) {
  ChannelStats stats;
  stats.tokens = 4096;
  stats.mean_square["b.weight"] = {0.0f, 1.5f, 3e-9f};
  stats.mean_square["a \"quoted\".weight"] = {7.0f};
  stats.row_weight["b.weight"] = {0.25f, 0.0f};
  ASSERT_TRUE(WriteChannelStats(path_, stats));
  const auto bytes = MappedFile::Open(path_);
  ASSERT_TRUE(bytes);
  EXPECT_TRUE(LooksLikeChannelStats(bytes->bytes()));
  const auto read = ReadChannelStats(path_);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->mean_square, stats.mean_square);
  EXPECT_EQ(read->row_weight, stats.row_weight);
  EXPECT_EQ(read->tokens, 4096);
  EXPECT_EQ(read->origin, path_.string());
  for (const char* text : {"", "{", "Once upon a time {", "{\"a\": 1, {", "\t\t\t\t\t\t\t\t{}}"})
    EXPECT_FALSE(LooksLikeChannelStats(AsBytes(text))) << text;
}

TEST_F(ChannelStatsFile, RefusesOtherContents) {
  for (const float bad : {-1.0f, std::nanf(""), std::numeric_limits<float>::infinity()}) {
    ChannelStats stats;
    stats.mean_square["x.weight"] = {1.0f, bad};
    ASSERT_TRUE(WriteChannelStats(path_, stats));
    EXPECT_EQ(Refused(), ErrorKind::kCorrupt) << bad;
    std::swap(stats.mean_square, stats.row_weight);
    ASSERT_TRUE(WriteChannelStats(path_, stats));
    EXPECT_EQ(Refused(), ErrorKind::kCorrupt) << bad;
  }
  const auto write = [&](const std::string& header, size_t data) {
    std::ofstream file(path_, std::ios::binary | std::ios::trunc);
    const uint64_t length = header.size();
    file.write(reinterpret_cast<const char*>(&length), 8);
    file << header << std::string(data, '\0');
  };
  const std::string ours = R"({"__metadata__":{"format":"cmforge-channel-stats","tokens":"1"},)";
  write(ours + R"("x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8);
  EXPECT_TRUE(ReadChannelStats(path_));
  write(ours + R"("x":{"dtype":"F16","shape":[4],"data_offsets":[0,8]}})", 8);
  EXPECT_EQ(Refused(), ErrorKind::kCorrupt);
  write(ours + R"("x":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}})", 8);
  EXPECT_EQ(Refused(), ErrorKind::kCorrupt);
  write(ours + R"("x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 7);
  EXPECT_EQ(Refused(), ErrorKind::kCorrupt);
  write(R"({"__metadata__":{"format":"pt"},"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8);
  EXPECT_EQ(Refused(), ErrorKind::kCorrupt);
}

}  // namespace
}  // namespace cmforge
