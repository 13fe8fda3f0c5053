// The generation loop.
#include "generate/generator.h"

#include <algorithm>
#include <chrono>

namespace cmforge {
namespace {

// Large enough that a chunk keeps all threads busy, small enough that Ctrl-C answers within a second or so.
constexpr size_t kPrefillChunk = 512;

double SecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

std::string_view FinishName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  return "";
}

Result<std::vector<float>> Prefill(const LanguageModel& model, Sequence& sequence,
                                   std::span<const TokenId> tokens, const ActiveSet* active,
                                   const RunControl& control) {
  const auto length = static_cast<int64_t>(tokens.size());
  if (length > sequence.context_length() - sequence.position()) {
    const bool can_grow = sequence.context_length() < model.config().max_position_embeddings;
    return Fail(ErrorKind::kLimit,
                fmt::format("prompt: {} tokens after {} do not fit a context of {}: shorten it{}", length,
                            sequence.position(), sequence.context_length(),
                            can_grow ? " or give a larger --context" : ""));
  }
  std::vector<float> logits;
  for (size_t done = 0; done < tokens.size();) {
    CMF_CHECK(control.CheckCancelled());
    const size_t n = std::min(kPrefillChunk, tokens.size() - done);
    const bool last = done + n == tokens.size();
    const StepItem item{&sequence, tokens.subspan(done, n), last ? LogitRows::kLast : LogitRows::kNone,
                        active};
    CMF_TRY(StepResult result, model.Step({{&item, 1}, nullptr}));
    done += n;
    if (last) logits = std::move(result.logits);
  }
  return logits;
}

Result<GenerateResult> Generate(const LanguageModel& model, Sequence& sequence,
                                std::span<const TokenId> prompt, const GenerateOptions& options,
                                const std::function<bool(const TokenEvent&)>& on_token,
                                const RunControl& control, std::span<const TokenId> history) {
  CMF_CHECK(options.sampling.Check());
  if (prompt.empty()) return Fail(ErrorKind::kUsage, "prompt: no tokens: give at least one");
  if (options.max_tokens < 0) {
    return Fail(ErrorKind::kUsage, fmt::format("max-tokens: {}: give 0 or more", options.max_tokens));
  }
  GenerateResult result;
  Sampler sampler(options.sampling);
  for (const TokenId token : history) sampler.Observe(token);
  for (const TokenId token : prompt) sampler.Observe(token);

  const auto begun = std::chrono::steady_clock::now();
  auto prefilled = Prefill(model, sequence, prompt, options.active, control);
  if (!prefilled && prefilled.error().kind == ErrorKind::kCancelled) {
    result.finish = FinishReason::kCancelled;
    return result;
  }
  CMF_TRY(std::vector<float> logits, std::move(prefilled));
  result.prompt_seconds = SecondsSince(begun);

  const auto decoding = std::chrono::steady_clock::now();
  for (;;) {
    if (static_cast<int64_t>(result.tokens.size()) >= options.max_tokens) break;
    if (control.IsCancelled()) {
      result.finish = FinishReason::kCancelled;
      break;
    }
    const TokenId token = sampler.Sample(logits);
    if (!options.ignore_eos &&
        std::find(options.eos.begin(), options.eos.end(), token) != options.eos.end()) {
      result.finish = FinishReason::kStop;
      result.stop_token = token;
      break;
    }
    sampler.Observe(token);
    result.tokens.push_back(token);
    if (on_token) {
      TokenEvent event{token, std::nullopt, {}};
      if (options.report_logprob || options.logprobs > 0) {
        event.log_probability = LogProbability(logits, token);
        for (const auto& [id, logit] : TopLogits(logits, options.logprobs)) {
          event.top.push_back({id, static_cast<float>(LogProbability(logits, id))});
        }
      }
      if (!on_token(event)) {
        result.finish = FinishReason::kStop;
        break;
      }
    }
    if (static_cast<int64_t>(result.tokens.size()) >= options.max_tokens) break;
    if (sequence.position() >= sequence.context_length()) {
      result.context_is_full = true;
      break;
    }
    const StepItem item{&sequence, {&result.tokens.back(), 1}, LogitRows::kLast, options.active};
    CMF_TRY(StepResult step, model.Step({{&item, 1}, nullptr}));
    logits = std::move(step.logits);
  }
  result.decode_seconds = SecondsSince(decoding);
  return result;
}

}  // namespace cmforge
