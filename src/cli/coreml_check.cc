// cmforge coreml check: does a package compute what its checkpoint means?
#include <chrono>
#include <cmath>
#include <cstdio>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/coreml.h"
#include "cli/model_argument.h"
#include "coreml/check.h"
#include "coreml/device_plan.h"
#include "engine/layer_states.h"
#include "generate/generator.h"

namespace cmforge::cli {
namespace {

struct Options {
  std::string package, checkpoint, prompt, tokens, precision = "fp16";
  int64_t prompt_tokens = 0;
  coreml::CheckOptions check;
  std::optional<double> min_cosine, worst_cosine, state_difference;
  bool bench = false, plan = false;
};

constexpr const char* kPrompt =
    "The lighthouse keeper counted the ships every evening and wrote their names into a book.";

/// A prompt is given in one way: another one would be left unused without a word.
Result<void> CheckOnePrompt(const Options& options) {
  std::vector<std::string_view> given;
  if (!options.prompt.empty()) given.push_back("--prompt");
  if (!options.tokens.empty()) given.push_back("--tokens");
  if (options.prompt_tokens > 0) given.push_back("--prompt-tokens");
  if (given.size() < 2) return {};
  return Fail(ErrorKind::kUsage,
              fmt::format("{}: each is a prompt: give one of them", fmt::join(given, ", ")));
}

/// The prompt's ids: given, of a text, or made up when the model knows no text.
Result<std::vector<TokenId>> PromptTokens(const Options& options, const OpenedSource& package,
                                          int64_t vocab) {
  if (!options.tokens.empty()) return ParseTokenList(options.tokens);
  if (options.prompt_tokens > 0 || package.tokenizer_json().empty()) {
    if (!options.prompt.empty())
      return Fail(ErrorKind::kUsage, "--prompt: the package has no tokenizer: give --tokens");
    std::vector<TokenId> ids;
    SplitMix64 random(7);
    const int64_t count = options.prompt_tokens > 0 ? options.prompt_tokens : 24;
    for (int64_t i = 0; i < count; ++i)
      ids.push_back(static_cast<TokenId>(random.Next() % static_cast<uint64_t>(vocab)));
    return ids;
  }
  CMF_TRY(const auto tokenizer, LoadTokenizer(package));
  return tokenizer->Encode(options.prompt.empty() ? kPrompt : options.prompt);
}

struct Speed {
  double prefill = 0, decode = 0;  // tokens a second
};

/// Full batches up to half the context, then single tokens.
Result<Speed> Measure(const LanguageModel& model, int64_t batch, const RunControl& control) {
  using Clock = std::chrono::steady_clock;
  CMF_TRY(const auto sequence, model.NewSequence());
  const int64_t context = sequence->context_length();
  const int64_t batches = std::max<int64_t>(1, std::min<int64_t>(context / 2 / batch, 8));
  const std::vector<TokenId> tokens(static_cast<size_t>(batch), 1);
  const auto feed = [&](int64_t n, LogitRows rows) -> Result<void> {
    CMF_CHECK(control.CheckCancelled());
    const StepItem item{sequence.get(), std::span(tokens).first(static_cast<size_t>(n)), rows, nullptr};
    CMF_TRY(const StepResult step, model.Step({{&item, 1}, nullptr}));
    return {};
  };
  const auto seconds = [](Clock::time_point begun) {
    return std::chrono::duration<double>(Clock::now() - begun).count();
  };
  Speed speed;
  auto begun = Clock::now();
  for (int64_t i = 0; i < batches; ++i) CMF_CHECK(feed(batch, LogitRows::kNone));
  speed.prefill = static_cast<double>(batches * batch) / seconds(begun);
  const int64_t steps = std::min<int64_t>(32, context - batches * batch);
  begun = Clock::now();
  for (int64_t i = 0; i < steps; ++i) CMF_CHECK(feed(1, LogitRows::kLast));
  if (steps > 0) speed.decode = static_cast<double>(steps) / seconds(begun);
  return speed;
}

Json ToJson(const std::vector<coreml::StateDifference>& states) {
  Json json = Json::array();
  for (const coreml::StateDifference& one : states) {
    json.push_back({{"state", one.state},
                    {"part", one.part},
                    {"layers", one.layers},
                    {"worst_layer", one.worst_layer},
                    {"max_abs", one.max_abs},
                    {"max_relative", one.max_relative}});
  }
  return json;
}

Json ToJson(const coreml::CheckResult& r) {
  return {{"positions", r.positions},
          {"cosine_min", r.cosine_min},
          {"cosine_mean", r.cosine_mean},
          {"max_abs", r.max_abs},
          {"top1_agreement", r.top1_agreement},
          {"kl_mean", r.kl_mean},
          {"prefill_infer_max_abs", r.prefill_infer_max_abs},
          {"ok", r.ok},
          {"failed", r.failed},
          {"generated", r.generated},
          {"prefill_calls", r.prefill_calls},
          {"worst_position", r.worst_position},
          {"decided", r.decided},
          {"decided_disagreements", r.decided_disagreements},
          {"state_max_abs", r.state_max_abs},
          {"state_cosine", r.state_cosine},
          {"states", ToJson(r.states)}};
}

Json ToJson(const std::vector<coreml::PlannedFunction>& plan) {
  Json json = Json::array();
  for (const coreml::PlannedFunction& function : plan) {
    Json one = {{"part", function.part}, {"function", function.function}};
    one["operations"] = Json::array();
    for (const coreml::PlannedOperations& ops : function.operations) {
      one["operations"].push_back(
          {{"type", ops.type}, {"count", ops.count}, {"device", ops.device}, {"reason", ops.reason}});
    }
    one["kernels"] = function.kernels;
    json.push_back(std::move(one));
  }
  return json;
}

void Print(const std::vector<coreml::PlannedFunction>& plan) {
  for (const coreml::PlannedFunction& function : plan) {
    fmt::print("\n{}: {}\n", function.part, function.function);
    for (const coreml::PlannedOperations& ops : function.operations)
      fmt::print("  {:<18} {:>5}  {:<4} {}\n", ops.type, ops.count, ops.device, ops.reason);
    fmt::print("  kernels of the interpreter:");
    for (const auto& [kernel, count] : function.kernels) fmt::print(" {} {}", count, kernel);
    fmt::print("\n");
  }
}

Result<int> Check(const Cli& cli, const Options& options) {
  CMF_CHECK(CheckOnePrompt(options));
  const RunControl control = cli.Control();
  CMF_TRY(const OpenedSource package, ModelArgument{options.package}.Open(cli));
  if (!package.package) {
    return Fail(ErrorKind::kUsage,
                fmt::format("{}: no Core ML package: a folder with meta.yaml is wanted", options.package));
  }
  CMF_TRY(const OpenedSource checkpoint, ModelArgument{options.checkpoint}.Open(cli));
  CMF_CHECK(RequireTensors(checkpoint));
  ComputeFlags exact;
  exact.compute = "exact";
  CMF_TRY(const auto reference, LoadModel(cli, checkpoint, exact));
  ComputeFlags flags;
  flags.compute = options.precision == "f32" ? "exact" : "fast";
  CMF_TRY(const auto model, LoadModel(cli, package, flags));
  CMF_TRY(const std::vector<TokenId> prompt, PromptTokens(options, package, model->config().vocab_size));
  coreml::CheckOptions check = options.check;
  // Rounding every result to fp16 costs what it costs; f32 shows whether the graph is right.
  check.min_cosine = options.min_cosine.value_or(options.precision == "f32" ? 0.9999 : 0.999);
  check.worst_cosine = options.worst_cosine.value_or(options.precision == "f32" ? 0.99 : 0.95);
  if (options.precision != "f32") check.decided_gap = std::max(check.decided_gap, 0.1);
  check.max_state_difference = options.state_difference.value_or(std::sqrt(2 * (1 - check.worst_cosine)));
  const int64_t batch = package.package->batch_size;
  CMF_TRY(const coreml::CheckResult result,
          coreml::CheckPackage(*reference, *model, batch, prompt, check, control,
                               {engine::LayerStatesOf, *package.package}));
  Json json = ToJson(result);
  json["precision"] = options.precision;
  json["min_cosine"] = check.min_cosine;
  json["worst_cosine"] = check.worst_cosine;
  json["max_state_difference"] = check.max_state_difference;
  if (!cli.common.json) {
    fmt::print(
        "{} positions ({} prompt tokens, {} generated, {} prefill calls), {}: {}\n"
        "  logits   cosine min {:.7f} at {}, mean {:.7f}; largest difference {:.3g}; KL {:.3g}\n"
        "  choices  {:.2f}% agree; {} of {} decided ones differ\n"
        "  prefill  against infer: logits {:.3g}, states {:.3g} (cosine {:.7f})\n",
        result.positions, prompt.size(), result.generated, result.prefill_calls, options.precision,
        result.ok ? "ok" : "NOT RIGHT", result.cosine_min, result.worst_position, result.cosine_mean,
        result.max_abs, result.kl_mean, result.top1_agreement * 100, result.decided_disagreements,
        result.decided, result.prefill_infer_max_abs, result.state_max_abs, result.state_cosine);
    for (const std::string& one : result.failed) fmt::print("  failed   {}\n", one);
    for (const coreml::StateDifference& one : result.states) {
      fmt::print("  state    {} {}: {:.3g}, relative {:.3g} (worst in layer {}, of {} compared)\n", one.state,
                 one.part, one.max_abs, one.max_relative, one.worst_layer, one.layers);
    }
  }
  if (options.bench) {
    CMF_TRY(const Speed speed, Measure(*model, batch, control));
    json["bench"] = {{"prefill_tok_s", speed.prefill}, {"decode_tok_s", speed.decode}};
    if (!cli.common.json)
      fmt::print("  speed    prefill {:.1f} tok/s, decode {:.1f} tok/s\n", speed.prefill, speed.decode);
  }
  if (options.plan) {
    CMF_TRY(const auto plan, coreml::PlanDevices(options.package, *package.package));
    json["plan"] = ToJson(plan);
    if (!cli.common.json) Print(plan);
  }
  if (cli.common.json) PrintJson(DumpJson(json));
  return result.ok ? kDone : kNotRight;
}

}  // namespace

void AddCoremlCheck(Cli& cli, CLI::App* parent) {
  auto options = std::make_shared<Options>();
  CLI::App* command = cli.AddTo(parent, "check", "Compare a package with the checkpoint it was made from",
                                "cmforge coreml check ./qwen3-ane --hf ./Qwen3-0.6B --precision f32");
  command->add_option("DIR", options->package, "The package folder")->required();
  command->add_option("--hf", options->checkpoint, "The checkpoint (or .cmf file) it was made from")
      ->required();
  command->add_option("--prompt", options->prompt, "Text that the answer is generated behind");
  command->add_option("--tokens", options->tokens, "The prompt as ids separated by commas, or @FILE");
  command->add_option("--prompt-tokens", options->prompt_tokens, "A made-up prompt of so many tokens")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30));
  command->add_option("-n,--max-tokens", options->check.max_tokens, "Tokens to generate")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30))
      ->capture_default_str();
  command
      ->add_option("--precision", options->precision,
                   "fp16: every result rounded, as it will run; f32: whether the graph itself is right")
      ->check(CLI::IsMember({"fp16", "f32"}))
      ->capture_default_str();
  command
      ->add_option("--min-cosine", options->min_cosine,
                   "Smallest mean cosine of logits that passes (default: f32 0.9999, fp16 0.999)")
      ->check(CLI::Range(0.0, 1.0));
  command
      ->add_option("--worst-cosine", options->worst_cosine,
                   "Smallest cosine at any one position that passes (default: f32 0.99, fp16 0.95)")
      ->check(CLI::Range(0.0, 1.0));
  command
      ->add_option(
          "--state-difference", options->state_difference,
          "Largest difference of a state from the engine's that passes, relative to the largest number of "
          "its layer (default: the angle of --worst-cosine c, sqrt(2 (1 - c)))")
      ->check(CLI::Range(0.0, 1000.0));
  command
      ->add_option("--decided-gap", options->check.decided_gap,
                   "Lead of the best token, in standard deviations of the logits, from which on it must be "
                   "the package's best too (fp16: at least 0.1)")
      ->check(CLI::Range(0.0, 1000.0))
      ->capture_default_str();
  command->add_flag("--bench", options->bench, "Measure prefill and decode speed");
  command->add_flag("--plan", options->plan, "List operations by kernel and predicted device");
  command->callback([&cli, options] { cli.action = [&cli, options] { return Check(cli, *options); }; });
}

}  // namespace cmforge::cli
