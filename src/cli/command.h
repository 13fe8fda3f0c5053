// What every command shares: the flags that all take, the console, and how a command is added. One file a
// command; each adds its subcommand to the Cli and leaves an action that main runs.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>

#include "base/mapped_file.h"
#include "base/progress.h"
#include "base/result.h"
#include "base/thread_pool.h"

namespace cmforge::cli {

struct Common {
  int threads = 0;  // 0: UsableCpus()
  std::string isa;  // empty: the best that runs here
  bool json = false;
  bool no_mmap = false;
  int verbosity = 0;  // -1 quiet, 0, 1 verbose

  [[nodiscard]] std::shared_ptr<ThreadPool> MakePool() const;
  [[nodiscard]] MappedFile::Mode file_mode() const {
    return no_mmap ? MappedFile::Mode::kRead : MappedFile::Mode::kMap;
  }
};

/// Exit codes of cli.md. 1 (the thing checked is not right) comes only from a command's action.
inline constexpr int kDone = 0;
inline constexpr int kNotRight = 1;
[[nodiscard]] int ExitCode(ErrorKind kind);

class Cli {
 public:
  Cli();

  CLI::App app;
  Common common;
  std::function<Result<int>()> action;  // set by the subcommand that was named; its value is the exit code

  /// Progress bars, warnings and Ctrl-C, wired to the console. Valid after parsing.
  [[nodiscard]] RunControl Control() const;

  /// A subcommand with the common flags; `example` is shown at the end of its help.
  CLI::App* Add(const std::string& name, const std::string& summary, const std::string& example);
  /// A command that only has commands below it.
  CLI::App* AddGroup(const std::string& name, const std::string& summary, const std::string& example);
  /// The same as Add below another command ("coreml info").
  CLI::App* AddTo(CLI::App* parent, const std::string& name, const std::string& summary,
                  const std::string& example);

 private:
  void AddCommonFlags(CLI::App* command);
};

/// One JSON value and a newline on stdout.
void PrintJson(const std::string& dumped);

// One per command file.
void AddConvert(Cli& cli);
void AddInfo(Cli& cli);
void AddVerify(Cli& cli);
void AddDequant(Cli& cli);
void AddRun(Cli& cli);
void AddChat(Cli& cli);
void AddLogits(Cli& cli);
void AddGenerate(Cli& cli);
void AddTokenize(Cli& cli);
void AddDetokenize(Cli& cli);
void AddTemplate(Cli& cli);
void AddJinja(Cli& cli);
void AddPpl(Cli& cli);
void AddBench(Cli& cli);
void AddMask(Cli& cli);
void AddSkill(Cli& cli);
void AddRoute(Cli& cli);
void AddRequant(Cli& cli);
void AddCoreml(Cli& cli);
void AddMoeStats(Cli& cli);
void AddMoeMask(Cli& cli);
void AddMoeDefrag(Cli& cli);

}  // namespace cmforge::cli
