// A folder of one test, removed with it, and safetensors files written by hand.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace cmforge {

class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "cmforge-checkpoint-XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  std::filesystem::path Write(const std::string& name, std::string_view bytes) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << bytes;
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

/// A file with that header and `data_size` bytes 0, 1, 2, ... behind it.
inline std::string SafetensorsBytes(std::string_view header, size_t data_size = 0) {
  std::string file(8, '\0');
  StoreLe<uint64_t>(reinterpret_cast<std::byte*>(file.data()), header.size());
  file += header;
  for (size_t i = 0; i < data_size; ++i) file.push_back(static_cast<char>(i));
  return file;
}

inline std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace cmforge
