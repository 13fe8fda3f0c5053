// Choosing the next token from a row of logits. The chain, in this order: suppressed ids; repetition,
// presence and frequency penalties; temperature; softmax; min-p; top-k; top-p; typical-p; one draw by inverse
// distribution in the order of ids. Temperature 0 is argmax of the penalised logits. Ties go to the lowest
// id.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "model/model_config.h"

namespace cmforge {

/// One set of defaults for every program (cli.md, "Meanings that every command shares").
struct SamplingOptions {
  double temperature = 0.7;  // 0 = greedy
  double top_p = 0.9;        // 1 = off
  int64_t top_k = 40;        // 0 = off; values tied with the k-th stay
  double min_p = 0.05;       // 0 = off; relative to the most probable token
  double typical_p = 1.0;    // 1 = off (Meister et al. 2022)
  double repetition_penalty =
      1.0;  // divides positive, multiplies negative logits of ids seen before, once each
  double presence_penalty = 0.0;   // subtracted once from ids seen before
  double frequency_penalty = 0.0;  // subtracted once per occurrence
  std::vector<TokenId> suppress;   // never chosen
  uint64_t seed = 0;

  static SamplingOptions Greedy() {
    SamplingOptions options;
    options.temperature = 0;
    return options;
  }
  /// The model's recommendation over these values; a field it does not name keeps its value, do_sample false
  /// means greedy.
  void Apply(const RecommendedSampling& recommended);

  /// Fails with kUsage naming the field that is out of range.
  Result<void> Check() const;
};

/// SplitMix64: tiny, seedable with any number, the same everywhere.
class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  float NextUniform() { return static_cast<float>(Next() >> 40) * 0x1p-24f; }  // [0, 1)

 private:
  uint64_t state_;
};

struct TokenProbability {
  TokenId id = 0;
  float log_probability = 0;  // natural, of the untouched softmax at temperature 1
};

/// State of one generation: the random stream and the ids seen so far. Not shared between threads.
class Sampler {
 public:
  explicit Sampler(SamplingOptions options) : options_(std::move(options)), random_(options_.seed) {}

  /// Tells the penalties about a token of the prompt or of the answer.
  void Observe(TokenId token) { ++seen_[token]; }

  /// The next token; does not observe it. NaN logits are never chosen. Never allocates after the first call
  /// with the same vocabulary.
  TokenId Sample(std::span<const float> logits);

  [[nodiscard]] const SamplingOptions& options() const { return options_; }

 private:
  struct Candidate {
    TokenId id;
    float p;
  };
  TokenId Draw(float total);
  void KeepTopP(double limit);
  void KeepTypical(double limit);

  SamplingOptions options_;
  SplitMix64 random_;
  std::unordered_map<TokenId, int32_t> seen_;
  std::vector<float> work_;            // penalised logits
  std::vector<Candidate> candidates_;  // in the order of ids
  std::vector<Candidate> sorted_;
};

/// Lowest id of the largest value; NaN loses against everything. -1 for an empty row.
[[nodiscard]] TokenId ArgMax(std::span<const float> logits);

/// The `count` largest, descending, ties by id.
[[nodiscard]] std::vector<std::pair<TokenId, float>> TopLogits(std::span<const float> logits, int64_t count);

/// log softmax of `logits` at `token`, in float64.
[[nodiscard]] double LogProbability(std::span<const float> logits, TokenId token);

}  // namespace cmforge
