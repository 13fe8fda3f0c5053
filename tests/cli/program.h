// Runs the real program: arguments in, exit code, stdout and stderr out.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/json.h"

extern char** environ;

namespace cmforge {

struct Ran {
  int status = -1;  // exit code, or 128 + signal
  std::string out, err;

  [[nodiscard]] Json json() const {
    auto parsed = ParseJson(out, "stdout");
    EXPECT_TRUE(parsed) << out << err;
    return parsed ? *parsed : Json();
  }
};

inline std::string Slurp(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// A folder of one test, removed at its end.
class CliTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(testing::TempDir()) /
              ("cmforge-" + std::to_string(getpid()) + "-" + info->test_suite_name() + "-" + info->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string Path(const std::string& name) const { return (folder_ / name).string(); }

  Ran Run(std::vector<std::string> arguments, const std::string& input = "",
          std::vector<std::string> environment = {}) {
    arguments.insert(arguments.begin(), CMFORGE_PROGRAM);
    std::ofstream(folder_ / ".in", std::ios::binary) << input;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, Path(".in").c_str(), O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, Path(".out").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_addopen(&actions, 2, Path(".err").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    std::vector<char*> argv, envp;
    for (std::string& a : arguments) argv.push_back(a.data());
    argv.push_back(nullptr);
    for (char** e = environ; *e; ++e) envp.push_back(*e);
    for (std::string& e : environment) envp.push_back(e.data());
    envp.push_back(nullptr);
    pid_t pid = 0;
    const int error = posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), envp.data());
    posix_spawn_file_actions_destroy(&actions);
    EXPECT_EQ(error, 0) << arguments[0];
    int status = 0;
    waitpid(pid, &status, 0);
    Ran ran;
    ran.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    ran.out = Slurp(folder_ / ".out");
    ran.err = Slurp(folder_ / ".err");
    return ran;
  }

  std::filesystem::path folder_;
};

}  // namespace cmforge
