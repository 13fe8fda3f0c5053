// cmforge convert: a checkpoint (or any other source) becomes a .cmf file.
#include "cli/conversion.h"
#include "cli/model_argument.h"

namespace cmforge::cli {
namespace {

struct Options {
  ModelArgument model;
  std::string output;
  EncodingFlags encodings;
  bool no_tokenizer = false;
};

Result<int> Convert(const Cli& cli, const Options& options) {
  CMF_TRY(const OpenedSource source, options.model.Open(cli));
  CMF_TRY(const ConvertReport report,
          ConvertSource(cli, source, options.encodings, options.no_tokenizer, options.output));
  PrintReport(cli, report, source, options.output);
  return kDone;
}

}  // namespace

void AddConvert(Cli& cli) {
  auto options = std::make_shared<Options>();
  CLI::App* command = cli.Add("convert", "Package a checkpoint as a .cmf file",
                              "cmforge convert --model ./Qwen3-0.6B --quant q4t --output qwen3.cmf");
  command->add_option("--model", options->model.path, "A Hugging Face folder, or any other model")
      ->required();
  command->add_option("-o,--output", options->output, "The .cmf file to write")->required();
  options->encodings.quant = "q8";
  options->encodings.AddTo(command, "q8");
  command->add_flag("--no-tokenizer", options->no_tokenizer, "Leave the tokenizer out");
  command->callback([&cli, options] { cli.action = [&cli, options] { return Convert(cli, *options); }; });
}

}  // namespace cmforge::cli
