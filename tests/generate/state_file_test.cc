// State files: what was saved comes back, and a file with any byte changed, missing or added is refused.
#include "generate/state_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "generate/toy_model.h"

namespace cmforge {
namespace {

/// Its snapshot takes any bytes: whatever is refused here, the file itself refuses.
class AnySequence : public ToySequence {
 public:
  using ToySequence::ToySequence;
  Result<std::vector<std::byte>> Snapshot() const override {
    return std::vector<std::byte>(13, std::byte{7});
  }
};

class AnyModel : public ToyModel {
 public:
  AnyModel() : ToyModel(std::vector<std::vector<float>>(9, std::vector<float>(9))) {}
  Result<std::unique_ptr<Sequence>> RestoreSequence(std::span<const std::byte>) const override {
    return std::make_unique<AnySequence>(64);
  }
};

class StateFile : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  void Write(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
  }

  const std::filesystem::path path_ =
      std::filesystem::path(testing::TempDir()) / ("state-" + std::to_string(getpid()));
};

TEST_F(StateFile, EveryChangedByteIsNoticed) {
  const AnyModel model;
  const std::vector<TokenId> tokens = {1, 2, 3, 4, 8};
  ASSERT_TRUE(SaveState(path_, AnySequence(64), tokens));
  const auto saved = LoadState(path_, model);
  ASSERT_TRUE(saved) << saved.error().message;
  EXPECT_EQ(saved->tokens, tokens);
  std::ifstream file(path_, std::ios::binary);
  const std::string good{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  ASSERT_EQ(good.size(), 24u + 5 * 4 + 13);
  for (size_t at = 0; at < good.size(); ++at) {
    for (const int flip : {0x01, 0x02, 0x08, 0x80, 0xFF}) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ flip);
      Write(bad);
      const auto loaded = LoadState(path_, model);
      ASSERT_FALSE(loaded) << "byte " << at << " flipped by " << flip;
      const bool is_version = at >= 8 && at < 12;
      EXPECT_EQ(loaded.error().kind, is_version ? ErrorKind::kUnsupported : ErrorKind::kCorrupt) << at;
    }
  }
  for (size_t size = 0; size < good.size(); ++size) {
    Write(good.substr(0, size));
    EXPECT_FALSE(LoadState(path_, model)) << size;
  }
  Write(good + '\0');
  EXPECT_FALSE(LoadState(path_, model));
  Write(good);
  EXPECT_TRUE(LoadState(path_, model));
}

}  // namespace
}  // namespace cmforge
