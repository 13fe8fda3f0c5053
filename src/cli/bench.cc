// cmforge bench: prompt and decode speed, bytes read a token and what share of the machine's read bandwidth
// that is.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/read_bandwidth.h"
#include "cli/specialist_flags.h"
#include "coreml/package_model.h"
#include "engine/profile.h"
#include "generate/generator.h"

namespace cmforge::cli {
namespace {

constexpr int64_t kUsualPrompt = 512, kUsualAnswer = 128;
constexpr int64_t kFirstTokenPrompt = 32;

struct Options {
  ModelArgument model;
  ComputeFlags compute;
  SpecialistFlags specialist;
  std::vector<int64_t> prompt_tokens, depth = {0};  // no prompts: kUsualPrompt
  int64_t gen_tokens = kNotGiven, repeat = 3;
  static constexpr int64_t kNotGiven = -1;
  bool profile = false;
};

using Clock = std::chrono::steady_clock;
double SecondsSince(Clock::time_point begun) {
  return std::chrono::duration<double>(Clock::now() - begun).count();
}

/// The share of a layer's feed-forward that a mask leaves in whole groups of 32, over all visits; of nothing
/// where its gate is shut.
double LiveShare(const ActiveSet& active, int64_t layer, int64_t layers, bool is_feed_forward) {
  if (!active.layer_gates.empty() && !cmf::TestBit(active.layer_gates, layer)) return 0;
  if (!is_feed_forward || active.ffn.empty()) return 1;
  int64_t live = 0, all = 0;
  for (size_t row = static_cast<size_t>(layer); row < active.ffn.size(); row += static_cast<size_t>(layers)) {
    for (size_t byte = 0; byte < active.ffn[row].size(); byte += 4) {
      const auto end = std::min(byte + 4, active.ffn[row].size());
      live += std::any_of(active.ffn[row].begin() + static_cast<std::ptrdiff_t>(byte),
                          active.ffn[row].begin() + static_cast<std::ptrdiff_t>(end),
                          [](uint8_t b) { return b != 0; });
      ++all;
    }
  }
  return all > 0 ? static_cast<double>(live) / static_cast<double>(all) : 1;
}

int64_t LayerOf(std::string_view name) {
  constexpr std::string_view kLayers = "model.layers.";
  return name.starts_with(kLayers) ? std::atoll(std::string(name.substr(kLayers.size())).c_str()) : -1;
}

/// What one decoded token reads: every matrix of the layers (of experts, the chosen share; under a mask, the live
/// groups of neurons) and the head.
uint64_t BytesPerToken(const TensorSource& source, const ModelConfig& config, const ActiveSet* active) {
  double bytes = 0;
  const bool has_head = source.Find("lm_head.weight") != nullptr;
  for (const TensorInfo& tensor : source.tensors()) {
    const std::string_view name = tensor.name;
    if (name.starts_with("skill.") || name.find(".mtp.") != name.npos) continue;
    double share = 1;
    if (name.find("embed_tokens") != name.npos) {
      if (has_head && !tensor.shape.empty())
        share = 1.0 / static_cast<double>(std::max<int64_t>(1, tensor.shape[0]));
    } else if (name.find(".mlp.experts.") != name.npos && config.moe && config.moe->num_experts > 0) {
      share = static_cast<double>(config.moe->top_k) / static_cast<double>(config.moe->num_experts);
    }
    if (const int64_t layer = LayerOf(name); active != nullptr && layer >= 0 && layer < config.num_layers) {
      const bool is_feed_forward = name.find(".mlp.") != name.npos && name.find("expert") == name.npos;
      share *= LiveShare(*active, layer, config.num_layers, is_feed_forward);
    }
    bytes += share * static_cast<double>(tensor.nbytes);
  }
  return static_cast<uint64_t>(bytes * static_cast<double>(config.num_loops));
}

double PrivateMib() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  for (std::string key; rollup >> key;) {
    if (key == "Anonymous:") {
      double kib = 0;
      rollup >> kib;
      return kib / 1024;
    }
  }
  return 0;
}

/// Ids that look like text to the model: spread over the vocabulary, the same every time.
std::vector<TokenId> Tokens(int64_t count, int64_t vocab) {
  std::vector<TokenId> ids;
  SplitMix64 random(42);
  for (int64_t i = 0; i < count; ++i)
    ids.push_back(static_cast<TokenId>(random.Next() % static_cast<uint64_t>(vocab)));
  return ids;
}

/// What was not given becomes what is usual and fits; what was given and does not fit is refused before any work.
Result<void> Plan(Options& options, int64_t context) {
  const auto check = [&](std::string_view what, int64_t tokens) -> Result<void> {
    if (tokens <= context) return {};
    return Fail(ErrorKind::kLimit,
                fmt::format("{}: {} tokens do not fit a context of {}: give less, or a larger "
                            "--context if the model has one",
                            what, tokens, context));
  };
  if (options.prompt_tokens.empty()) options.prompt_tokens = {std::min(kUsualPrompt, context)};
  for (const int64_t n : options.prompt_tokens) CMF_CHECK(check("--prompt-tokens", n));
  int64_t deepest = 1;  // decoding begins behind one token at least
  for (const int64_t depth : options.depth) deepest = std::max(deepest, depth);
  CMF_CHECK(check("--depth", deepest));
  if (options.gen_tokens == Options::kNotGiven)
    options.gen_tokens = std::min(kUsualAnswer, context - deepest);
  return check("--depth and --gen-tokens", deepest + options.gen_tokens);
}

using Entries = std::vector<engine::Profile::Entry>;

/// Seconds in feed-forward networks, experts included.
double FeedForwardSeconds(const Entries& entries) {
  double seconds = 0;
  for (const auto& entry : entries) {
    if (entry.op == engine::Operator::kFeedForward || entry.op == engine::Operator::kExperts)
      seconds += entry.seconds;
  }
  return seconds;
}

/// Several runs of one thing, under the mask and, where that shuts something off, without it in turns.
class Runs {
 public:
  Runs(std::shared_ptr<engine::Profile> profile, bool is_masked, int64_t repeat)
      : profile_(std::move(profile)), is_masked_(is_masked), repeat_(repeat) {}

  /// `run`: from whether the mask shall be used, if there is one, to the seconds of one run, for which it has reset the
  /// profile.
  template <class Run>
  Result<void> Measure(Run&& run) {
    for (int64_t r = 0; r < repeat_; ++r) {
      CMF_TRY(const double seconds, run(true));
      Entries entries = profile_->Entries();
      feed_forward_ = Least(feed_forward_, FeedForwardSeconds(entries));
      if (best_ == 0 || seconds < best_) {
        best_ = seconds;
        entries_ = std::move(entries);
      }
      if (!is_masked_) continue;
      CMF_TRY(const double whole, run(false));
      (void)whole;
      whole_feed_forward_ = Least(whole_feed_forward_, FeedForwardSeconds(profile_->Entries()));
    }
    return {};
  }

  [[nodiscard]] double best() const { return best_; }  // seconds
  [[nodiscard]] const Entries& entries() const { return entries_; }
  /// How much faster the feed-forward networks are under the mask; 0 where that was not measured.
  [[nodiscard]] double speedup() const {
    return feed_forward_ > 0 && whole_feed_forward_ > 0 ? whole_feed_forward_ / feed_forward_ : 0;
  }

 private:
  static double Least(double a, double b) { return a == 0 ? b : std::min(a, b); }

  std::shared_ptr<engine::Profile> profile_;
  bool is_masked_;
  int64_t repeat_;
  double best_ = 0, feed_forward_ = 0, whole_feed_forward_ = 0;
  Entries entries_;
};

void ReportSpeedup(const Cli& cli, const Runs& runs, Json& json) {
  if (runs.speedup() == 0) return;
  json["feed_forward_speedup"] = runs.speedup();
  if (!cli.common.json)
    fmt::print("  feed-forward: {:.2f} times as fast as without the mask\n", runs.speedup());
}

/// Time per operator of one run over `tokens` tokens.
void Report(const Cli& cli, const Entries& entries, int64_t tokens, Json& json) {
  double total = 0;
  for (const auto& entry : entries) total += entry.seconds;
  Json list = Json::array();
  for (const auto& [op, calls, seconds] : entries) {
    const double share = total > 0 ? seconds / total : 0,
                 micros = seconds * 1e6 / static_cast<double>(tokens);
    list.push_back({{"operator", engine::OperatorName(op)},
                    {"calls", calls},
                    {"us_per_token", micros},
                    {"share", share}});
    if (!cli.common.json) {
      fmt::print("  {:<20} {:>8} calls {:>11.2f} us/token {:>6.1f}%\n", engine::OperatorName(op), calls,
                 micros, share * 100);
    }
  }
  json["operators"] = std::move(list);
}

Result<int> Bench(const Cli& cli, Options options) {
  const RunControl control = cli.Control();
  const auto begun = Clock::now();
  CMF_TRY(const OpenedSource source, options.model.Open(cli));
  if (source.config) {
    CMF_TRY(const int64_t context, ContextLength(*source.config, options.compute.context));
    CMF_CHECK(Plan(options, context));
  }
  const auto profile = std::make_shared<engine::Profile>();
  const bool is_restricted =
      !options.specialist.task.empty() || !options.specialist.experts.expert_stats.empty();
  const bool is_timed = options.profile || (is_restricted && !source.package);
  CMF_TRY(const Specialist specialist,
          LoadSpecialist(cli, source, options.compute, options.specialist, {}, is_timed ? profile : nullptr));
  const auto& model = specialist.model;
  const std::pair masked(specialist.model.get(), specialist.active());
  const std::pair whole(specialist.whole.get(), static_cast<const ActiveSet*>(nullptr));
  const double load_ms = SecondsSince(begun) * 1e3;
  CMF_TRY(SequenceOptions sequence_options, options.compute.Sequence());
  const auto vocab = model->config().vocab_size;
  const int threads = cli.common.MakePool()->threads();

  // First token: open to sample, with a prompt of 32.
  CMF_TRY(const auto first, model->NewSequence(sequence_options));
  CMF_TRY(const auto logits,
          Prefill(*model, *first, Tokens(std::min(kFirstTokenPrompt, first->context_length()), vocab),
                  specialist.active(), control));
  (void)ArgMax(logits);
  const double ttft_ms = SecondsSince(begun) * 1e3;

  uint64_t bytes_per_token = BytesPerToken(*source.tensors, model->config(), specialist.task.active.get());
  if (source.package) {
    CMF_TRY(bytes_per_token, coreml::PackageWeightBytes(source.path, *source.package));
  }
  ThreadPool pool(threads);
  auto pages = WeightPages(source.tensors.get());
  const double before = MeasureReadBandwidth(pool, pages);
  Json json = {{"model", source.path}, {"bytes_per_token", bytes_per_token}, {"read_bandwidth_gbs", before},
               {"threads", threads},   {"prefill", Json::array()},           {"decode", Json::array()}};
  if (!specialist.task.name.empty()) json["task"] = specialist.task.name;
  if (!specialist.skill.empty()) json["skill"] = specialist.skill;
  if (!cli.common.json) {
    fmt::print("{}: {} read per token, {} threads, load {:.1f} ms, first token {:.0f} ms\n", source.path,
               HumanBytes(static_cast<double>(bytes_per_token)), threads, load_ms, ttft_ms);
  }
  for (const int64_t n : options.prompt_tokens) {
    if (n == 0) continue;
    Runs runs(profile, specialist.task.active != nullptr, options.repeat);
    CMF_CHECK(runs.Measure([&](bool is_masked) -> Result<double> {
      const auto& [tested, set] = is_masked ? masked : whole;
      CMF_TRY(const auto sequence, tested->NewSequence(sequence_options));
      profile->Reset();
      const auto at = Clock::now();
      CMF_TRY(const auto row, Prefill(*tested, *sequence, Tokens(n, vocab), set, control));
      return SecondsSince(at);
    }));
    const double best = static_cast<double>(n) / runs.best();
    json["prefill"].push_back({{"tokens", n}, {"tok_s", best}});
    if (!cli.common.json) fmt::print("prefill {:>6} tokens: {:>8.1f} tok/s\n", n, best);
    ReportSpeedup(cli, runs, json["prefill"].back());
    if (options.profile) Report(cli, runs.entries(), n, json["prefill"].back());
  }
  double highest = before;
  for (const int64_t depth : options.depth) {
    if (options.gen_tokens == 0) break;
    double bandwidth = 0;
    Runs runs(profile, specialist.task.active != nullptr, options.repeat);
    CMF_CHECK(runs.Measure([&](bool is_masked) -> Result<double> {
      const auto& [tested, set] = is_masked ? masked : whole;
      // Readings just before and after each run: a shared machine's memory changes from second to second.
      bandwidth = std::max(bandwidth, MeasureReadBandwidth(pool, pages, 1));
      CMF_TRY(const auto sequence, tested->NewSequence(sequence_options));
      CMF_TRY(auto row,
              Prefill(*tested, *sequence, Tokens(std::max<int64_t>(depth, 1), vocab), set, control));
      profile->Reset();
      const auto at = Clock::now();
      for (int64_t i = 0; i < options.gen_tokens; ++i) {
        CMF_CHECK(control.CheckCancelled());
        const TokenId token = ArgMax(row);
        const StepItem item{sequence.get(), {&token, 1}, LogitRows::kLast, set};
        CMF_TRY(StepResult step, tested->Step({{&item, 1}, nullptr}));
        row = std::move(step.logits);
      }
      return SecondsSince(at);
    }));
    const double best = static_cast<double>(options.gen_tokens) / runs.best();
    bandwidth = std::max(bandwidth, MeasureReadBandwidth(pool, pages, 1));
    highest = std::max(highest, bandwidth);
    const double gbs = best * static_cast<double>(bytes_per_token) / 1e9;
    json["decode"].push_back({{"depth", depth},
                              {"tok_s", best},
                              {"gbs", gbs},
                              {"read_bandwidth_gbs", bandwidth},
                              {"of_bandwidth", bandwidth > 0 ? gbs / bandwidth : 0}});
    if (!cli.common.json) {
      fmt::print(
          "decode at {:>6}: {:>8.1f} tok/s, {:.1f} GB/s of weights, {:.0f}% of the {:.1f} GB/s this machine "
          "reads now\n",
          depth, best, gbs, gbs / bandwidth * 100, bandwidth);
    }
    ReportSpeedup(cli, runs, json["decode"].back());
    if (options.profile) Report(cli, runs.entries(), options.gen_tokens, json["decode"].back());
  }
  json["read_bandwidth_gbs"] = highest;
  json["load_ms"] = load_ms;
  json["ttft_ms"] = ttft_ms;
  pages.clear();  // memory of our own, where the weights have no pages to read
  json["rss_private_mib"] = PrivateMib();
  if (cli.common.json) PrintJson(DumpJson(json));
  return kDone;
}

}  // namespace

void AddBench(Cli& cli) {
  auto options = std::make_shared<Options>();
  CLI::App* command = cli.Add("bench", "Measure prompt and decode speed",
                              "cmforge bench model.cmf --prompt-tokens 512 --gen-tokens 128 --depth 0,2048");
  options->model.AddTo(command);
  options->compute.AddTo(command);
  options->specialist.AddTo(command);
  const CLI::Range count(int64_t{0}, int64_t{1} << 30);
  command
      ->add_option("--prompt-tokens", options->prompt_tokens,
                   fmt::format("Lengths of prompts, 0 for none (default: {}, or the context if that is less)",
                               kUsualPrompt))
      ->delimiter(',')
      ->check(count);
  command
      ->add_option(
          "--gen-tokens", options->gen_tokens,
          fmt::format("Tokens to decode, 0 for none (default: {}, or what fits the context)", kUsualAnswer))
      ->check(count);
  command->add_option("--depth", options->depth, "Tokens in the cache before decoding")
      ->delimiter(',')
      ->check(count)
      ->capture_default_str();
  command->add_flag("--profile", options->profile, "Time per operator, of the best run");
  command->add_option("--repeat", options->repeat, "Runs of each; the best counts")
      ->check(CLI::Range(int64_t{1}, int64_t{1000}))
      ->capture_default_str();
  command->callback([&cli, options] { cli.action = [&cli, options] { return Bench(cli, *options); }; });
}

}  // namespace cmforge::cli
