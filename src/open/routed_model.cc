// Dynamic routing.
#include "open/routed_model.h"

#include <algorithm>
#include <map>

#include "generate/generator.h"

namespace cmforge {
namespace {

struct Candidate {
  const cmf::SkillRecord* skill = nullptr;
  std::shared_ptr<LanguageModel> model;
};

using Averages = std::map<int64_t, std::vector<float>>;  // by layer

class RoutedSequence final : public Sequence {
 public:
  RoutedSequence(std::unique_ptr<Sequence> inner_sequence, SequenceOptions sequence_options)
      : inner(std::move(inner_sequence)), options(sequence_options) {}

  [[nodiscard]] int64_t position() const override { return inner->position(); }
  [[nodiscard]] int64_t context_length() const override { return inner->context_length(); }
  [[nodiscard]] uint64_t state_bytes() const override { return inner->state_bytes(); }
  Result<std::unique_ptr<Sequence>> Fork() const override {
    CMF_TRY(auto copy, inner->Fork());
    auto fork = std::make_unique<RoutedSequence>(std::move(copy), options);
    fork->skill = skill;
    fork->consumed = consumed;
    fork->averages = averages;
    fork->since_look = since_look;
    return std::unique_ptr<Sequence>(std::move(fork));
  }
  /// The average goes on from where it is: it forgets within some twenty tokens.
  Result<void> Rewind(int64_t to) override {
    CMF_CHECK(inner->Rewind(to));
    consumed.resize(static_cast<size_t>(to));
    if (to == 0) averages.clear();
    return {};
  }
  Result<std::vector<std::byte>> Snapshot() const override {
    return Fail(ErrorKind::kUnsupported,
                "a sequence that is routed while it runs cannot be saved: name the skill");
  }

  std::unique_ptr<Sequence> inner;
  SequenceOptions options;
  std::optional<size_t> skill;  // index of the candidate that runs; none: the backbone
  std::vector<TokenId> consumed;
  Averages averages;
  int64_t since_look = 0;
};

/// Follows the averages and passes everything on.
class Follower final : public StepObserver {
 public:
  Follower(RoutedSequence& sequence, std::span<const int64_t> layers, double newest, StepObserver* next,
           int item)
      : sequence_(sequence), layers_(layers), newest_(static_cast<float>(newest)), next_(next), item_(item) {}

  void OnHidden(int layer, int /*item*/, std::span<const float> rows) override {
    if (next_ != nullptr) next_->OnHidden(layer, item_, rows);
    if (std::find(layers_.begin(), layers_.end(), layer) == layers_.end()) return;
    const size_t hidden = width;
    std::vector<float>& average = sequence_.averages[layer];
    for (size_t at = 0; at < rows.size(); at += hidden) {
      const auto row = rows.subspan(at, hidden);
      if (average.empty()) {
        average.assign(row.begin(), row.end());
      } else {
        for (size_t i = 0; i < hidden; ++i) average[i] += newest_ * (row[i] - average[i]);
      }
    }
  }
  void OnLinearInput(std::string_view weight, std::span<const float> rows, int64_t columns) override {
    if (next_ != nullptr) next_->OnLinearInput(weight, rows, columns);
  }
  void OnRoute(int layer, int /*item*/, std::span<const int32_t> experts,
               std::span<const float> weights) override {
    if (next_ != nullptr) next_->OnRoute(layer, item_, experts, weights);
  }
  [[nodiscard]] bool wants_linear_inputs() const override {
    return next_ != nullptr && next_->wants_linear_inputs();
  }

  size_t width = 0;

 private:
  RoutedSequence& sequence_;
  std::span<const int64_t> layers_;
  float newest_;
  StepObserver* next_;
  int item_;
};

class RoutedModel final : public LanguageModel {
 public:
  RoutedModel(std::shared_ptr<Specialists> specialists, std::shared_ptr<LanguageModel> backbone,
              std::vector<Candidate> candidates, SwitchRule rule)
      : specialists_(std::move(specialists)),
        backbone_(std::move(backbone)),
        candidates_(std::move(candidates)),
        rule_(rule) {
    for (const Candidate& candidate : candidates_) layers_.push_back(candidate.skill->selection->phi_layer);
  }

  [[nodiscard]] const ModelConfig& config() const override { return backbone_->config(); }
  [[nodiscard]] uint64_t identity() const override { return backbone_->identity(); }
  Result<std::unique_ptr<Sequence>> NewSequence(const SequenceOptions& options) const override {
    CMF_TRY(auto inner, backbone_->NewSequence(options));
    return std::unique_ptr<Sequence>(std::make_unique<RoutedSequence>(std::move(inner), options));
  }
  Result<std::unique_ptr<Sequence>> RestoreSequence(std::span<const std::byte> /*snapshot*/) const override {
    return Fail(ErrorKind::kUnsupported, "a saved state cannot be routed while it runs: name the skill");
  }

  Result<StepResult> Step(const StepRequest& request) const override {
    StepResult all;
    all.vocab_size = config().vocab_size;
    for (size_t i = 0; i < request.items.size(); ++i) {
      auto* sequence = dynamic_cast<RoutedSequence*>(request.items[i].sequence);
      if (sequence == nullptr)
        return Fail(ErrorKind::kUsage, fmt::format("batch item {}: the sequence is not of this model", i));
      CMF_TRY(const StepResult one,
              StepWatched(request.items[i], *sequence, request.observer, static_cast<int>(i)));
      all.vocab_size = one.vocab_size;
      all.first_row.push_back(static_cast<int64_t>(all.logits.size()) / one.vocab_size);
      all.logits.insert(all.logits.end(), one.logits.begin(), one.logits.end());
    }
    return all;
  }

 private:
  [[nodiscard]] const LanguageModel& ModelOf(std::optional<size_t> skill) const {
    return skill ? *candidates_[*skill].model : *backbone_;
  }

  /// Where every row's logits are asked for, each comes from the skill that its place calls for, however long the step
  /// is: it is cut where the energies are looked at.
  Result<StepResult> StepWatched(const StepItem& item, RoutedSequence& sequence, StepObserver* observer,
                                 int index) const {
    if (item.logits != LogitRows::kAll) return StepOne(item, sequence, observer, index);
    StepResult all;
    for (StepItem rest = item; !rest.tokens.empty();) {
      StepItem piece = rest;
      const auto until_look = static_cast<size_t>(rule_.period - sequence.since_look);
      piece.tokens = rest.tokens.first(std::min(rest.tokens.size(), until_look));
      rest.tokens = rest.tokens.subspan(piece.tokens.size());
      CMF_TRY(const StepResult one, StepOne(piece, sequence, observer, index));
      all.vocab_size = one.vocab_size;
      all.logits.insert(all.logits.end(), one.logits.begin(), one.logits.end());
    }
    return all;
  }

  Result<StepResult> StepOne(StepItem item, RoutedSequence& sequence, StepObserver* observer,
                             int index) const {
    item.sequence = sequence.inner.get();
    Follower follower(sequence, layers_, rule_.newest, observer, index);
    follower.width = static_cast<size_t>(config().hidden_size);
    CMF_TRY(StepResult result, ModelOf(sequence.skill).Step({{&item, 1}, &follower}));
    sequence.consumed.insert(sequence.consumed.end(), item.tokens.begin(), item.tokens.end());
    sequence.since_look += static_cast<int64_t>(item.tokens.size());
    if (sequence.since_look < rule_.period) return result;
    sequence.since_look = 0;
    std::vector<double> energies;
    for (const Candidate& candidate : candidates_) {
      const auto& phi = sequence.averages[candidate.skill->selection->phi_layer];
      energies.push_back(ScoreSkill(*candidate.skill, phi).energy);
    }
    const auto next = NextSkill(sequence.skill, energies, rule_);
    if (next == sequence.skill) return result;
    CMF_TRY(auto fresh, ModelOf(next).NewSequence(sequence.options));
    CMF_TRY(std::vector<float> row,
            Prefill(ModelOf(next), *fresh, sequence.consumed, item.active, specialists_->control()));
    sequence.inner = std::move(fresh);
    sequence.skill = next;
    specialists_->control().Info(fmt::format(
        "{} from token {} on", next ? fmt::format("skill '{}'", candidates_[*next].skill->id) : "no skill",
        sequence.consumed.size()));
    if (item.logits == LogitRows::kLast) result.logits = std::move(row);
    return result;
  }

  std::shared_ptr<Specialists> specialists_;
  std::shared_ptr<LanguageModel> backbone_;
  std::vector<Candidate> candidates_;
  SwitchRule rule_;
  std::vector<int64_t> layers_;
};

bool ReplacesFeedForwardOnly(const TensorSource& source, std::string_view id,
                             std::span<const cmf::SkillRecord> skills) {
  const auto names = ReplacedTensors(source, id, skills);
  return !names.empty() && std::all_of(names.begin(), names.end(), [](const std::string& name) {
    return name.starts_with("model.layers.") && name.find(".mlp.") != name.npos;
  });
}

}  // namespace

std::optional<size_t> NextSkill(std::optional<size_t> current, std::span<const double> energies,
                                const SwitchRule& rule) {
  if (energies.empty()) return std::nullopt;
  const auto best =
      static_cast<size_t>(std::min_element(energies.begin(), energies.end()) - energies.begin());
  const bool can_enter = energies[best] < rule.enter;
  if (!current || energies[*current] > rule.leave) return can_enter ? std::optional(best) : std::nullopt;
  if (can_enter && energies[best] < energies[*current] - rule.win_margin) return best;
  return current;
}

Result<std::shared_ptr<LanguageModel>> MakeRoutedModel(std::shared_ptr<Specialists> specialists,
                                                       const SwitchRule& rule) {
  CMF_TRY(auto backbone, specialists->Backbone());
  const auto& source = specialists->source();
  const int64_t visits = backbone->config().num_layers * backbone->config().num_loops;
  std::vector<Candidate> candidates;
  for (const cmf::SkillRecord& skill : specialists->skills()) {
    if (!skill.selection || skill.selection->metric != "mse" || skill.selection->phi_layer >= visits ||
        !ReplacesFeedForwardOnly(*source.tensors, skill.id, specialists->skills())) {
      continue;
    }
    CMF_TRY(auto model, specialists->WithSkill(skill.id));
    candidates.push_back({&skill, std::move(model)});
  }
  if (candidates.empty()) {
    return Fail(ErrorKind::kUsage,
                specialists->skills().empty()
                    ? fmt::format("{}: it has no skills to route between", source.path)
                    : fmt::format("{}: routing while running: no skill has a subspace of metric 'mse' and "
                                  "replaces feed-forward tensors only: use --skill auto",
                                  source.path));
  }
  return std::shared_ptr<LanguageModel>(std::make_shared<RoutedModel>(
      std::move(specialists), std::move(backbone), std::move(candidates), rule));
}

}  // namespace cmforge
