// cmforge coreml lint: what devices and runtimes would reject, miscompute or run slowly.
#include <cstdio>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/coreml.h"
#include "coreml/lint/lint.h"

namespace cmforge::cli {
namespace {

using coreml::lint::Finding;
using coreml::lint::Severity;

constexpr size_t kShownPlaces = 4;

/// Findings that differ in their place alone, told once.
struct Group {
  const Finding* first = nullptr;
  std::vector<std::pair<std::string, std::vector<std::string>>> places;  // part and function; operations
};

std::vector<Group> Grouped(const std::vector<Finding>& findings) {
  std::vector<Group> groups;
  for (const Finding& f : findings) {
    Group* group = nullptr;
    for (Group& one : groups) {
      if (one.first->rule == f.rule && one.first->reason == f.reason) group = &one;
    }
    if (!group) group = &groups.emplace_back(Group{&f, {}});
    const std::string place = f.function.empty() ? f.part : fmt::format("{}: {}", f.part, f.function);
    if (group->places.empty() || group->places.back().first != place) group->places.push_back({place, {}});
    if (!f.operation.empty()) group->places.back().second.push_back(f.operation);
  }
  return groups;
}

std::string Shortened(const std::vector<std::string>& items) {
  const size_t shown = std::min(items.size(), kShownPlaces);
  std::string text =
      fmt::format("{}", fmt::join(items.begin(), items.begin() + static_cast<long>(shown), ", "));
  if (shown < items.size()) text += fmt::format(" and {} more", items.size() - shown);
  return text;
}

void Print(const coreml::lint::Report& report) {
  const bool colour = StdoutHasColour();
  const auto paint = [&](Severity severity, std::string_view text) {
    static constexpr const char* kColours[] = {"\033[31m", "\033[33m", "\033[36m"};
    return colour ? fmt::format("{}{}\033[0m", kColours[static_cast<size_t>(severity)], text)
                  : std::string(text);
  };
  for (const Group& group : Grouped(report.findings)) {
    const Finding& f = *group.first;
    fmt::print("{} {}: {}\n", paint(f.severity, SeverityName(f.severity)), f.rule, f.reason);
    size_t shown = 0;
    for (const auto& [place, operations] : group.places) {
      if (++shown > kShownPlaces) break;
      fmt::print("    at {}{}{}\n", place, operations.empty() ? "" : ": ", Shortened(operations));
    }
    if (group.places.size() > kShownPlaces)
      fmt::print("    and {} functions more\n", group.places.size() - kShownPlaces);
    fmt::print("    {}\n", f.remedy);
  }
  fmt::print("{}: {} errors, {} warnings, {} notes in {} models\n", report.path.string(),
             report.Count(Severity::kError), report.Count(Severity::kWarning), report.Count(Severity::kNote),
             report.parts.size());
  fmt::print(
      "wired memory on the Neural Engine, estimated (every function has its own copy of the weights):\n");
  for (const coreml::lint::FunctionMemory& one : report.memory) {
    fmt::print("  {:<44} {:<10} {:>10}\n", one.part, one.function,
               HumanBytes(static_cast<double>(one.weight_bytes)));
  }
  fmt::print("  {:<55} {:>10}", "all", HumanBytes(static_cast<double>(report.MemoryBytes())));
  if (report.state_bytes > 0)
    fmt::print(", and {} of states a conversation", HumanBytes(static_cast<double>(report.state_bytes)));
  fmt::print("\n");
}

Result<int> Lint(const Cli& cli, const std::string& path) {
  CMF_TRY(const coreml::lint::Report report, coreml::lint::Inspect(path, cli.common.file_mode()));
  if (cli.common.json) {
    PrintJson(DumpJson(ToJson(report)));
  } else {
    Print(report);
  }
  return report.Count(Severity::kError) == 0 ? kDone : kNotRight;
}

}  // namespace

void AddCoremlLint(Cli& cli, CLI::App* parent) {
  auto path = std::make_shared<std::string>();
  CLI::App* command = cli.AddTo(
      parent, "lint", "Find what Core ML, the Neural Engine or ANEMLL's runtimes would not take or do slowly",
      "cmforge coreml lint ./qwen3-ane        (exit code 1: an error was found)");
  command->add_option("path", *path, "A .mlpackage, .mlmodelc or .mlmodel, or a folder with meta.yaml")
      ->required();
  command->callback([&cli, path] { cli.action = [&cli, path] { return Lint(cli, *path); }; });
}

}  // namespace cmforge::cli
