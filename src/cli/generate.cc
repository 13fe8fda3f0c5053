// cmforge generate: token ids in, token ids out, for scripts and parity. Greedy unless sampling is asked for.
#include <cstdio>

#include "cli/command.h"
#include "cli/model_argument.h"
#include "cli/sampling_flags.h"
#include "cli/specialist_flags.h"
#include "generate/generator.h"

namespace cmforge::cli {
namespace {

struct Options {
  ModelArgument model;
  ComputeFlags compute;
  SpecialistFlags specialist;
  SamplingFlags sampling;
  std::string tokens;
  int64_t max_tokens = 16;
  bool ignore_eos = false;
};

Result<int> GenerateIds(const Cli& cli, const Options& options) {
  CMF_TRY(const std::vector<TokenId> prompt, ParseTokenList(options.tokens));
  CMF_TRY(const OpenedSource source, options.model.Open(cli));
  if (source.config) CMF_CHECK(CheckTokenIds(prompt, *source.config));
  CMF_TRY(const Specialist specialist,
          LoadSpecialist(cli, source, options.compute, options.specialist, prompt));
  const auto& model = specialist.model;
  CMF_TRY(const SequenceOptions sequence_options, options.compute.Sequence());
  CMF_TRY(const auto sequence, model->NewSequence(sequence_options));
  GenerateOptions generate;
  generate.active = specialist.active();
  generate.max_tokens = options.max_tokens;
  CMF_TRY(generate.sampling, options.sampling.Make(source.sampling));
  generate.eos = EosIds(source);
  generate.ignore_eos = options.ignore_eos;
  CMF_TRY(const GenerateResult result, Generate(*model, *sequence, prompt, generate, {}, cli.Control()));
  if (cli.common.json) {
    PrintJson(fmt::format(
        "{{\"prompt\":[{}],\"tokens\":[{}],\"finish\":\"{}\",\"context_is_full\":{},\"drafted\":{},"
        "\"accepted\":{}}}",
        fmt::join(prompt, ","), fmt::join(result.tokens, ","), FinishName(result.finish),
        result.context_is_full, result.drafted, result.accepted));
  } else {
    fmt::print("{}\n", fmt::join(result.tokens, ","));
  }
  return result.finish == FinishReason::kCancelled ? ExitCode(ErrorKind::kCancelled) : kDone;
}

}  // namespace

void AddGenerate(Cli& cli) {
  auto options = std::make_shared<Options>();
  CLI::App* command = cli.Add("generate", "Token ids in, token ids out",
                              "cmforge generate model.cmf --tokens 1,2,3 -n 16 --greedy --json");
  options->model.AddTo(command);
  options->compute.AddTo(command);
  options->specialist.AddTo(command);
  options->sampling.AddTo(command);
  command->add_option("--tokens", options->tokens, "Ids separated by commas, or @FILE")->required();
  command->add_option("-n,--max-tokens", options->max_tokens, "New tokens at most")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30))
      ->capture_default_str();
  command->add_flag("--ignore-eos", options->ignore_eos, "Go on behind end tokens");
  command->callback([&cli, options] { cli.action = [&cli, options] { return GenerateIds(cli, *options); }; });
}

}  // namespace cmforge::cli
