// Watching the inputs of linear operators.
#include "generate/calibration.h"

#include <algorithm>
#include <cmath>

namespace cmforge {
namespace {

constexpr size_t kStepTokens = 64;  // logits of so many are held at once

class ChannelObserver final : public StepObserver {
 public:
  explicit ChannelObserver(int64_t layers) : layers_(layers) {}

  [[nodiscard]] bool wants_linear_inputs() const override { return true; }

  void OnLinearInput(std::string_view weight, std::span<const float> rows, int64_t columns) override {
    auto it = sums_.find(weight);
    if (it == sums_.end())
      it = sums_.emplace(weight, std::vector<double>(static_cast<size_t>(columns))).first;
    std::vector<double>& sums = it->second;
    // An expert's operator sees the rows that chose it, all others their whole batch; each row adds its
    // squares.
    for (size_t at = 0; at < rows.size(); at += sums.size()) {
      for (size_t j = 0; j < sums.size(); ++j) {
        const auto x = static_cast<double>(rows[at + j]);
        sums[j] += x * x;
      }
    }
  }

  void OnRoute(int visit, int /*item*/, std::span<const int32_t> experts,
               std::span<const float> weights) override {
    for (size_t i = 0; i < experts.size(); ++i) {
      if (experts[i] < 0) continue;
      Choices& choices = choices_[{visit % layers_, experts[i]}];
      ++choices.count;
      choices.squares += static_cast<double>(weights[i]) * static_cast<double>(weights[i]);
    }
  }

  [[nodiscard]] ChannelStats Finish(int64_t tokens) const {
    ChannelStats stats;
    stats.tokens = tokens;
    for (const auto& [name, sums] : sums_) {
      std::vector<float>& mean = stats.mean_square[name];
      for (const double sum : sums) mean.push_back(static_cast<float>(sum / static_cast<double>(tokens)));
    }
    for (const auto& [place, choices] : choices_) {
      const auto it = stats.mean_square.find(
          fmt::format("model.layers.{}.mlp.experts.{}.down_proj.weight", place.first, place.second));
      if (it == stats.mean_square.end()) continue;
      const double factor = choices.squares / static_cast<double>(choices.count);
      for (float& mean : it->second) mean = static_cast<float>(static_cast<double>(mean) * factor);
    }
    return stats;
  }

 private:
  struct Choices {
    int64_t count = 0;
    double squares = 0;  // of the router's weights
  };
  int64_t layers_;
  std::map<std::string, std::vector<double>, std::less<>> sums_;  // of squares, by column
  std::map<std::pair<int64_t, int32_t>, Choices> choices_;        // by layer and expert
};

/// How much the square of an error of each logit counts. To second order the divergence of the answer is half
/// the variance of the logits' errors under it, of independent ones half the sum of p (1 - p) e^2: errors of
/// tokens that are never likely, most of a vocabulary, move nothing.
class LogitWeights {
 public:
  LogitWeights(int64_t vocabulary, double cap) : sums_(static_cast<size_t>(vocabulary)), cap_(cap) {}

  void Add(std::span<const float> logits) {
    const auto largest = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
    chances_.resize(logits.size());
    double total = 0;
    for (size_t i = 0; i < logits.size(); ++i)
      total += chances_[i] = std::exp(static_cast<double>(logits[i]) - largest);
    for (size_t i = 0; i < logits.size(); ++i) {
      // A capped logit moves less than what the head computes for it.
      const double bent = cap_ > 0 ? static_cast<double>(logits[i]) / cap_ : 0.0;
      const double p = chances_[i] / total, slope = 1 - bent * bent;
      sums_[i] += p * (1 - p) * slope * slope;
    }
  }

  [[nodiscard]] std::vector<float> Mean(int64_t tokens) const {
    std::vector<float> mean;
    for (const double sum : sums_) mean.push_back(static_cast<float>(sum / static_cast<double>(tokens)));
    return mean;
  }

 private:
  std::vector<double> sums_, chances_;
  double cap_;  // 0: none
};

}  // namespace

Result<ChannelStats> Calibrate(const LanguageModel& model, const TensorSource& tensors,
                               std::span<const TokenId> tokens, const CalibrationOptions& options,
                               const RunControl& control) {
  if (tokens.empty()) return Fail(ErrorKind::kUsage, "no tokens to calibrate with: give a text");
  const auto count = static_cast<int64_t>(tokens.size());
  ChannelObserver observer(model.config().num_layers);
  LogitWeights logit_weights(model.config().vocab_size, model.config().final_logit_softcapping.value_or(0));
  SequenceOptions sequence_options;
  sequence_options.context_length = options.window;
  std::unique_ptr<Sequence> sequence;
  for (size_t at = 0; at < tokens.size();) {
    CMF_CHECK(control.CheckCancelled());
    if (at % static_cast<size_t>(options.window) == 0) {
      CMF_TRY(sequence, model.NewSequence(sequence_options));
    }
    const size_t left = static_cast<size_t>(options.window) - at % static_cast<size_t>(options.window);
    const size_t n = std::min({kStepTokens, left, tokens.size() - at});
    const StepItem item{sequence.get(), tokens.subspan(at, n),
                        options.wants_head ? LogitRows::kAll : LogitRows::kNone, nullptr};
    CMF_TRY(const StepResult step, model.Step({{&item, 1}, &observer}));
    for (size_t row = 0; options.wants_head && row < n; ++row)
      logit_weights.Add(step.Row(static_cast<int64_t>(row)));
    at += n;
    control.Report("calibrating", static_cast<int64_t>(at), count, ProgressUnit::kTokens);
  }
  ChannelStats stats = observer.Finish(count);
  if (stats.mean_square.empty()) {
    return Fail(
        ErrorKind::kUnsupported,
        fmt::format("{}: its operators cannot be watched: calibrate with the checkpoint or a .cmf of it",
                    tensors.path()));
  }
  const char* head = tensors.Find("lm_head.weight") ? "lm_head.weight" : "model.embed_tokens.weight";
  if (options.wants_head) stats.row_weight[head] = logit_weights.Mean(count);
  for (const TensorInfo& info : tensors.tensors()) {
    if (info.name.find(".experts.") == info.name.npos || info.shape.size() != 2) continue;
    stats.mean_square.try_emplace(info.name, static_cast<size_t>(info.shape[1]));
  }
  return stats;
}

}  // namespace cmforge
