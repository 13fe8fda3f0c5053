// Paths and whole files for the tests of this room.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace cmforge::mil {

inline std::filesystem::path TestData(const std::string& name) {
  return std::filesystem::path(CMFORGE_TEST_DATA) / name;
}

inline std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline std::filesystem::path FreshFolder() {
  const auto* info = testing::UnitTest::GetInstance()->current_test_info();
  const auto folder =
      std::filesystem::path(testing::TempDir()) / (std::string(info->test_suite_name()) + "." + info->name());
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

inline void WriteAll(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

inline const char* const kModels[] = {
    "mil/quantized_constexpr/input.mlmodel", "mil/fp16_subnormal/input.mlmodel",
    "coreml/lut_widths.mlpackage/Data/com.apple.CoreML/model.mlmodel",
    "coreml/kv_two_functions.mlpackage/Data/com.apple.CoreML/model.mlmodel"};

}  // namespace cmforge::mil
