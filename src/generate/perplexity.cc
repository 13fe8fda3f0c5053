// Perplexity and KL divergence over windows.
#include "generate/perplexity.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "generate/sampler.h"

namespace cmforge {
namespace {

struct Scores {
  double nll = 0, against_nll = 0;
  std::vector<float> kl;
  int64_t agreeing = 0;
};

double LogSumExp(std::span<const float> row) {
  double largest = -std::numeric_limits<double>::infinity();
  for (const float l : row) largest = std::max<double>(largest, l);
  double sum = 0;
  for (const float l : row) sum += std::exp(l - largest);
  return largest + std::log(sum);
}

// Runs rows [0, window.size() - 1) through a sequence, handing each block of logits to `use`.
template <class Use>
Result<void> EachBlock(const LanguageModel& model, std::span<const TokenId> window,
                       const SequenceOptions& options, int64_t rows_per_step, const ActiveSet* active,
                       const RunControl& control, Use&& use) {
  CMF_TRY(const auto sequence, model.NewSequence(options));
  const int64_t rows =
      static_cast<int64_t>(window.size()) - 1;  // the last token predicts nothing that is scored
  for (int64_t at = 0; at < rows; at += rows_per_step) {
    CMF_CHECK(control.CheckCancelled());
    const int64_t n = std::min(rows_per_step, rows - at);
    const StepItem item{sequence.get(), window.subspan(static_cast<size_t>(at), static_cast<size_t>(n)),
                        LogitRows::kAll, active};
    CMF_TRY(const StepResult step, model.Step({{&item, 1}, nullptr}));
    CMF_CHECK(use(at, n, step));
  }
  return {};
}

}  // namespace

Result<PerplexityResult> Perplexity(const LanguageModel& model, const LanguageModel* against,
                                    std::span<const TokenId> tokens, const PerplexityOptions& options,
                                    const RunControl& control) {
  const int64_t stride = options.stride > 0 ? options.stride : options.context;
  if (options.context < 2 || stride > options.context) {
    return Fail(
        ErrorKind::kUsage,
        fmt::format("ppl: context {} with stride {}: the context must be at least 2 and the stride at most "
                    "the context",
                    options.context, stride));
  }
  if (options.max_tokens > 0 && static_cast<int64_t>(tokens.size()) > options.max_tokens) {
    tokens = tokens.first(static_cast<size_t>(options.max_tokens));
  }
  const auto total = static_cast<int64_t>(tokens.size());
  if (total < 2) {
    return Fail(ErrorKind::kUsage,
                fmt::format("ppl: the text has {} tokens: at least two are needed", total));
  }
  if (against && against->config().vocab_size != model.config().vocab_size) {
    return Fail(ErrorKind::kUsage,
                fmt::format("ppl: vocabularies differ ({} and {} tokens): compare models of one tokenizer",
                            model.config().vocab_size, against->config().vocab_size));
  }
  const int64_t windows = total < options.context ? 1 : (total - options.context) / stride + 1;
  const int64_t rows_per_step =
      options.rows_per_step > 0
          ? options.rows_per_step
          : std::clamp<int64_t>((int64_t{64} << 20) / 4 / std::max<int64_t>(1, model.config().vocab_size), 1,
                                256);

  SequenceOptions own_options = options.sequence;
  own_options.context_length = options.context;
  PerplexityResult result;
  Scores scores;
  std::vector<float> own;  // [rows, vocab] of the first model, kept for the KL of the second
  for (int64_t w = 0; w < windows; ++w) {
    const auto window = tokens.subspan(static_cast<size_t>(w * stride),
                                       static_cast<size_t>(std::min(options.context, total - w * stride)));
    // Row r predicts window[r + 1]. A later window scores only what earlier windows did not hold.
    const int64_t first_row = w == 0 ? 0 : std::max<int64_t>(0, options.context - stride - 1);

    const auto score = [&](int64_t at, int64_t n, const StepResult& rows, double& nll) {
      for (int64_t r = std::max(at, first_row); r < at + n; ++r) {
        const auto row = rows.Row(r - at);
        nll += LogSumExp(row) - row[static_cast<size_t>(window[static_cast<size_t>(r + 1)])];
      }
    };
    // The two models go block by block side by side, so that only one block of logits is held.
    CMF_TRY(const auto second, against ? against->NewSequence({.context_length = options.context})
                                       : Result<std::unique_ptr<Sequence>>(nullptr));
    CMF_CHECK(EachBlock(model, window, own_options, rows_per_step, options.active, control,
                        [&](int64_t at, int64_t n, const StepResult& rows) -> Result<void> {
                          score(at, n, rows, scores.nll);
                          if (!against) return {};
                          const StepItem item{second.get(),
                                              window.subspan(static_cast<size_t>(at), static_cast<size_t>(n)),
                                              LogitRows::kAll, nullptr};
                          CMF_TRY(const StepResult others, against->Step({{&item, 1}, nullptr}));
                          score(at, n, others, scores.against_nll);
                          for (int64_t r = std::max(at, first_row); r < at + n; ++r) {
                            const auto p = rows.Row(r - at), q = others.Row(r - at);
                            const double lp = LogSumExp(p), lq = LogSumExp(q);
                            double kl = 0;
                            for (size_t i = 0; i < p.size(); ++i) {
                              const double log_p = p[i] - lp;
                              kl += std::exp(log_p) * (log_p - (q[i] - lq));
                            }
                            scores.kl.push_back(static_cast<float>(std::max(kl, 0.0)));
                            scores.agreeing += ArgMax(p) == ArgMax(q);
                          }
                          return {};
                        }));
    result.tokens += static_cast<int64_t>(window.size()) - 1 - first_row;
    ++result.windows;
    control.Report("scoring", w + 1, windows);
  }
  const auto count = static_cast<double>(result.tokens);
  result.nll = scores.nll / count;
  result.ppl = std::exp(result.nll);
  if (against) {
    PerplexityResult::Against a;
    a.ppl = std::exp(scores.against_nll / count);
    a.ppl_ratio = a.ppl / result.ppl;
    for (const float kl : scores.kl) a.kl_mean += kl / count;
    std::sort(scores.kl.begin(), scores.kl.end());
    const auto quantile = [&](double q) {
      return scores.kl[static_cast<size_t>(std::lround(q * static_cast<double>(scores.kl.size() - 1)))];
    };
    a.kl_median = quantile(0.5);
    a.kl_99 = quantile(0.99);
    a.top1_agreement = static_cast<double>(scores.agreeing) / count;
    result.against = a;
  }
  return result;
}

}  // namespace cmforge
