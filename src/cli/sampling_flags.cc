// Sampling flags.
#include "cli/sampling_flags.h"

#include <random>

namespace cmforge::cli {

void SamplingFlags::AddTo(CLI::App* command) {
  const CLI::Range share(0.0, 1.0), factor(0.0, 1e6), amount(-1e6, 1e6);
  command->add_flag("--greedy", greedy, "Always the most probable token");
  command->add_option("--temperature", temperature, "0 is greedy (default: the model's own, else 0.7)")
      ->check(factor);
  command->add_option("--top-k", top_k, "Keep the K most probable; 0 is off (default 40)")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30));
  command->add_option("--top-p", top_p, "Keep the most probable up to this mass; 1 is off (default 0.9)")
      ->check(share);
  command->add_option("--min-p", min_p, "Drop those below this share of the best; 0 is off (default 0.05)")
      ->check(share);
  command->add_option("--typical-p", typical_p, "Locally typical sampling; 1 is off")->check(share);
  command->add_option("--rep-penalty", rep_penalty, "Divide logits of tokens seen before; 1 is off")
      ->check(factor);
  command->add_option("--presence-penalty", presence_penalty, "Subtract once from tokens seen before")
      ->check(amount);
  command->add_option("--frequency-penalty", frequency_penalty, "Subtract for every time a token was seen")
      ->check(amount);
  command->add_option("--seed", seed, "Makes a run repeatable")
      ->check([](const std::string& text) -> std::string {  // CLI11 would wrap a negative one around
        if (!text.empty() && text[0] != '-') return "";
        return fmt::format("'{}' is not a whole number of 0 or more", text);
      });
}

Result<SamplingOptions> SamplingFlags::Make(const RecommendedSampling& recommended) const {
  SamplingOptions options;
  options.Apply(recommended);
  if (temperature) options.temperature = *temperature;
  if (top_k) options.top_k = *top_k;
  if (top_p) options.top_p = *top_p;
  if (min_p) options.min_p = *min_p;
  if (typical_p) options.typical_p = *typical_p;
  if (rep_penalty) options.repetition_penalty = *rep_penalty;
  if (presence_penalty) options.presence_penalty = *presence_penalty;
  if (frequency_penalty) options.frequency_penalty = *frequency_penalty;
  if (greedy) {
    options.temperature = 0;
    if (!rep_penalty) options.repetition_penalty = 1;
  }
  options.seed = seed ? *seed : std::random_device()();
  CMF_CHECK(options.Check());
  return options;
}

}  // namespace cmforge::cli
