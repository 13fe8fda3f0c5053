// Skill records (spec 9, 9.1): the registry in the header JSON that says which replacement tensors
// `skill.{id}.{name}` belong together, how to choose among them, and for a standalone skill which base it
// fits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace cmforge::cmf {

/// The affine subspace a skill was trained near: residual energy E = |r - B B^T r|^2 / |phi|^2, r = phi -
/// mean.
struct SkillSelection {
  std::string metric = "mse";               // "mse", "mse_unit"; others are not routable by us
  int64_t phi_layer = 0;                    // hidden state after this layer, 0-based
  int64_t rank = 0;                         // rows of `basis`; 0 in the file: derived
  std::vector<float> mean;                  // [hidden]
  std::vector<float> basis;                 // [rank, hidden], orthonormal rows
  std::optional<double> err_mean, err_std;  // of held-out prompts, for novelty
  Json extra = Json::object();              // keys we do not know, kept

  bool operator==(const SkillSelection&) const = default;
};

struct SkillRecord {
  std::string id;  // [A-Za-z0-9_-]+ when written by us; any non-empty text is read
  std::string name;
  std::vector<int64_t> layers;
  std::optional<SkillSelection> selection;  // absent: never chosen by routing
  std::string selection_problem;            // why a selection in the file could not be used; empty = fine
  std::optional<std::string> input_mask_task;
  Json quality;  // overlaid against backbone on held-out data; null = not measured
  std::optional<std::string> base_dir_hash;  // 16 hex digits: a standalone skill (raises SKILL_FILE)
  std::optional<std::string> base_arch, task;
  Json provenance;
  Json extra = Json::object();  // keys we do not know, kept

  bool operator==(const SkillRecord&) const = default;
};

/// `hidden_size` settles rank and lengths of the selection; one that does not fit is left out and
/// `selection_problem` says why (the skill stays usable by id).
/// Fails: kCorrupt "Parse" when it is not an object or has no usable id.
Result<SkillRecord> ParseSkill(const Json& json, int64_t hidden_size);
[[nodiscard]] Json SkillToJson(const SkillRecord& skill);

/// The directory name of a replacement, "skill.sql.model.norm.weight", and the two ways back.
[[nodiscard]] std::string SkillTensorName(std::string_view id, std::string_view replaced);
struct SkillTensorRef {
  std::string_view id, replaced;
};
/// Splits at the longest of `ids` that fits; ids may hold dots. Nothing when no id fits.
[[nodiscard]] std::optional<SkillTensorRef> SplitSkillTensorName(std::string_view name,
                                                                 std::span<const SkillRecord> skills);

/// Ids become parts of names and paths: letters, digits, '_' and '-', 1 to 64 of them. Fails: kUsage.
Result<void> CheckSkillId(std::string_view id);

/// f16 little-endian base64, the form of `mean` and `basis`.
[[nodiscard]] std::string EncodeF16Base64(std::span<const float> values);
Result<std::vector<float>> DecodeF16Base64(std::string_view text);

}  // namespace cmforge::cmf
