// A model that chooses its skill while it runs (`--route-dynamic`). Every sequence follows a moving average of
// its hidden states; every few tokens the skills' energies are looked at again, with hysteresis so that it does
// not flutter: at the end of a step, such as a prompt, or within it where the logits of all its rows are wanted. A
// switch re-reads what the sequence has consumed under the new skill's weights, so that its state
// is what it would have been from the start.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "open/specialists.h"

namespace cmforge {

struct SwitchRule {
  double newest = 0.2;       // weight of the newest token in the average
  int64_t period = 8;        // tokens between two looks
  double enter = 0.62;       // a skill is taken up below this energy
  double leave = 0.74;       // and dropped above this one
  double win_margin = 0.03;  // a rival must be better by this
};

/// The skill to go on with: an index into `energies`, or nothing for the backbone.
[[nodiscard]] std::optional<size_t> NextSkill(std::optional<size_t> current, std::span<const double> energies,
                                              const SwitchRule& rule);

/// Skills take part that are routable by "mse" and replace feed-forward tensors only.
/// Sequences can be forked and rewound, not snapshot. Fails: kUsage when no skill qualifies (why).
Result<std::shared_ptr<LanguageModel>> MakeRoutedModel(std::shared_ptr<Specialists> specialists,
                                                       const SwitchRule& rule = {});

}  // namespace cmforge
