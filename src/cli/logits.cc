// cmforge logits: the model's raw answer to a list of token ids, for scripts and parity.
#include <cmath>

#include "cli/command.h"
#include "cli/model_argument.h"
#include "cli/specialist_flags.h"
#include "generate/generator.h"

namespace cmforge::cli {
namespace {

struct Options {
  ModelArgument model;
  ComputeFlags compute;
  SpecialistFlags specialist;
  std::string tokens;
  bool all = false;
  int64_t top = 0;
};

// Written by hand: a float prints with the fewest digits that read back the same, which a JSON library that
// knows only doubles cannot do.
void AppendPosition(std::string& out, int64_t position, std::span<const float> row, int64_t top) {
  const auto number = [](float v) { return std::isfinite(v) ? fmt::format("{}", v) : std::string("null"); };
  out += fmt::format("{{\"position\":{},", position);
  if (top > 0) {
    out += "\"top\":[";
    bool first = true;
    for (const auto& [id, logit] : TopLogits(row, top)) {
      out += fmt::format("{}{{\"id\":{},\"logit\":{}}}", first ? "" : ",", id, number(logit));
      first = false;
    }
  } else {
    out += "\"logits\":[";
    for (size_t i = 0; i < row.size(); ++i) {
      if (i) out += ',';
      out += number(row[i]);
    }
  }
  out += "]}";
}

Result<int> Logits(const Cli& cli, const Options& options) {
  CMF_TRY(const std::vector<TokenId> tokens, ParseTokenList(options.tokens));
  CMF_TRY(const OpenedSource source, options.model.Open(cli));
  if (source.config) CMF_CHECK(CheckTokenIds(tokens, *source.config));
  CMF_TRY(const Specialist specialist,
          LoadSpecialist(cli, source, options.compute, options.specialist, tokens));
  const auto& model = specialist.model;
  CMF_TRY(const SequenceOptions sequence_options, options.compute.Sequence());
  CMF_TRY(const auto sequence, model->NewSequence(sequence_options));
  std::string out = fmt::format("{{\"tokens\":[{}],\"positions\":[", fmt::join(tokens, ","));
  if (!options.all) {
    CMF_TRY(const std::vector<float> row,
            Prefill(*model, *sequence, tokens, specialist.active(), cli.Control()));
    AppendPosition(out, static_cast<int64_t>(tokens.size()) - 1, row, options.top);
  } else {
    constexpr size_t kRows = 32;  // logits of this many positions are held at once
    for (size_t at = 0; at < tokens.size(); at += kRows) {
      CMF_CHECK(cli.Control().CheckCancelled());
      const size_t n = std::min(kRows, tokens.size() - at);
      const StepItem item{sequence.get(), std::span(tokens).subspan(at, n), LogitRows::kAll,
                          specialist.active()};
      CMF_TRY(const StepResult step, model->Step({{&item, 1}, nullptr}));
      for (size_t i = 0; i < n; ++i) {
        if (at + i) out += ',';
        AppendPosition(out, static_cast<int64_t>(at + i), step.Row(static_cast<int64_t>(i)), options.top);
      }
    }
  }
  PrintJson(out + "]}");
  return kDone;
}

}  // namespace

void AddLogits(Cli& cli) {
  auto options = std::make_shared<Options>();
  CLI::App* command = cli.Add("logits", "Logits for a list of token ids, as JSON",
                              "cmforge logits model.cmf --tokens 1,2,3 --top 5 --compute exact");
  options->model.AddTo(command);
  options->compute.AddTo(command);
  options->specialist.AddTo(command);
  command->add_option("--tokens", options->tokens, "Ids separated by commas, or @FILE")->required();
  command->add_flag("--all", options->all, "Every position, not only the last");
  command->add_option("--top", options->top, "Only the K largest")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  command->callback([&cli, options] { cli.action = [&cli, options] { return Logits(cli, *options); }; });
}

}  // namespace cmforge::cli
