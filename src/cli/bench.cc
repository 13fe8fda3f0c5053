// cmforge bench: prompt and decode speed, bytes read a token and what share of the machine's read bandwidth
// that is.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>

#include "cli/active_flags.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/model_argument.h"
#include "cli/read_bandwidth.h"
#include "generate/generator.h"

namespace cmforge::cli {
namespace {

struct Options {
  ModelArgument model;
  ComputeFlags compute;
  ActiveFlags active;
  std::vector<int64_t> prompt_tokens = {512}, depth = {0};
  int64_t gen_tokens = 128, repeat = 3;
};

using Clock = std::chrono::steady_clock;
double SecondsSince(Clock::time_point begun) {
  return std::chrono::duration<double>(Clock::now() - begun).count();
}

/// What one decoded token reads: every matrix of the layers (of experts, the chosen share) and the head.
uint64_t BytesPerToken(const TensorSource& source, const ModelConfig& config) {
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

Result<int> Bench(const Cli& cli, const Options& options) {
  const RunControl control = cli.Control();
  const auto begun = Clock::now();
  CMF_TRY(const OpenedSource source, options.model.Open(cli));
  CMF_TRY(const auto model, LoadModel(cli, source, options.compute));
  CMF_TRY(const auto active, options.active.Make(source));
  const double load_ms = SecondsSince(begun) * 1e3;
  CMF_TRY(SequenceOptions sequence_options, options.compute.Sequence());
  const auto vocab = model->config().vocab_size;
  const int threads = cli.common.MakePool()->threads();

  // First token: open to sample, with a prompt of 32.
  CMF_TRY(const auto first, model->NewSequence(sequence_options));
  CMF_TRY(const auto logits,
          Prefill(*model, *first, Tokens(std::min<int64_t>(32, first->context_length()), vocab),
                  active.get(), control));
  (void)ArgMax(logits);
  const double ttft_ms = SecondsSince(begun) * 1e3;

  const uint64_t bytes_per_token = BytesPerToken(*source.tensors, model->config());
  ThreadPool pool(threads);
  const double before = MeasureReadBandwidth(pool);
  Json json = {{"model", source.path}, {"bytes_per_token", bytes_per_token}, {"read_bandwidth_gbs", before},
               {"threads", threads},   {"prefill", Json::array()},           {"decode", Json::array()}};
  if (!cli.common.json) {
    fmt::print("{}: {} read per token, {} threads, load {:.1f} ms, first token {:.0f} ms\n", source.path,
               HumanBytes(static_cast<double>(bytes_per_token)), threads, load_ms, ttft_ms);
  }
  for (const int64_t n : options.prompt_tokens) {
    if (n <= 0) continue;
    double best = 0;
    for (int64_t r = 0; r < options.repeat; ++r) {
      CMF_TRY(const auto sequence, model->NewSequence(sequence_options));
      const auto at = Clock::now();
      CMF_TRY(const auto row, Prefill(*model, *sequence, Tokens(n, vocab), active.get(), control));
      best = std::max(best, static_cast<double>(n) / SecondsSince(at));
    }
    json["prefill"].push_back({{"tokens", n}, {"tok_s", best}});
    if (!cli.common.json) fmt::print("prefill {:>6} tokens: {:>8.1f} tok/s\n", n, best);
  }
  double bandwidth = before;
  for (const int64_t depth : options.depth) {
    if (options.gen_tokens <= 0) break;
    double best = 0;
    for (int64_t r = 0; r < options.repeat; ++r) {
      CMF_TRY(const auto sequence, model->NewSequence(sequence_options));
      CMF_TRY(auto row,
              Prefill(*model, *sequence, Tokens(std::max<int64_t>(depth, 1), vocab), active.get(),
                      control));
      const auto at = Clock::now();
      for (int64_t i = 0; i < options.gen_tokens; ++i) {
        CMF_CHECK(control.CheckCancelled());
        const TokenId token = ArgMax(row);
        const StepItem item{sequence.get(), {&token, 1}, LogitRows::kLast, active.get()};
        CMF_TRY(StepResult step, model->Step({{&item, 1}, nullptr}));
        row = std::move(step.logits);
      }
      best = std::max(best, static_cast<double>(options.gen_tokens) / SecondsSince(at));
    }
    bandwidth = std::max(bandwidth, MeasureReadBandwidth(pool));
    const double gbs = best * static_cast<double>(bytes_per_token) / 1e9;
    json["decode"].push_back({{"depth", depth},
                              {"tok_s", best},
                              {"gbs", gbs},
                              {"of_bandwidth", bandwidth > 0 ? gbs / bandwidth : 0}});
    if (!cli.common.json) {
      fmt::print(
          "decode at {:>6}: {:>8.1f} tok/s, {:.1f} GB/s of weights, {:.0f}% of the {:.1f} GB/s this machine "
          "reads now\n",
          depth, best, gbs, gbs / bandwidth * 100, bandwidth);
    }
  }
  json["read_bandwidth_gbs"] = bandwidth;
  json["load_ms"] = load_ms;
  json["ttft_ms"] = ttft_ms;
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
  options->active.AddTo(command);
  command->add_option("--prompt-tokens", options->prompt_tokens, "Lengths of prompts")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--gen-tokens", options->gen_tokens, "Tokens to decode")->capture_default_str();
  command->add_option("--depth", options->depth, "Tokens in the cache before decoding")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--repeat", options->repeat, "Runs of each; the best counts")
      ->check(CLI::Range(int64_t{1}, int64_t{1000}))
      ->capture_default_str();
  command->callback([&cli, options] { cli.action = [&cli, options] { return Bench(cli, *options); }; });
}

}  // namespace cmforge::cli
