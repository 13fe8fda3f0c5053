// Which names are those of files that a killed process left, and that nobody else's are taken for them.
#include "base/unfinished.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/atomic_file.h"
#include "base/bytes.h"

namespace cmforge {
namespace {

namespace fs = std::filesystem;

/// The number of a process that has ended.
pid_t GonePid() {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(0);
  ::waitpid(pid, nullptr, 0);
  return pid;
}

TEST(Unfinished, LeftoversAreExactlyTheTemporaryNamesOfProcessesThatAreGone) {
  const std::string gone = std::to_string(GonePid());
  EXPECT_TRUE(IsLeftover("a.cmf.tmp-" + gone + "-0", "a.cmf"));
  EXPECT_TRUE(IsLeftover("a.cmf.tmp-" + gone + "-17", "a.cmf"));
  EXPECT_FALSE(IsLeftover("a.cmf.tmp-" + std::to_string(::getpid()) + "-0", "a.cmf"));
  const std::vector<std::string> others = {"a.cmf.tmp-" + gone,
                                           "a.cmf.tmp-" + gone + "-",
                                           "a.cmf.tmp-" + gone + "-notes",
                                           "a.cmf.tmp-" + gone + "-1x",
                                           "a.cmf.tmp-" + gone + "--1",
                                           "a.cmf.tmp--" + gone + "-1",
                                           "a.cmf.tmp-" + gone + " copy",
                                           "b.cmf.tmp-" + gone + "-0",
                                           "a.cmf2.tmp-" + gone + "-0",
                                           "a.cmf.tmp-99999999999999999999-0",
                                           "a.cmf.tmp-0-0",
                                           "a.cmf.tmp-",
                                           "a.cmf",
                                           ""};
  for (const std::string& name : others) {
    EXPECT_FALSE(IsLeftover(name, "a.cmf")) << name;
  }
}

TEST(Unfinished, WritingAFileTakesLeftoversAwayAndNothingElse) {
  const fs::path folder = fs::temp_directory_path() / ("unfinished." + std::to_string(::getpid()));
  fs::create_directories(folder);
  const std::string gone = std::to_string(GonePid());
  const fs::path left = folder / ("a.cmf.tmp-" + gone + "-0"),
                 notes = folder / ("a.cmf.tmp-" + gone + "-notes"),
                 kept = folder / ("a.cmf.tmp-" + gone + "-1");
  std::ofstream(left) << "half";
  std::ofstream(notes) << "mine";
  fs::create_directory(kept);  // files have no such names for folders
  ASSERT_TRUE(WriteFileAtomically(folder / "a.cmf", AsBytes(std::string_view("whole"))));
  EXPECT_FALSE(fs::exists(left));
  EXPECT_TRUE(fs::exists(notes));
  EXPECT_TRUE(fs::exists(kept));
  fs::remove_all(folder);
}

}  // namespace
}  // namespace cmforge
