// Comparing a package with its reference.
#include "coreml/check.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "coreml/package_model.h"

namespace cmforge::coreml {
namespace {

struct Comparison {
  double cosine = 1, max_abs = 0, kl = 0;
  bool same_top = true, is_decided = false;
};

/// The larger one; a difference that is no number must not pass for a small one, so NaN stays.
void Widen(double& max, double value) {
  if (!(value <= max) && !std::isnan(max)) max = value;
}

/// Of two vectors with this product and these squared lengths. Nothing is like zeros but zeros.
double Cosine(double dot, double square_a, double square_b) {
  const double lengths = std::sqrt(square_a) * std::sqrt(square_b);
  if (lengths > 0 || std::isnan(lengths)) return dot / lengths;
  return square_a == square_b ? 1 : 0;
}

size_t BestOf(std::span<const float> row) {
  return static_cast<size_t>(std::max_element(row.begin(), row.end()) -
                             row.begin());  // the lowest id of equals
}

double LogSum(std::span<const float> row) {
  const double top = row[BestOf(row)];
  double sum = 0;
  for (const float v : row) sum += std::exp(v - top);
  return top + std::log(sum);
}

Comparison Compare(std::span<const float> want, std::span<const float> got, double decided_gap) {
  Comparison out;
  const double log_want = LogSum(want), log_got = LogSum(got);
  double dot = 0, norm_want = 0, norm_got = 0, mean = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double w = want[i], g = got[i];
    dot += w * g;
    norm_want += w * w;
    norm_got += g * g;
    mean += w;
    Widen(out.max_abs, std::fabs(w - g));
    out.kl += std::exp(w - log_want) * ((w - log_want) - (g - log_got));
  }
  out.cosine = Cosine(dot, norm_want, norm_got);
  mean /= static_cast<double>(want.size());
  double variance = 0;
  for (const float w : want) variance += (w - mean) * (w - mean);
  const double deviation = std::sqrt(variance / static_cast<double>(want.size()));
  const size_t best = BestOf(want);
  float second = -std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < want.size(); ++i) {
    if (i != best) second = std::max(second, want[i]);
  }
  out.is_decided = want[best] - second > decided_gap * deviation;
  out.same_top = BestOf(got) == best;
  return out;
}

class Checker {
 public:
  Checker(const LanguageModel& reference, const LanguageModel& package, const CheckOptions& options,
          const RunControl& control, const StateSource& states)
      : reference_(reference), package_(package), options_(options), control_(control), source_(states) {}

  Result<CheckResult> Run(int64_t batch, std::span<const TokenId> prompt) {
    CMF_CHECK(CheckSameModel());
    if (prompt.empty()) return Fail(ErrorKind::kUsage, "check: no tokens: give a prompt");
    CMF_TRY(auto stepwise, package_.NewSequence());
    CMF_TRY(auto batched, package_.NewSequence());
    CMF_TRY(auto expected, reference_.NewSequence());
    const auto context =
        static_cast<size_t>(std::min(stepwise->context_length(), expected->context_length()));
    if (prompt.size() > context) {
      return Fail(ErrorKind::kLimit, fmt::format("prompt: {} tokens do not fit a context of {}: shorten it",
                                                 prompt.size(), context));
    }
    std::vector<TokenId> tokens(prompt.begin(), prompt.end());
    const size_t prompt_size = tokens.size();
    const size_t total = std::min(context, prompt_size + static_cast<size_t>(options_.max_tokens));
    result_.generated = static_cast<int64_t>(total - prompt_size);

    // All three go through the text together, so that only one row of each is held. The last token is fed too:
    // its logits count.
    size_t fed = 0;  // by the batched run: full batches of the prompt, the rest one by one, then the answer
    for (size_t at = 0; at < total; ++at) {
      CMF_CHECK(control_.CheckCancelled());
      control_.Report("checking", static_cast<int64_t>(at), static_cast<int64_t>(total),
                      ProgressUnit::kTokens);
      const auto position = static_cast<int64_t>(at);
      CMF_TRY(const std::vector<float> want, Feed(reference_, *expected, {&tokens[at], 1}));
      CMF_TRY(const std::vector<float> single, Feed(package_, *stepwise, {&tokens[at], 1}));
      Count(position, want, single);
      if (at + 1 == tokens.size() && tokens.size() < total)
        tokens.push_back(static_cast<TokenId>(BestOf(want)));

      const bool is_batch = batch > 1 && fed + static_cast<size_t>(batch) <= prompt_size;
      const size_t n = is_batch ? static_cast<size_t>(batch) : 1;
      if (fed + n != at + 1) continue;  // this batch ends later
      CMF_TRY(const std::vector<float> row, Feed(package_, *batched, std::span(tokens).subspan(fed, n)));
      fed += n;
      result_.prefill_calls += is_batch;
      Count(position, want, row);
      for (size_t i = 0; i < row.size(); ++i)
        Widen(result_.prefill_infer_max_abs, std::fabs(double{single[i]} - row[i]));
    }
    CMF_CHECK(CompareRuns(*stepwise, *batched));
    CMF_CHECK(CompareWithReference(*expected, {stepwise.get(), batched.get()}));
    Finish();
    return result_;
  }

 private:
  Result<void> CheckSameModel() const {
    const ModelConfig &want = reference_.config(), &got = package_.config();
    const auto same = [](const char* what, int64_t package, int64_t checkpoint) -> Result<void> {
      if (package == checkpoint) return {};
      return Fail(ErrorKind::kUsage,
                  fmt::format("{}: the package says {}, the checkpoint {}: it was made from another model",
                              what, package, checkpoint));
    };
    CMF_CHECK(same("vocab_size", got.vocab_size, want.vocab_size));
    CMF_CHECK(same("hidden_size", got.hidden_size, want.hidden_size));
    if (got.num_layers == 0) return {};  // a package without config.json
    return same("num_layers", got.num_layers, want.num_layers);
  }

  /// Logits of the last token.
  Result<std::vector<float>> Feed(const LanguageModel& model, Sequence& sequence,
                                  std::span<const TokenId> tokens) const {
    const StepItem item{&sequence, tokens, LogitRows::kLast, nullptr};
    CMF_TRY(StepResult step, model.Step({{&item, 1}, nullptr}));
    return std::move(step.logits);
  }

  void Count(int64_t position, std::span<const float> want, std::span<const float> got) {
    const Comparison c = Compare(want, got, options_.decided_gap);
    ++result_.positions;
    if (!(c.cosine >= result_.cosine_min) && !std::isnan(result_.cosine_min)) {
      result_.cosine_min = c.cosine;
      result_.worst_position = position;
    }
    cosines_ += c.cosine;
    kl_ += c.kl;
    agreements_ += c.same_top;
    result_.decided += c.is_decided;
    result_.decided_disagreements += c.is_decided && !c.same_top;
    Widen(result_.max_abs, c.max_abs);
  }

  Result<void> CompareRuns(const Sequence& a, const Sequence& b) {
    CMF_TRY(const auto first, StatesOf(a));
    CMF_TRY(const auto second, StatesOf(b));
    for (size_t s = 0; s < first.size(); ++s) {
      double dot = 0, norm_a = 0, norm_b = 0;
      for (size_t i = 0; i < first[s].values.size(); ++i) {
        const double x = first[s].values[i], y = second[s].values[i];
        dot += x * y;
        norm_a += x * x;
        norm_b += y * y;
        Widen(result_.state_max_abs, std::fabs(x - y));
      }
      const double cosine = Cosine(dot, norm_a, norm_b);
      if (!(cosine >= result_.state_cosine) && !std::isnan(result_.state_cosine))
        result_.state_cosine = cosine;
    }
    return {};
  }

  /// Of every part of a state the run that is further off.
  Result<void> CompareWithReference(const Sequence& expected, std::initializer_list<const Sequence*> runs) {
    if (!source_.reader) return {};
    CMF_TRY(const std::vector<LayerStates> layers, source_.reader(expected));
    for (const Sequence* run : runs) {
      CMF_TRY(const auto states, StatesOf(*run));
      const auto differences = CompareStates(source_.meta, states, layers, run->position());
      if (result_.states.empty()) result_.states = differences;
      for (size_t i = 0; i < differences.size(); ++i) {
        if (!(differences[i].max_relative <= result_.states[i].max_relative))
          result_.states[i] = differences[i];
      }
    }
    return {};
  }

  void Finish() {
    const auto n = static_cast<double>(std::max<int64_t>(result_.positions, 1));
    result_.cosine_mean = cosines_ / n;
    result_.kl_mean = kl_ / n;
    result_.top1_agreement = static_cast<double>(agreements_) / n;
    FindFailures();
    result_.ok = result_.failed.empty();
  }

  void FindFailures() {
    const auto check = [&](bool passes, std::string text) {
      if (!passes) result_.failed.push_back(std::move(text));
    };
    const auto at_least = [&](const char* limit, double value, double bound, const std::string& where) {
      check(value >= bound,
            fmt::format("{}: {:.7g}{}, at least {:.7g} is wanted", limit, value, where, bound));
    };
    const auto is_number = [&](const char* limit, double value) {
      check(std::isfinite(value), fmt::format("{}: {}, a finite number is wanted", limit, value));
    };
    at_least("min-cosine", result_.cosine_mean, options_.min_cosine, " of logits on average");
    at_least("worst-cosine", result_.cosine_min, options_.worst_cosine,
             fmt::format(" of logits at position {}", result_.worst_position));
    check(result_.decided_disagreements == 0,
          fmt::format("decided-gap: {} of {} decided choices differ, none may", result_.decided_disagreements,
                      result_.decided));
    at_least("min-cosine", result_.state_cosine, options_.min_cosine, " of prefill's states and infer's");
    is_number("largest difference of logits", result_.max_abs);
    is_number("prefill against infer, logits", result_.prefill_infer_max_abs);
    is_number("prefill against infer, states", result_.state_max_abs);
    for (const StateDifference& state : result_.states) {
      check(state.max_relative <= options_.max_state_difference,
            fmt::format("state-difference: {:.3g} of {} {} in layer {}, at most {:.3g} is wanted",
                        state.max_relative, state.state, state.part, state.worst_layer,
                        options_.max_state_difference));
    }
  }

  const LanguageModel& reference_;
  const LanguageModel& package_;
  const CheckOptions options_;
  const RunControl& control_;
  const StateSource& source_;
  CheckResult result_;
  double cosines_ = 0, kl_ = 0;
  int64_t agreements_ = 0;
};

}  // namespace

Result<CheckResult> CheckPackage(const LanguageModel& reference, const LanguageModel& package,
                                 int64_t batch_size, std::span<const TokenId> prompt,
                                 const CheckOptions& options, const RunControl& control,
                                 const StateSource& states) {
  return Checker(reference, package, options, control, states).Run(batch_size, prompt);
}

}  // namespace cmforge::coreml
