// cmforge moe-stats: which experts a text's tokens choose, counted layer by layer.
#include <algorithm>
#include <cstdio>
#include <map>

#include "base/atomic_file.h"
#include "cli/active_flags.h"
#include "cli/command.h"
#include "cli/input.h"
#include "cli/model_argument.h"
#include "generate/generator.h"

namespace cmforge::cli {
namespace {

constexpr int64_t kUsualWindow = 512;

struct Options {
  ModelArgument model;
  ComputeFlags compute;
  std::string file, output;
  int64_t context = 0, tokens = 0;  // 0: not given
};

/// Counts choices. Layers of a looped model count the choices of all their visits.
class ChoiceCounter final : public StepObserver {
 public:
  ChoiceCounter(const std::map<int64_t, int64_t>& experts, int64_t layers) : layers_(layers) {
    for (const auto& [layer, count] : experts) stats_.counts[layer].resize(static_cast<size_t>(count));
  }
  void OnRoute(int visit, int /*item*/, std::span<const int32_t> experts,
               std::span<const float> /*weights*/) override {
    auto& counts = stats_.counts.at(visit % layers_);
    for (const int32_t e : experts) {
      if (e >= 0) ++counts[static_cast<size_t>(e)];
    }
  }
  [[nodiscard]] const cmf::ExpertStats& stats() const { return stats_; }

 private:
  int64_t layers_;
  cmf::ExpertStats stats_;
};

void PrintTable(const cmf::ExpertStats& stats, int64_t tokens, const std::string& output) {
  constexpr double kCovers[] = {0.8, 0.9, 0.95, 0.99, 1.0};
  fmt::print("{}: {} tokens\n{:>7} {:>8}", output, tokens, "layer", "experts");
  for (const double cover : kCovers) fmt::print(" {:>7}", fmt::format("{:.0f}%", cover * 100));
  fmt::print("   experts that cover so many choices\n");
  for (const auto& [layer, counts] : stats.counts) {
    fmt::print("{:>7} {:>8}", layer, counts.size());
    for (const double cover : kCovers) fmt::print(" {:>7}", cmf::CoveringExperts(counts, cover).size());
    fmt::print("\n");
  }
}

Result<int> MoeStats(const Cli& cli, const Options& options) {
  const RunControl control = cli.Control();
  CMF_TRY(const OpenedSource source, options.model.Open(cli));
  CMF_CHECK(RequireTensors(source));
  CMF_CHECK(CheckOutput(source, options.output));
  CMF_CHECK(CheckNotInput(options.file, options.output));
  const auto experts =
      source.config ? cmf::ExpertsOfLayers(*source.tensors, *source.config) : std::map<int64_t, int64_t>();
  if (experts.empty()) {
    return Fail(ErrorKind::kUsage,
                fmt::format("{}: no layer has experts: there is nothing to count", source.path));
  }
  CMF_TRY(const int64_t most, ContextLength(*source.config, options.context));
  const int64_t context = options.context > 0 ? options.context : std::min(kUsualWindow, most);
  CMF_TRY(const auto tokenizer, LoadTokenizer(source));
  CMF_TRY(const MappedFile text, MappedFile::Open(options.file));
  CMF_TRY(std::vector<TokenId> ids, tokenizer->Encode(AsText(text.bytes())));
  if (options.tokens > 0 && static_cast<int64_t>(ids.size()) > options.tokens) {
    ids.resize(static_cast<size_t>(options.tokens));
  }
  if (ids.empty()) return Fail(ErrorKind::kUsage, fmt::format("{}: no tokens: give a text", options.file));
  ComputeFlags compute = options.compute;
  compute.context = 0;  // --context is the window here
  CMF_TRY(const auto model, LoadModel(cli, source, compute));
  CMF_TRY(SequenceOptions sequence_options, options.compute.Sequence());
  sequence_options.context_length = context;
  ChoiceCounter counter(experts, model->config().num_layers);
  const auto window = static_cast<size_t>(sequence_options.context_length);
  for (size_t at = 0; at < ids.size(); at += window) {
    CMF_CHECK(control.CheckCancelled());
    CMF_TRY(const auto sequence, model->NewSequence(sequence_options));
    const StepItem item{sequence.get(), std::span(ids).subspan(at, std::min(window, ids.size() - at)),
                        LogitRows::kNone, nullptr};
    CMF_TRY(const StepResult step, model->Step({{&item, 1}, &counter}));
    control.Report("counting", static_cast<int64_t>(std::min(at + window, ids.size())),
                   static_cast<int64_t>(ids.size()), ProgressUnit::kTokens);
  }
  const std::string dumped = cmf::DumpExpertStats(counter.stats());
  CMF_CHECK(WriteFileAtomically(options.output, AsBytes(dumped + "\n")));
  const auto tokens = static_cast<int64_t>(ids.size());
  if (cli.common.json) {
    PrintJson(DumpJson({{"output", options.output}, {"tokens", tokens}, {"counts", Json::parse(dumped)}}));
  } else {
    PrintTable(counter.stats(), tokens, options.output);
  }
  return kDone;
}

}  // namespace

void AddMoeStats(Cli& cli) {
  auto options = std::make_shared<Options>();
  CLI::App* command = cli.Add("moe-stats", "Count which experts the tokens of a text choose",
                              "cmforge moe-stats model.cmf --file code.txt -o code.json");
  options->model.AddTo(command);
  options->compute.AddWithoutContextTo(command);
  command->add_option("--file", options->file, "The text: of the task that the experts are chosen for")
      ->required();
  command->add_option("-o,--output", options->output, "The statistics, as JSON")->required();
  command
      ->add_option(
          "--context", options->context,
          fmt::format(
              "Tokens a window; each begins anew (default: {}, or the model's own limit if that is less)",
              kUsualWindow))
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  command->add_option("--tokens", options->tokens, "Only the first N tokens of the text")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30));
  command->callback([&cli, options] { cli.action = [&cli, options] { return MoeStats(cli, *options); }; });
}

}  // namespace cmforge::cli
