// cmforge ppl: perplexity on a text, and the distance between two models.
#include <cstdio>

#include "cli/active_flags.h"
#include "cli/command.h"
#include "cli/model_argument.h"
#include "generate/perplexity.h"

namespace cmforge::cli {
namespace {

struct Options {
  ModelArgument model, against;
  ComputeFlags compute;
  ActiveFlags active;
  std::string file;
  int64_t context = 512, stride = 0, tokens = 0;
};

Result<int> Ppl(const Cli& cli, const Options& options) {
  CMF_TRY(const OpenedSource source, options.model.Open(cli));
  CMF_TRY(const auto tokenizer, LoadTokenizer(source));
  CMF_TRY(const MappedFile text, MappedFile::Open(options.file));
  CMF_TRY(const std::vector<TokenId> ids, tokenizer->Encode(AsText(text.bytes())));
  ComputeFlags compute = options.compute;
  compute.context = 0;  // --context is the window here
  CMF_TRY(const auto model, LoadModel(cli, source, compute));
  std::shared_ptr<LanguageModel> second;
  std::optional<OpenedSource> second_source;
  if (!options.against.path.empty()) {
    CMF_TRY(second_source, options.against.Open(cli));
    CMF_TRY(second, LoadModel(cli, *second_source, compute));
  }
  PerplexityOptions ppl;
  ppl.context = options.context;
  ppl.stride = options.stride;
  ppl.max_tokens = options.tokens;
  CMF_TRY(const auto active, options.active.Make(source));
  ppl.active = active.get();
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
             result.tokens, result.windows, options.context);
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
  command->add_option("--compute", options->compute.compute, "fast, or exact")
      ->check(CLI::IsMember({"fast", "exact"}));
  command->add_option("--kv", options->compute.kv, "Type of the KV cache: f32, f16, q8")
      ->check(CLI::IsMember({"f32", "f16", "q8"}));
  options->active.AddTo(command);
  command->add_option("--file", options->file, "The text")->required();
  command->add_option("--context", options->context, "Tokens a window")->capture_default_str();
  command->add_option("--stride", options->stride,
                      "Tokens from one window to the next (default: the window)");
  command->add_option("--tokens", options->tokens, "Only the first N tokens of the text");
  command->add_option("--against", options->against.path,
                      "A second model: KL divergence and agreement with it");
  command->callback([&cli, options] { cli.action = [&cli, options] { return Ppl(cli, *options); }; });
}

}  // namespace cmforge::cli
