// Reconstruction routing.
#include "open/routing.h"

#include <algorithm>
#include <cmath>

#include "base/half.h"

namespace cmforge {
namespace {

constexpr size_t kChunk = 512;  // tokens between two looks at Ctrl-C
constexpr double kNovelEnergy = 0.30;
constexpr double kBlendTemperature = 0.4;

class Averager final : public StepObserver {
 public:
  Averager(std::span<const int64_t> layers, int64_t hidden) {
    for (const int64_t layer : layers)
      sums_.emplace_back(layer, std::vector<double>(static_cast<size_t>(hidden)));
  }
  void OnHidden(int layer, int /*item*/, std::span<const float> rows) override {
    for (auto& [wanted, sum] : sums_) {
      if (wanted != layer) continue;
      for (size_t i = 0; i < rows.size(); ++i) sum[i % sum.size()] += static_cast<double>(rows[i]);
    }
  }
  [[nodiscard]] LayerMeans Means(size_t count) const {
    LayerMeans means;
    for (const auto& [layer, sum] : sums_) {
      auto& mean = means.emplace_back(layer, std::vector<float>()).second;
      for (const double value : sum) mean.push_back(static_cast<float>(value / static_cast<double>(count)));
    }
    return means;
  }

 private:
  std::vector<std::pair<int64_t, std::vector<double>>> sums_;
};

double SquaredLength(std::span<const float> values) {
  double sum = 0;
  for (const float v : values) sum += static_cast<double>(v) * static_cast<double>(v);
  return sum;
}

/// The header's optional `routing` block; ours to read, not ours to write.
struct Calibration {
  double temperature = 1, theta = 0;
};
std::optional<Calibration> CalibrationOf(const cmf::Header& header) {
  if (!header.document.is_object()) return std::nullopt;
  const auto block = header.document.find("routing");
  if (block == header.document.end() || !block->is_object()) return std::nullopt;
  const auto number = [&](const char* key) -> std::optional<double> {
    const auto it = block->find(key);
    return it != block->end() && it->is_number() ? std::optional(it->get<double>()) : std::nullopt;
  };
  const auto temperature = number("temperature"), theta = number("novelty_theta");
  if (!temperature || !theta || !(*temperature > 0)) return std::nullopt;
  return Calibration{*temperature, *theta};
}

/// How unlike everything known the best match is, 0 to 1: its own error against the skill's held-out errors, how
/// narrowly it won, and how sure the choice is.
double Novelty(const std::vector<SkillScore>& scores, const cmf::SkillRecord& best, double temperature) {
  double total = 0;
  for (const SkillScore& score : scores) total += std::exp(-(score.raw - scores[0].raw) / temperature);
  const double p = 1 / total;
  const double raw = scores[0].raw;
  const double margin = scores.size() < 2 ? 1 / (1 + raw) : 1 / (1 + raw) - 1 / (1 + scores[1].raw);
  const double mean = best.selection->err_mean.value_or(0), deviation = best.selection->err_std.value_or(0);
  const double sigmoid = 1 / (1 + std::exp(-(raw - mean) / std::max(deviation, 1e-4)));
  return 0.5 * sigmoid + 0.25 / (1 + 8 * margin) + 0.25 * (1 - p);
}

float RoundToHalf(float value) { return F16ToF32(F32ToF16(value)); }

}  // namespace

Result<LayerMeans> MeanHidden(const LanguageModel& model, std::span<const TokenId> tokens,
                              std::span<const int64_t> layers, const RunControl& control) {
  if (tokens.empty()) return Fail(ErrorKind::kUsage, "routing: the text has no tokens: give some words");
  const int64_t visits = model.config().num_layers * model.config().num_loops;
  for (const int64_t layer : layers) {
    if (layer < 0 || layer >= visits) {
      return Fail(ErrorKind::kUsage,
                  fmt::format("routing: layer {}: the model has layers 0 to {}", layer, visits - 1));
    }
  }
  SequenceOptions options;
  CMF_TRY(const auto sequence, model.NewSequence(options));
  tokens = tokens.first(std::min(tokens.size(), static_cast<size_t>(sequence->context_length())));
  Averager averager(layers, model.config().hidden_size);
  for (size_t at = 0; at < tokens.size(); at += kChunk) {
    CMF_CHECK(control.CheckCancelled());
    const StepItem item{sequence.get(), tokens.subspan(at, std::min(kChunk, tokens.size() - at)),
                        LogitRows::kNone, nullptr};
    CMF_TRY(const StepResult step, model.Step({{&item, 1}, &averager}));
    static_cast<void>(step);
  }
  return averager.Means(tokens.size());
}

bool IsRoutable(const cmf::SkillRecord& skill) {
  return skill.selection && (skill.selection->metric == "mse" || skill.selection->metric == "mse_unit");
}

SkillScore ScoreSkill(const cmf::SkillRecord& skill, std::span<const float> phi) {
  const cmf::SkillSelection& selection = *skill.selection;
  const size_t hidden = phi.size();
  double scale = 1;
  if (selection.metric == "mse_unit") scale = 1 / std::sqrt(std::max(SquaredLength(phi), 1e-12));
  std::vector<double> r(hidden);
  double squared = 0, phi_squared = 0;
  for (size_t i = 0; i < hidden; ++i) {
    const double value = static_cast<double>(phi[i]) * scale;
    phi_squared += value * value;
    r[i] = value - static_cast<double>(selection.mean[i]);
    squared += r[i] * r[i];
  }
  for (int64_t k = 0; k < selection.rank; ++k) {
    double dot = 0;
    for (size_t i = 0; i < hidden; ++i)
      dot += static_cast<double>(selection.basis[static_cast<size_t>(k) * hidden + i]) * r[i];
    squared -= dot * dot;
  }
  const double raw = std::max(squared, 0.0);
  return {skill.id, raw / std::max(phi_squared, 1e-12), raw};
}

Result<Ranking> RankSkills(const LanguageModel& backbone, const cmf::Header& header,
                           std::span<const TokenId> tokens, const RunControl& control) {
  std::vector<int64_t> layers;
  std::string reasons;
  bool has_problem = false;  // a subspace that is there and cannot be used
  const int64_t visits = backbone.config().num_layers * backbone.config().num_loops;
  const auto can_route = [&](const cmf::SkillRecord& skill) {
    return IsRoutable(skill) && skill.selection->phi_layer < visits;
  };
  for (const cmf::SkillRecord& skill : header.skills) {
    if (!can_route(skill)) {
      reasons += fmt::format(
          "{}'{}' {}", reasons.empty() ? "" : ", ", skill.id,
          skill.selection_problem.empty() ? "has no subspace that can be used" : skill.selection_problem);
      has_problem = has_problem || skill.selection || !skill.selection_problem.empty();
      continue;
    }
    const int64_t layer = skill.selection->phi_layer;
    if (std::find(layers.begin(), layers.end(), layer) == layers.end()) layers.push_back(layer);
  }
  if (layers.empty()) {
    return Fail(ErrorKind::kUsage, fmt::format("routing: no skill can be routed to: {}",
                                               reasons.empty() ? "the file has none" : reasons));
  }
  if (has_problem) {
    control.Warn(fmt::format("routing: left out: {}", reasons));
  } else if (!reasons.empty()) {
    control.Info(fmt::format("routing: left out: {}", reasons));
  }
  CMF_TRY(const LayerMeans means, MeanHidden(backbone, tokens, layers, control));
  Ranking ranking;
  for (const cmf::SkillRecord& skill : header.skills) {
    if (!can_route(skill)) continue;
    const auto phi = std::find_if(means.begin(), means.end(),
                                  [&](const auto& m) { return m.first == skill.selection->phi_layer; });
    ranking.scores.push_back(ScoreSkill(skill, phi->second));
  }
  std::stable_sort(ranking.scores.begin(), ranking.scores.end(),
                   [](const SkillScore& a, const SkillScore& b) { return a.raw < b.raw; });
  const SkillScore& best = ranking.scores.front();
  if (const auto calibration = CalibrationOf(header)) {
    const auto record = std::find_if(header.skills.begin(), header.skills.end(),
                                     [&](const cmf::SkillRecord& s) { return s.id == best.id; });
    ranking.is_novel = Novelty(ranking.scores, *record, calibration->temperature) > calibration->theta;
  } else {
    double lowest = best.energy;
    for (const SkillScore& score : ranking.scores) lowest = std::min(lowest, score.energy);
    ranking.is_novel = lowest > kNovelEnergy;
  }
  return ranking;
}

std::vector<double> BlendWeights(std::span<const SkillScore> best) {
  best = best.first(std::min<size_t>(best.size(), 2));
  std::vector<double> weights;
  double sum = 0;
  for (const SkillScore& score : best) {
    weights.push_back(std::exp(-(score.energy - best[0].energy) / kBlendTemperature));
    sum += weights.back();
  }
  for (double& weight : weights) weight /= sum;
  return weights;
}

Result<cmf::SkillSelection> FitSelection(std::span<const std::vector<float>> phis, int64_t layer,
                                         int64_t rank) {
  const size_t count = phis.size();
  if (count < 2) {
    return Fail(ErrorKind::kUsage,
                fmt::format("routing: {} prompts: a subspace needs at least 2, one a line", count));
  }
  const size_t hidden = phis[0].size();
  cmf::SkillSelection selection;
  selection.phi_layer = layer;
  std::vector<double> mean(hidden);
  for (const auto& phi : phis) {
    for (size_t i = 0; i < hidden; ++i) mean[i] += static_cast<double>(phi[i]) / static_cast<double>(count);
  }
  for (const double value : mean) selection.mean.push_back(RoundToHalf(static_cast<float>(value)));
  std::vector<double> centred(count * hidden);
  for (size_t p = 0; p < count; ++p) {
    for (size_t i = 0; i < hidden; ++i) centred[p * hidden + i] = static_cast<double>(phis[p][i]) - mean[i];
  }
  // Directions of greatest variance one after another, by power iteration on what the earlier ones left.
  constexpr int kIterations = 100;
  rank = std::min<int64_t>({rank, static_cast<int64_t>(count) - 1, static_cast<int64_t>(hidden)});
  for (int64_t k = 0; k < rank; ++k) {
    std::vector<double> direction(hidden, 1.0), next(hidden);
    double length = 0;
    for (int iteration = 0; iteration < kIterations; ++iteration) {
      std::fill(next.begin(), next.end(), 0.0);
      for (size_t p = 0; p < count; ++p) {
        const double* row = centred.data() + p * hidden;
        double dot = 0;
        for (size_t i = 0; i < hidden; ++i) dot += row[i] * direction[i];
        for (size_t i = 0; i < hidden; ++i) next[i] += dot * row[i];
      }
      length = 0;
      for (const double v : next) length += v * v;
      length = std::sqrt(length);
      if (!(length > 1e-20)) break;
      for (size_t i = 0; i < hidden; ++i) direction[i] = next[i] / length;
    }
    if (!(length > 1e-20)) break;  // nothing is left
    for (size_t p = 0; p < count; ++p) {
      double* row = centred.data() + p * hidden;
      double dot = 0;
      for (size_t i = 0; i < hidden; ++i) dot += row[i] * direction[i];
      for (size_t i = 0; i < hidden; ++i) row[i] -= dot * direction[i];
    }
    for (const double v : direction) selection.basis.push_back(RoundToHalf(static_cast<float>(v)));
    ++selection.rank;
  }
  if (selection.rank == 0) {
    return Fail(ErrorKind::kUsage, "routing: all prompts look the same to the model: give different ones");
  }
  return selection;
}

}  // namespace cmforge
