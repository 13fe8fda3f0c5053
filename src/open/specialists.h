// The specialists of one opened file: the backbone, each skill, blends, and a model that chooses for itself
// while it runs. All read the same mapping; loading one binds names to operators and copies no matrix.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/progress.h"
#include "model/language_model.h"
#include "open/open_source.h"
#include "open/routing.h"
#include "open/skill_overlay.h"

namespace cmforge {

class Specialists {
 public:
  /// Makes an engine over a source; `variant` (0: the source as it is) tells snapshots apart.
  using Loader = std::function<Result<std::shared_ptr<LanguageModel>>(std::shared_ptr<const TensorSource>,
                                                                      uint64_t variant)>;
  Specialists(OpenedSource source, Loader load, RunControl control = {})
      : source_(std::move(source)), load_(std::move(load)), control_(std::move(control)) {}

  [[nodiscard]] const OpenedSource& source() const { return source_; }
  [[nodiscard]] const RunControl& control() const { return control_; }
  [[nodiscard]] std::span<const cmf::SkillRecord> skills() const;
  [[nodiscard]] const cmf::SkillRecord* FindSkill(std::string_view id) const;
  [[nodiscard]] bool has_routable_skill() const;

  /// Loaded when first asked for, then kept. An empty id is the backbone.
  /// Fails: kNotFound naming the skills there are; as engine::Model::Load.
  Result<std::shared_ptr<LanguageModel>> WithSkill(const std::string& id);
  Result<std::shared_ptr<LanguageModel>> Backbone() { return WithSkill(""); }
  Result<std::shared_ptr<LanguageModel>> Blended(std::span<const SkillWeight> weights);

  /// Skill `id` (or the backbone) cut to what a mask leaves of it, in memory of its own (compact_task.h); nothing where
  /// that cannot be done. The last one asked for is kept. `active`: of a task of this file.
  struct Compact {
    std::shared_ptr<LanguageModel> model;
    std::shared_ptr<const ActiveSet> active;  // what is left to restrict, or null
  };
  Result<std::optional<Compact>> WithTask(const std::string& id, std::shared_ptr<const ActiveSet> active);

  /// Ranks the routable skills for a prompt (encoded without begin token).
  Result<Ranking> Route(std::span<const TokenId> prompt);
  /// The weights of the two best, from the first 128 tokens.
  Result<std::vector<SkillWeight>> RouteBlend(std::span<const TokenId> prompt);

 private:
  OpenedSource source_;
  Loader load_;
  RunControl control_;
  std::map<std::string, std::shared_ptr<LanguageModel>> loaded_;
  struct Kept {
    std::string id;
    std::shared_ptr<const ActiveSet> active;
    std::optional<Compact> compact;
  };
  Kept kept_;
};

}  // namespace cmforge
