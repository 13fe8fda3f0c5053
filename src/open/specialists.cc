// Loading and choosing specialists.
#include "open/specialists.h"

#include <algorithm>

#include "cmf/hash64.h"
#include "open/compact_task.h"

namespace cmforge {

std::span<const cmf::SkillRecord> Specialists::skills() const {
  if (!source_.cmf) return {};
  return source_.cmf->header().skills;
}

const cmf::SkillRecord* Specialists::FindSkill(std::string_view id) const {
  const auto all = skills();
  const auto it = std::find_if(all.begin(), all.end(), [&](const auto& skill) { return skill.id == id; });
  return it == all.end() ? nullptr : &*it;
}

bool Specialists::has_routable_skill() const {
  const auto all = skills();
  return std::any_of(all.begin(), all.end(), IsRoutable);
}

Result<std::shared_ptr<LanguageModel>> Specialists::WithSkill(const std::string& id) {
  if (const auto it = loaded_.find(id); it != loaded_.end()) return it->second;
  CMF_TRY(auto tensors, MakeSkillOverlay(source_.tensors, id, skills()));
  CMF_TRY(auto model, load_(std::move(tensors), id.empty() ? 0 : cmf::Hash64(AsBytes(id))));
  loaded_.emplace(id, model);
  return model;
}

Result<std::shared_ptr<LanguageModel>> Specialists::Blended(std::span<const SkillWeight> weights) {
  CMF_TRY(auto tensors, MakeSkillBlend(source_.tensors, weights, skills()));
  std::string recipe;
  for (const SkillWeight& part : weights) recipe += fmt::format("{}:{},", part.id, part.weight);
  return load_(std::move(tensors), cmf::Hash64(AsBytes(recipe)));
}

Result<std::optional<Specialists::Compact>> Specialists::WithTask(const std::string& id,
                                                                  std::shared_ptr<const ActiveSet> active) {
  if (active == kept_.active && id == kept_.id) return kept_.compact;
  CMF_TRY(auto tensors, MakeSkillOverlay(source_.tensors, id, skills()));
  CMF_TRY(auto cut, MakeCompactTask(std::move(tensors), *source_.config, *active));
  kept_ = {id, std::move(active), std::nullopt};
  if (!cut) {
    control_.Info(fmt::format("{}: the task's weights cannot be copied side by side: its mask runs in place",
                              source_.path));
    return kept_.compact;
  }
  // The states are those of the mask in place, so the variant is the skill's.
  CMF_TRY(auto model, load_(std::move(cut->tensors), id.empty() ? 0 : cmf::Hash64(AsBytes(id))));
  kept_.compact = Compact{std::move(model), std::move(cut->active)};
  return kept_.compact;
}

Result<Ranking> Specialists::Route(std::span<const TokenId> prompt) {
  if (!source_.cmf) {
    return Fail(ErrorKind::kUsage, fmt::format("{}: not a .cmf file: it has no skills", source_.path));
  }
  CMF_TRY(const auto backbone, Backbone());
  auto ranking = RankSkills(*backbone, source_.cmf->header(), prompt, control_);
  if (!ranking) return Fail(std::move(ranking).error().In(source_.path));
  return ranking;
}

Result<std::vector<SkillWeight>> Specialists::RouteBlend(std::span<const TokenId> prompt) {
  CMF_TRY(const Ranking ranking, Route(prompt.first(std::min<size_t>(prompt.size(), 128))));
  const std::vector<double> weights = BlendWeights(ranking.scores);
  std::vector<SkillWeight> parts;
  for (size_t i = 0; i < weights.size(); ++i) parts.push_back({ranking.scores[i].id, weights[i]});
  return parts;
}

}  // namespace cmforge
