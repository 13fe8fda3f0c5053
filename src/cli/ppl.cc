// cmforge ppl: perplexity on a text, and the distance between two models.
#include <algorithm>
#include <cstdio>

#include "cli/command.h"
#include "cli/input.h"
#include "cli/model_argument.h"
#include "cli/specialist_flags.h"
#include "generate/perplexity.h"

namespace cmforge::cli {
namespace {

constexpr int64_t kUsualWindow = 512;

struct Options {
  ModelArgument model, against;
  ComputeFlags compute;
  SpecialistFlags specialist;
  std::string file;
  int64_t context = 0, stride = 0, tokens = 0;  // 0: not given
};

Result<int> Ppl(const Cli& cli, const Options& options) {
  CMF_TRY(const OpenedSource source, options.model.Open(cli));
  CMF_CHECK(CheckRunnable(source));
  CMF_TRY(const auto tokenizer, LoadTokenizer(source));
  CMF_TRY(const MappedFile text, MappedFile::Open(options.file));
  CMF_CHECK(CheckUtf8(AsText(text.bytes()), options.file));
  // The flags are judged before any work.
  PerplexityOptions ppl;
  ppl.stride = options.stride;
  ppl.max_tokens = options.tokens;
  if (source.config) {
    CMF_TRY(const int64_t most, ContextLength(*source.config, options.context));
    ppl.context = options.context > 0 ? options.context : std::min<int64_t>(kUsualWindow, most);
    if (ppl.stride > ppl.context) {
      return Fail(ErrorKind::kUsage,
                  fmt::format("--stride: {} tokens would skip text between windows of {}: give at "
                              "most the window",
                              ppl.stride, ppl.context));
    }
  }
  CMF_TRY(const std::vector<TokenId> ids, tokenizer->Encode(AsText(text.bytes())));
  // The beginning of the text is what --skill auto goes by.
  CMF_TRY(const Specialist specialist,
          LoadSpecialist(cli, source, options.compute, options.specialist,
                         std::span(ids).first(std::min(ids.size(), static_cast<size_t>(ppl.context)))));
  const auto& model = specialist.model;
  std::shared_ptr<LanguageModel> second;
  std::optional<OpenedSource> second_source;
  if (!options.against.path.empty()) {
    CMF_TRY(second_source, options.against.Open(cli));
    CMF_TRY(second, LoadModel(cli, *second_source, options.compute));
  }
  ppl.active = specialist.active();
  CMF_TRY(ppl.sequence, options.compute.Sequence());
  CMF_TRY(const PerplexityResult result, Perplexity(*model, second.get(), ids, ppl, cli.Control()));
  if (cli.common.json) {
    Json json = {
        {"ppl", result.ppl}, {"nll", result.nll}, {"tokens", result.tokens}, {"windows", result.windows}};
    if (const auto& a = result.against) {
      json["against_ppl"] = a->ppl;
      json["kl_mean"] = a->kl_mean;
      json["kl_median"] = a->kl_median;
      json["kl_99"] = a->kl_99;
      json["top1_agreement"] = a->top1_agreement;
      json["ppl_ratio"] = a->ppl_ratio;
    }
    PrintJson(DumpJson(json));
    return kDone;
  }
  fmt::print("perplexity {:.4f} (nll {:.5f}) over {} tokens in {} windows of {}\n", result.ppl, result.nll,
             result.tokens, result.windows, ppl.context);
  if (const auto& a = result.against) {
    fmt::print(
        "against {}: perplexity {:.4f}, ratio {:.5f}\n  KL mean {:.6f}, median {:.6f}, 99% {:.6f}; same "
        "first choice {:.2f}%\n",
        options.against.path, a->ppl, a->ppl_ratio, a->kl_mean, a->kl_median, a->kl_99,
        a->top1_agreement * 100);
  }
  return kDone;
}

}  // namespace

void AddPpl(Cli& cli) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      cli.Add("ppl", "Perplexity on a text", "cmforge ppl model.cmf --file heldout.txt --context 256");
  options->model.AddTo(command);
  options->compute.AddWithoutContextTo(command);
  options->specialist.AddTo(command);
  command->add_option("--file", options->file, "The text")->required();
  constexpr int64_t kMost = int64_t{1} << 30;
  command
      ->add_option("--context", options->context,
                   fmt::format("Tokens a window (default: {}, or the model's own limit if that is less)",
                               kUsualWindow))
      ->check(CLI::Range(int64_t{2}, kMost));
  command->add_option("--stride", options->stride, "Tokens from one window to the next (default: the window)")
      ->check(CLI::Range(int64_t{1}, kMost));
  command->add_option("--tokens", options->tokens, "Only the first N tokens of the text")
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 40));
  command->add_option(
      "--against", options->against.path,
      "A second model: KL divergence and agreement with it, whose cache --kv does not change");
  command->callback([&cli, options] { cli.action = [&cli, options] { return Ppl(cli, *options); }; });
}

}  // namespace cmforge::cli
