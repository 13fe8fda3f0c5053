// What the tests of the container share: a folder that is removed again, files of the test data, bytes of
// files.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace cmforge::cmf {

namespace fs = std::filesystem;

inline std::vector<std::byte> ReadAll(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  EXPECT_TRUE(stream) << path;
  const std::string text((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  const Bytes bytes = AsBytes(text);
  return {bytes.begin(), bytes.end()};
}

inline void WriteAll(const fs::path& path, Bytes bytes) {
  std::ofstream stream(path, std::ios::binary);
  stream.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

inline fs::path DataFolder() { return fs::path(CMFORGE_TEST_DATA) / "cmf"; }

/// The .cmf files of the test data, sorted; of a set of shards the first only.
inline std::vector<fs::path> AllFixtures() {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(DataFolder())) {
    const std::string name = entry.path().filename().string();
    const bool is_later_shard = name.find("-of-") != name.npos && name.find("-00001-of-") == name.npos;
    if (entry.path().extension() == ".cmf" && !is_later_shard) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

class InFolder : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ =
        fs::path(testing::TempDir()) / (std::string("cmf_") + info->test_suite_name() + "_" + info->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  [[nodiscard]] size_t Entries() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  fs::path folder_;
};

}  // namespace cmforge::cmf
