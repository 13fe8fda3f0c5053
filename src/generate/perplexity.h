// Perplexity of a model on a text, and how far a second model's distribution is from it. The text is cut into
// windows; every window runs from an empty state and its tokens but the first are scored, natural logarithm,
// float64. The result does not depend on how many rows are computed at once.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/progress.h"
#include "model/language_model.h"

namespace cmforge {

struct PerplexityOptions {
  int64_t context = 512;   // tokens a window
  int64_t stride = 0;      // from one window's start to the next; 0 = context. A token is scored once, in the
                           // first window that holds it
  int64_t max_tokens = 0;  // of the text; 0 = all
  int64_t rows_per_step = 0;  // 0: as many as 64 MiB of logits hold
  const ActiveSet* active = nullptr;
  /// Of the model, not of the one it is compared with; its context length is `context`.
  SequenceOptions sequence;
};

struct PerplexityResult {
  double ppl = 0, nll = 0;  // exp(nll); mean negative log-likelihood a token
  int64_t tokens = 0;       // scored
  int64_t windows = 0;

  struct Against {  // the second model, on the same positions
    double ppl = 0;
    double kl_mean = 0, kl_median = 0, kl_99 = 0;  // KL(first || second), nats
    double top1_agreement = 0;                     // share of positions with the same argmax
    double ppl_ratio = 0;                          // second / first
  };
  std::optional<Against> against;
};

/// A last partial window is dropped unless it is the only one. `tokens` begins with the begin token where the
/// tokenizer adds one.
/// Fails: kUsage (fewer than two tokens, stride beyond context, vocabularies that differ), the models'
/// errors.
Result<PerplexityResult> Perplexity(const LanguageModel& model, const LanguageModel* against,
                                    std::span<const TokenId> tokens, const PerplexityOptions& options,
                                    const RunControl& control = {});

}  // namespace cmforge
