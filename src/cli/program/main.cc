// The program: reads the command line, runs one command, turns an error into one line and an exit code.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <new>
#include <system_error>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/empty_arguments.h"
#include "cli/environment.h"
#include "cli/signals.h"
#include "kernels/isa.h"

namespace {

using namespace cmforge;       // NOLINT
using namespace cmforge::cli;  // NOLINT

int StandardOutputFailed() {
  PrintError("standard output: writing failed: free some space, or write elsewhere");
  return ExitCode(ErrorKind::kIo);
}

/// The status of what CLI11 wrote to std::cout.
int Shown(int status) { return std::cout.flush() ? status : StandardOutputFailed(); }

int Run(int argc, char** argv) {
  Cli cli;
  cli.app.require_subcommand(1);
  cli.app.set_version_flag("--version", fmt::format("cmforge {} ({})", CMFORGE_VERSION, IsaName(BestIsa())));
  for (auto* add : {AddRun,        AddChat,     AddConvert, AddRequant,   AddInfo,     AddVerify,
                    AddDequant,    AddPpl,      AddBench,   AddLogits,    AddGenerate, AddTokenize,
                    AddDetokenize, AddTemplate, AddJinja,   AddCoreml,    AddMask,     AddSkill,
                    AddRoute,      AddMoeStats, AddMoeMask, AddMoeDefrag, AddSign,     AddShard,
                    AddCalibrate,  AddUnshard,  AddCompact, AddDiff,      AddExport,   AddDefrag}) {
    add(cli);
  }
  NameEnvironment(cli.app, std::span(argv, static_cast<size_t>(argc)).subspan(argc > 0 ? 1 : 0));
  const auto commands = cli.app.get_subcommands({});
  if (argc > 1 && argv[1][0] != '-' && std::none_of(commands.begin(), commands.end(), [&](const CLI::App* c) {
        return c->get_name() == argv[1];
      })) {
    PrintError(fmt::format("command line: no command '{}': see `cmforge --help`", argv[1]));
    return ExitCode(ErrorKind::kUsage);
  }
  try {
    cli.app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return Shown(cli.app.exit(help));
  } catch (const CLI::CallForAllHelp& help) {
    return Shown(cli.app.exit(help));
  } catch (const CLI::CallForVersion& version) {
    return Shown(cli.app.exit(version));
  } catch (const CLI::ParseError& error) {
    std::string command;  // "coreml check "
    for (const CLI::App* app = &cli.app; !app->get_subcommands().empty();) {
      app = app->get_subcommands()[0];
      command += app->get_name() + " ";
    }
    PrintError(fmt::format("command line: {}: see `cmforge {}--help`", error.what(), command));
    return ExitCode(ErrorKind::kUsage);
  }
  if (const auto isa = ParseIsa(cli.common.isa); !isa) {
    PrintError(fmt::format("--isa: {}", isa.error().message));
    return ExitCode(isa.error().kind);
  }
  if (const auto named = RefuseEmptyModels(cli.app); !named) {
    PrintError(named.error().message);
    return ExitCode(named.error().kind);
  }
  InstallSignalHandlers();
  const auto result = cli.action();
  // Nothing that was said may be lost unnoticed: a full disk behind a redirection shows only here.
  if (result && (std::fflush(stdout) != 0 || std::ferror(stdout))) return StandardOutputFailed();
  if (result) return *result;
  if (result.error().kind == ErrorKind::kCancelled) {
    PrintToStderr("cmforge: interrupted\n");
  } else {
    PrintError(result.error().message);
  }
  return ExitCode(result.error().kind);
}

}  // namespace

int main(int argc, char** argv) {
  OccupyStandardDescriptors();
  try {
    return Run(argc, argv);
  } catch (const std::bad_alloc&) {
    PrintError("out of memory: close other programs, or use a smaller model or context");
    return ExitCode(ErrorKind::kLimit);
  } catch (const std::system_error& error) {  // a thread that could not be started, or fmt::print
    if (std::ferror(stdout)) return StandardOutputFailed();
    PrintError(fmt::format("threads: {}: raise the limits, or use fewer --threads", error.what()));
    return ExitCode(ErrorKind::kLimit);
  } catch (const std::exception& error) {
    PrintError(fmt::format("unexpected: {}", error.what()));
    return ExitCode(ErrorKind::kInternal);
  }
}
