// cmforge moe-mask and moe-defrag: a file for a task, from statistics of which experts it uses. The first
// adds a task mask beside the full set of experts, the second drops the others.
#include <cstdio>

#include "cli/active_flags.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/model_argument.h"
#include "cmf/rewrite.h"
#include "convert/expert_defrag.h"

namespace cmforge::cli {
namespace {

struct Options {
  ModelArgument model;
  std::string stats, name, output;
  double cover = 0.95;
};

Result<OpenedSource> OpenCmf(const Cli& cli, const Options& options) {
  CMF_TRY(OpenedSource source, options.model.Open(cli));
  if (!source.cmf) {
    return Fail(ErrorKind::kUsage,
                fmt::format("{}: not a .cmf file: convert it first (`cmforge convert`)", source.path));
  }
  CMF_CHECK(CheckOutput(source, options.output));
  return source;
}

Json KeptJson(const cmf::ExpertSelection& selection) {
  Json kept = Json::object();
  for (const auto& [layer, ids] : selection.kept) kept[std::to_string(layer)] = ids;
  return kept;
}

Result<int> MoeMask(const Cli& cli, const Options& options) {
  CMF_TRY(const OpenedSource source, OpenCmf(cli, options));
  const cmf::File& file = *source.cmf;
  if (file.masks().Find(options.name) != nullptr) {
    return Fail(ErrorKind::kUsage, fmt::format("{}: mask '{}' is there already: choose another --name",
                                               source.path, options.name));
  }
  if (file.is_skill_file() || !file.is_complete()) {
    return Fail(ErrorKind::kUnsupported,
                fmt::format("{}: not a whole model: masks belong to a whole one", source.path));
  }
  CMF_TRY(const cmf::ExpertStats stats, LoadExpertStats(options.stats));
  CMF_TRY(const cmf::ExpertSelection selection,
          cmf::SelectExperts(stats, options.cover, file, file.config()));
  cmf::Contents contents = cmf::ContentsOf(file);
  cmf::TaskMask mask;
  mask.task_id = 1;
  for (const cmf::TaskMask& other : contents.masks.masks)
    mask.task_id = std::max(mask.task_id, other.task_id + 1);
  mask.name = options.name;
  mask.description = fmt::format("experts that cover {:g} of the recorded choices, {} layers", options.cover,
                                 selection.kept.size());
  mask.sparsity = static_cast<double>(selection.Dropped()) /
                  static_cast<double>(std::max<int64_t>(1, selection.Kept() + selection.Dropped()));
  CMF_CHECK(cmf::RestrictExperts(mask.bits, selection, file.config()));
  if (contents.masks.default_task.empty()) contents.masks.default_task = "general";
  contents.masks.masks.push_back(std::move(mask));
  CMF_TRY(const cmf::WriteSummary summary, cmf::WriteCmf(options.output, contents, cli.Control()));
  if (cli.common.json) {
    PrintJson(DumpJson({{"output", options.output},
                        {"name", options.name},
                        {"cover", options.cover},
                        {"kept", KeptJson(selection)},
                        {"bytes", summary.bytes}}));
  } else {
    fmt::print("{}: task '{}' chooses among {} of {} experts in {} layers\n", options.output, options.name,
               selection.Kept(), selection.Kept() + selection.Dropped(), selection.kept.size());
  }
  return kDone;
}

Result<int> MoeDefrag(const Cli& cli, const Options& options) {
  CMF_TRY(const OpenedSource source, OpenCmf(cli, options));
  CMF_TRY(const cmf::ExpertStats stats,
          options.stats.empty() ? EmbeddedExpertStats(*source.cmf) : LoadExpertStats(options.stats));
  CMF_TRY(const ExpertDefragReport report,
          DefragExperts(*source.cmf, stats, options.cover, "cmforge " CMFORGE_VERSION, options.output,
                        cli.Control()));
  const cmf::ExpertSelection& selection = report.selection;
  if (cli.common.json) {
    PrintJson(DumpJson({{"output", options.output},
                        {"cover", options.cover},
                        {"kept", KeptJson(selection)},
                        {"dropped", selection.Dropped()},
                        {"remapped_masks", report.remapped_masks},
                        {"bytes_before", report.bytes_before},
                        {"bytes", report.bytes_after}}));
  } else {
    fmt::print("{}: {} of {} experts stay in {} layers, {} instead of {}\n", options.output, selection.Kept(),
               selection.Kept() + selection.Dropped(), selection.kept.size(),
               HumanBytes(static_cast<double>(report.bytes_after)),
               HumanBytes(static_cast<double>(report.bytes_before)));
  }
  return kDone;
}

void AddShared(CLI::App* command, const std::shared_ptr<Options>& options) {
  options->model.AddTo(command);
  command->add_option("--cover", options->cover, "Share of the recorded choices that the kept experts cover")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command->add_option("-o,--output", options->output, "The new file")->required();
}

}  // namespace

void AddMoeMask(Cli& cli) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      cli.Add("moe-mask", "Add a task mask that narrows the choice of experts",
              "cmforge moe-mask model.cmf --stats code.json --cover 0.95 --name code --output tasks.cmf");
  AddShared(command, options);
  command->add_option("--stats", options->stats, "Statistics of the task (`cmforge moe-stats`)")->required();
  command->add_option("--name", options->name, "The task's name, for --task")->required();
  command->callback([&cli, options] { cli.action = [&cli, options] { return MoeMask(cli, *options); }; });
}

void AddMoeDefrag(Cli& cli) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      cli.Add("moe-defrag", "Drop the experts that a task does not need",
              "cmforge moe-defrag model.cmf --stats code.json --cover 0.95 --output code.cmf");
  AddShared(command, options);
  command->add_option(
      "--stats", options->stats,
      "Statistics of the task (`cmforge moe-stats`); default: those an earlier moe-defrag left inside");
  command->callback([&cli, options] { cli.action = [&cli, options] { return MoeDefrag(cli, *options); }; });
}

}  // namespace cmforge::cli
