// Choosing a skill by reconstruction (spec 9): a skill carries the affine subspace that its prompts lie near,
// mean + span(basis), in the hidden states after one layer of the backbone. phi is a prompt's mean hidden
// state there; the skill that reconstructs it best wins.
//
//   r = phi - mean,  raw = max(|r|^2 - sum_k (b_k r)^2, 0),  energy = raw / max(|phi|^2, 1e-12)
//
// Ranked by raw error, ascending. Under the metric "mse_unit" phi is scaled to length 1 first.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/progress.h"
#include "cmf/header.h"
#include "model/language_model.h"

namespace cmforge {

/// Mean hidden states of a text, [hidden] for each asked layer.
using LayerMeans = std::vector<std::pair<int64_t, std::vector<float>>>;

/// Runs `tokens` through a fresh sequence of `model` (the backbone) and averages the residual stream after each of
/// `layers` (0-based, no final norm) over all positions. Fails: kUsage (no tokens, no such layer), the model's.
Result<LayerMeans> MeanHidden(const LanguageModel& model, std::span<const TokenId> tokens,
                              std::span<const int64_t> layers, const RunControl& control = {});

struct SkillScore {
  std::string id;
  double energy = 0, raw = 0;
};

/// Energies of one phi.
[[nodiscard]] SkillScore ScoreSkill(const cmf::SkillRecord& skill, std::span<const float> phi);
/// Has a subspace, in a metric we know.
[[nodiscard]] bool IsRoutable(const cmf::SkillRecord& skill);

struct Ranking {
  std::vector<SkillScore> scores;  // best first
  /// The best is still far from the text: the header's `routing` block decides, else energy above 0.30.
  bool is_novel = false;

  [[nodiscard]] const SkillScore* winner() const { return scores.empty() ? nullptr : &scores.front(); }
};

/// Fails: kUsage when no skill is routable (why, for each), as MeanHidden.
Result<Ranking> RankSkills(const LanguageModel& backbone, const cmf::Header& header,
                           std::span<const TokenId> tokens, const RunControl& control = {});

/// softmax(-energy / 0.4) over the best two: the weights of `--blend auto`.
[[nodiscard]] std::vector<double> BlendWeights(std::span<const SkillScore> best);

/// Fits a subspace to the phis of prompts: their mean, and the `rank` directions of greatest variance (at most
/// one less than there are prompts). Values are rounded to f16, as they are stored.
/// Fails: kUsage for fewer than two prompts.
Result<cmf::SkillSelection> FitSelection(std::span<const std::vector<float>> phis, int64_t layer,
                                         int64_t rank);

}  // namespace cmforge
