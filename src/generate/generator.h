// The generation loop over any LanguageModel: prompt in chunks, then one token at a time, until an end token,
// a limit, the caller or Ctrl-C stops it.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/progress.h"
#include "generate/sampler.h"
#include "model/language_model.h"

namespace cmforge {

enum class FinishReason : uint8_t { kStop, kLength, kCancelled };

/// "stop", "length", "cancelled", as in the JSON of `generate`.
[[nodiscard]] std::string_view FinishName(FinishReason reason);

struct GenerateOptions {
  int64_t max_tokens = 256;
  SamplingOptions sampling;
  std::vector<TokenId> eos;  // any of these ends the answer
  bool ignore_eos = false;
  int logprobs = 0;  // how many of the most probable tokens to report; 0 = no log probabilities at all
  bool report_logprob = false;
  const ActiveSet* active = nullptr;
};

struct TokenEvent {
  TokenId id = 0;
  std::optional<double> log_probability;  // of the model's own distribution, natural
  std::vector<TokenProbability> top;      // `logprobs` entries, most probable first
};

struct GenerateResult {
  std::vector<TokenId> tokens;  // the stop token is not among them
  FinishReason finish = FinishReason::kLength;
  std::optional<TokenId> stop_token;  // the end token that finished it
  bool context_is_full = false;       // kLength because the sequence reached its context length
  int64_t drafted = 0, accepted = 0;
  double prompt_seconds = 0, decode_seconds = 0;
};

/// Feeds `prompt` (at least one token) to `sequence` and generates. When it returns, the sequence has
/// consumed the prompt and all of `tokens` but the last. `on_token` may return false to stop (finish: kStop).
/// `history` holds earlier tokens that penalties should see.
/// Fails: kUsage (empty prompt, bad options), kLimit (the prompt does not fit: both numbers), the model's
/// errors.
Result<GenerateResult> Generate(const LanguageModel& model, Sequence& sequence,
                                std::span<const TokenId> prompt, const GenerateOptions& options,
                                const std::function<bool(const TokenEvent&)>& on_token = {},
                                const RunControl& control = {}, std::span<const TokenId> history = {});

/// Feeds tokens in chunks, so that progress can be shown and Ctrl-C is noticed; returns the last row of
/// logits.
Result<std::vector<float>> Prefill(const LanguageModel& model, Sequence& sequence,
                                   std::span<const TokenId> tokens, const ActiveSet* active,
                                   const RunControl& control);

}  // namespace cmforge
