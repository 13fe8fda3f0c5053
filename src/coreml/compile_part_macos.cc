// Apple's compiler, when the developer tools are installed: `xcrun coremlcompiler compile PACKAGE FOLDER` writes
// FOLDER/NAME.mlmodelc.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include <string>
#include <vector>

#include "coreml/compile_part.h"

extern char** environ;

namespace cmforge::coreml {
namespace {

namespace fs = std::filesystem;

/// Exit code of a program, its output thrown away; -1 when it cannot be started.
int RunQuietly(std::vector<std::string> arguments) {
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (const int fd : {1, 2}) posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_WRONLY, 0);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  if (error != 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

}  // namespace

Result<void> CompilePart(const mil::Package& package, const fs::path& target) {
  if (RunQuietly({"xcrun", "--find", "coremlcompiler"}) != 0) return mil::WriteCompiled(package, target);
  CMF_TRY(mil::StagedFolder staged, mil::StagedFolder::Create(target));
  const int code =
      RunQuietly({"xcrun", "coremlcompiler", "compile", package.path.string(), staged.path().string()});
  if (code != 0) {
    return Fail(ErrorKind::kUnsupported,
                fmt::format("{}: coremlcompiler ended with code {}", package.path.string(), code));
  }
  // The compiler makes a folder inside; its contents are what is wanted.
  const fs::path made = staged.path() / (package.path.stem().string() + ".mlmodelc");
  std::error_code error;
  std::vector<fs::path> contents;
  for (fs::directory_iterator it(made, error), end; !error && it != end; it.increment(error))
    contents.push_back(it->path());
  for (const fs::path& entry : contents) {
    if (!error) fs::rename(entry, staged.path() / entry.filename(), error);
  }
  if (!error) fs::remove(made, error);
  if (error) return Fail(ErrorKind::kIo, fmt::format("{}: {}", target.string(), error.message()));
  return staged.Commit();
}

}  // namespace cmforge::coreml
