// cmforge defrag: a smaller file for one task, without the neurons its mask switches off.
#include "convert/defrag.h"

#include <cstdio>

#include "cli/cmf_files.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/model_argument.h"

namespace cmforge::cli {
namespace {

struct Options {
  ModelArgument model;
  std::string task, output;
};

Result<int> Defrag(const Cli& cli, const Options& options) {
  CMF_TRY(const OpenedSource source, options.model.Open(cli));
  CMF_TRY(const auto file, NeedCmf(source));
  CMF_CHECK(CheckOutput(source, options.output));
  const auto pool = cli.common.MakePool();
  CMF_TRY(const DefragReport report,
          DefragFile(*file, options.task, "cmforge " CMFORGE_VERSION, options.output, *pool, cli.Control()));
  const FfnKeepSummary& neurons = report.neurons;
  if (cli.common.json) {
    PrintJson(DumpJson(Json{{"output", options.output},
                            {"task", options.task},
                            {"kept_per_layer", neurons.kept_per_layer},
                            {"widest_before", neurons.widest_before},
                            {"widest_after", neurons.widest_after},
                            {"pruned_ratio", neurons.pruned_ratio},
                            {"q8_2f_instead", report.wider},
                            {"bytes_before", report.bytes_before},
                            {"bytes", report.bytes_after}}));
  } else if (cli.common.verbosity >= 0) {
    fmt::print("{}: {:.1f}% of the neurons are gone, at most {} of {} stay in a layer: {} instead of {}\n",
               options.output, neurons.pruned_ratio * 100, neurons.widest_after, neurons.widest_before,
               HumanBytes(static_cast<double>(report.bytes_after)),
               HumanBytes(static_cast<double>(report.bytes_before)));
    if (!report.wider.empty())
      fmt::print("{} tensors are q8_2f now, '{}' first: their new width does not fit their encoding\n",
                 report.wider.size(), report.wider[0]);
  }
  return kDone;
}

}  // namespace

void AddDefrag(Cli& cli) {
  auto options = std::make_shared<Options>();
  CLI::App* command = cli.Add("defrag", "Cut the neurons that a task does not use",
                              "cmforge defrag model.cmf --task coding --output coding.cmf");
  command->add_option("FILE", options->model.path, "A .cmf file with masks, or any shard of a set")
      ->required();
  command->add_option("--task", options->task, "The task whose mask decides")->required();
  command->add_option("-o,--output", options->output, "The new file, for that task alone")->required();
  command->callback([&cli, options] { cli.action = [&cli, options] { return Defrag(cli, *options); }; });
}

}  // namespace cmforge::cli
