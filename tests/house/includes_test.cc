// The house has no arrow that runs upward: a file in src/<room> includes only from its own room and from
// rooms on lower floors (ARCHITECTURE.md, Floors).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <string>

namespace {

const std::map<std::string, int> kFloor = {
    {"base", 0},       {"model", 1}, {"quant", 2},     {"text", 2},   {"mil", 2},     {"kernels", 3},
    {"checkpoint", 3}, {"cmf", 3},   {"generate", 3},  {"engine", 4}, {"convert", 4}, {"coreml", 4},
    {"open", 5},       {"train", 5}, {"diffusion", 5}, {"server", 6}, {"capi", 6},    {"cli", 7},
};

/// What is wrong with one #include line of a file in `room`, or "".
std::string Complaint(const std::string& room, const std::string& line) {
  static const std::regex kInclude("^\\s*#\\s*include\\s*\"([^\"]+)\"");
  std::smatch match;
  if (!std::regex_search(line, match, kInclude)) return "";
  const std::string path = match[1];
  const size_t slash = path.find('/');
  if (slash == std::string::npos) return "names no room: write \"room/" + path + "\"";
  const std::string other = path.substr(0, slash);
  if (other == room || other == "cmforge") return "";
  const auto floor = kFloor.find(other);
  if (floor == kFloor.end()) return "'" + other + "' is not a room";
  if (floor->second >= kFloor.at(room)) return "runs upward: " + room + " -> " + other;
  return "";
}

TEST(House, NoIncludeRunsUpward) {
  const std::filesystem::path src = CMFORGE_SOURCE_DIR "/src";
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(src)) {
    const auto extension = entry.path().extension();
    if (extension != ".cc" && extension != ".h" && extension != ".mm") continue;
    ++files;
    const std::string room = *std::filesystem::relative(entry.path(), src).begin();
    ASSERT_TRUE(kFloor.contains(room)) << entry.path() << ": not in a room";
    std::ifstream file(entry.path());
    int number = 0;
    for (std::string line; std::getline(file, line);) {
      ++number;
      EXPECT_EQ(Complaint(room, line), "") << entry.path().string() << ":" << number << ": " << line;
    }
  }
  EXPECT_GT(files, 20);
}

TEST(House, TheCheckItselfSeesUpwardArrows) {
  EXPECT_NE(Complaint("base", "#include \"model/dtype.h\""), "");
  EXPECT_NE(Complaint("cmf", "#include \"checkpoint/safetensors.h\""), "");  // same floor
  EXPECT_NE(Complaint("engine", "  # include \"cli/command.h\""), "");
  EXPECT_NE(Complaint("base", "#include \"bytes.h\""), "");
  EXPECT_EQ(Complaint("engine", "#include \"base/bytes.h\""), "");
  EXPECT_EQ(Complaint("engine", "#include <vector>"), "");
}

}  // namespace
