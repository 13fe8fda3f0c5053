// Skills as sources in front of the backbone (spec 9): for every tensor the reader gets either the backbone's
// bytes or the skill's replacement. Nothing is copied, so processes share the backbone's pages and switching
// is a matter of which names are looked up. A soft blend computes its tensors, and only those that some skill
// of it replaces.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cmf/skills.h"
#include "model/tensor_source.h"

namespace cmforge {

/// The names that skill `id` replaces, in the order of the source.
[[nodiscard]] std::vector<std::string> ReplacedTensors(const TensorSource& source, std::string_view id,
                                                       std::span<const cmf::SkillRecord> skills);

/// Ids that can be run: those of the registry, then those that only have tensors.
[[nodiscard]] std::vector<std::string> SkillIds(const TensorSource& source,
                                                std::span<const cmf::SkillRecord> skills);

/// `source` with the tensors of skill `id` in the place of the backbone's; skill tensors themselves are not
/// listed any more. An empty id gives the backbone.
/// Fails: kNotFound (no such skill: the ids there are), kCorrupt (a replacement of another shape than what it
/// replaces, named).
Result<std::shared_ptr<const TensorSource>> MakeSkillOverlay(std::shared_ptr<const TensorSource> source,
                                                             std::string_view id,
                                                             std::span<const cmf::SkillRecord> skills);

struct SkillWeight {
  std::string id;
  double weight = 0;
};

/// Tensors that some skill of `weights` replaces are sum(weight_i * T_i) in f32, T_i being that skill's tensor
/// or the backbone's; weights are used as given. Computed when read, not kept.
/// Fails: as MakeSkillOverlay.
Result<std::shared_ptr<const TensorSource>> MakeSkillBlend(std::shared_ptr<const TensorSource> source,
                                                           std::span<const SkillWeight> weights,
                                                           std::span<const cmf::SkillRecord> skills);

/// "sql:0.25,poet:0.75", weights scaled to a sum of 1. Fails: kUsage (a weight that is no number or negative,
/// a skill twice, nothing left).
Result<std::vector<SkillWeight>> ParseBlend(std::string_view text);

/// `front` before `back`: names of both, front's where both have one. Both must outlive the result.
class FrontedSource final : public TensorSource {
 public:
  FrontedSource(const TensorSource& front, const TensorSource& back);
  [[nodiscard]] std::span<const TensorInfo> tensors() const override { return tensors_; }
  [[nodiscard]] const TensorInfo* Find(std::string_view name) const override;
  Result<TensorView> Read(std::string_view name) const override;
  [[nodiscard]] std::string_view path() const override { return back_.path(); }

 private:
  const TensorSource& front_;
  const TensorSource& back_;
  std::vector<TensorInfo> tensors_;
};

}  // namespace cmforge
