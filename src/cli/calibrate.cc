// cmforge calibrate: what a text does to the inputs of a model's operators, recorded for encoders and
// palettes.
#include <cstdio>

#include "checkpoint/channel_stats_file.h"
#include "cli/calibration.h"
#include "cli/console.h"
#include "cli/input.h"

namespace cmforge::cli {
namespace {

struct Options {
  ModelArgument model;
  CalibrationText text;
  std::string output;
};

Result<int> CalibrateModel(const Cli& cli, const Options& options) {
  CMF_TRY(const OpenedSource source, options.model.Open(cli));
  CMF_CHECK(RequireTensors(source));
  CMF_CHECK(CheckOutput(source, options.output));
  CMF_CHECK(CheckNotInput(options.text.file, options.output));
  CMF_TRY(const ChannelStats stats, CalibrateOnText(cli, source, options.text));
  CMF_CHECK(WriteChannelStats(options.output, stats));
  if (cli.common.json) {
    PrintJson(DumpJson(
        {{"output", options.output}, {"tokens", stats.tokens}, {"weights", stats.mean_square.size()}}));
  } else if (cli.common.verbosity >= 0) {
    fmt::print("{}: {} tokens, the inputs of {} weights\n", options.output, stats.tokens,
               stats.mean_square.size());
  }
  return kDone;
}

}  // namespace

void AddCalibrate(Cli& cli) {
  auto options = std::make_shared<Options>();
  CLI::App* command = cli.Add("calibrate", "Record what a text does to the inputs of a model's operators",
                              "cmforge calibrate ./Qwen3-0.6B --file text.txt -o qwen3.stats");
  options->model.AddTo(command);
  command->add_option("--file", options->text.file, "The text: like what the model will be used for")
      ->required();
  command
      ->add_option("-o,--output", options->output,
                   "The statistics: a safetensors file with a mean square for every input channel")
      ->required();
  command
      ->add_option(
          "--context", options->text.window,
          "Tokens a window; each begins anew (default: 512, or the model's own limit if that is less)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  command->add_option("--tokens", options->text.tokens, "Stop after N tokens of the text")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30));
  command->callback(
      [&cli, options] { cli.action = [&cli, options] { return CalibrateModel(cli, *options); }; });
}

}  // namespace cmforge::cli
