// cmforge convert: a checkpoint (or any other source) becomes a .cmf file.
#include "cli/conversion.h"
#include "cli/model_argument.h"
#include "cli/source_state.h"

namespace cmforge::cli {
namespace {

struct Options {
  ModelArgument model;
  std::string output;
  EncodingFlags encodings;
  ConversionExtras extras;
};

Result<int> Convert(const Cli& cli, const Options& options) {
  CMF_TRY(const OpenedSource source, options.model.Open(cli));
  CMF_TRY(const ConvertReport report,
          ConvertSource(cli, source, options.encodings, options.extras, options.output));
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
  command
      ->add_option("-o,--output", options->output,
                   "The .cmf file to write; an older one of that name is replaced")
      ->required();
  options->encodings.quant = "q8";
  options->encodings.AddTo(command, "q8");
  command->add_option("--masks", options->extras.masks.folder,
                      "Task masks: a folder of keep-sets NAME.npy [layers, neurons], with NAME.heads.npy, "
                      "NAME.gates.npy and NAME.quality.json where there are any");
  command->add_flag("--sparse-index", options->extras.masks.sparse_index,
                    "Write the deprecated index of the masks as well");
  command->add_flag("--no-tokenizer", options->extras.no_tokenizer, "Leave the tokenizer out");
  command
      ->add_option("--shard-max-gb", options->extras.shard_max_gb,
                   "Write shards OUTPUT-0000N-of-0000M.cmf of at most so many gigabytes, weighed as float32")
      ->check(CLI::Range(1e-9, 1e9));
  command->add_option(
      "--defrag", options->extras.defrag,
      "Folder with tensors/*.npy (baked feed-forward weights) and ffn_keep.npy: cut the other neurons");
  command->add_flag(
      "--resume", options->extras.resume,
      "Go on with a conversion that was interrupted or killed, and keep the work if this one is");
  command->callback([&cli, options, command] {
    cli.action = [&cli, options, command] {
      options->extras.identity = CommandIdentity(*command);
      return Convert(cli, *options);
    };
  });
}

}  // namespace cmforge::cli
