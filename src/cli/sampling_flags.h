// The sampling flags of the generating commands.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "generate/sampler.h"

namespace cmforge::cli {

struct SamplingFlags {
  bool greedy = false;
  std::optional<double> temperature, top_p, min_p, typical_p, rep_penalty, presence_penalty,
      frequency_penalty;
  std::optional<int64_t> top_k;
  std::optional<uint64_t> seed;

  void AddTo(CLI::App* command);

  /// The model's recommendation, then the flags over it. Without --seed the seed is random.
  Result<SamplingOptions> Make(const RecommendedSampling& recommended) const;
};

}  // namespace cmforge::cli
