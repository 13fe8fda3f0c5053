// Common flags, exit codes and the console behind RunControl.
#include "cli/command.h"

#include <cstdio>

#include "base/cpu_limit.h"
#include "cli/console.h"
#include "cli/signals.h"

namespace cmforge::cli {

int ExitCode(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kUsage:
      return 2;
    case ErrorKind::kNotFound:
      return 3;
    case ErrorKind::kCorrupt:
      return 4;
    case ErrorKind::kUnsupported:
      return 5;
    case ErrorKind::kIo:
      return 6;
    case ErrorKind::kLimit:
      return 7;
    case ErrorKind::kCancelled:
      return 130;
    case ErrorKind::kInternal:
      return 70;  // EX_SOFTWARE: our own mistake
  }
  return 70;
}

std::shared_ptr<ThreadPool> Common::MakePool() const {
  return std::make_shared<ThreadPool>(threads > 0 ? threads : UsableCpus());
}

Cli::Cli()
    : app("cmforge packages language models (CMF v2, Core ML for the Neural Engine) and runs them.",
          "cmforge") {}

void Cli::AddCommonFlags(CLI::App* command) {
  command->add_option("--threads", common.threads, "Threads to use (default: usable cores)")
      ->check(CLI::Range(1, 1024));
  command->add_option(
      "--isa", common.isa,
      "Kernels to use: reference, avx2, avx512, amx, neon, neon-i8mm (default: the best here)");
  command->add_flag("--json", common.json, "Print one JSON object on stdout");
  command->add_flag("--no-mmap,--hot", common.no_mmap,
                    "Copy files to memory on huge pages instead of mapping them: decodes faster, costs their "
                    "size. With --task also what its mask leaves of feed-forward networks, side by side");
  command->add_flag_callback(
      "-v,--verbose", [this] { common.verbosity = 1; }, "Say more");
  command->add_flag_callback(
      "-q,--quiet", [this] { common.verbosity = -1; }, "Say only errors");
}

CLI::App* Cli::Add(const std::string& name, const std::string& summary, const std::string& example) {
  return AddTo(&app, name, summary, example);
}

CLI::App* Cli::AddGroup(const std::string& name, const std::string& summary, const std::string& example) {
  CLI::App* command = Add(name, summary, example);
  command->require_subcommand(1);
  return command;
}

CLI::App* Cli::AddTo(CLI::App* parent, const std::string& name, const std::string& summary,
                     const std::string& example) {
  CLI::App* command = parent->add_subcommand(name, summary);
  command->footer("Example:\n  " + example);
  AddCommonFlags(command);
  return command;
}

RunControl Cli::Control() const {
  auto console = std::make_shared<Console>(common.verbosity);
  RunControl control;
  control.progress = [console](std::string_view what, int64_t done, int64_t total, ProgressUnit unit) {
    console->Progress(what, done, total, unit);
  };
  control.log = [console](LogLevel level, std::string_view message) { console->Log(level, message); };
  control.cancelled = &Interrupted();
  return control;
}

void PrintJson(const std::string& dumped) {
  std::fwrite(dumped.data(), 1, dumped.size(), stdout);
  std::fputc('\n', stdout);
  std::fflush(stdout);
}

}  // namespace cmforge::cli
