// Skill records <-> JSON, and the base64 form of routing subspaces.
#include "cmf/skills.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/bytes.h"
#include "base/half.h"
#include "cmf/json_fields.h"

namespace cmforge::cmf {
namespace {

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::string EncodeBase64(Bytes bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t have = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) group = group << 8 | (k < have ? static_cast<uint32_t>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k) text += k <= have ? kAlphabet[group >> (18 - 6 * k) & 63u] : '=';
  }
  return text;
}

// Standard alphabet; padding may be missing; anything else is refused.
std::optional<std::vector<std::byte>> DecodeBase64(std::string_view text) {
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  if (text.size() % 4 == 1) return std::nullopt;
  std::vector<std::byte> bytes;
  bytes.reserve(text.size() / 4 * 3 + 2);
  uint32_t group = 0;
  int bits = 0;
  for (const char c : text) {
    const size_t value = kAlphabet.find(c);
    if (value == kAlphabet.npos) return std::nullopt;
    group = group << 6 | static_cast<uint32_t>(value);
    if (bits += 6; bits >= 8) {
      bits -= 8;
      bytes.push_back(static_cast<std::byte>(group >> bits & 0xFFu));
    }
  }
  return bytes;
}

// Fails with the reason why the selection cannot be used.
Result<SkillSelection> ParseSelection(const Json& json, int64_t hidden_size) {
  SkillSelection selection;
  JsonFields fields(json, "selection");
  std::string mean, basis;
  fields.Require({"mean", "basis"});
  fields.Read("metric", selection.metric);
  fields.Read("phi_layer", selection.phi_layer);
  fields.Read("rank", selection.rank);
  fields.Read("mean", mean);
  fields.Read("basis", basis);
  fields.Read("err_mean", selection.err_mean);
  fields.Read("err_std", selection.err_std);
  CMF_CHECK(fields.status());
  selection.extra = fields.Rest();
  CMF_TRY(selection.mean, DecodeF16Base64(mean));
  CMF_TRY(selection.basis, DecodeF16Base64(basis));
  const auto hidden = static_cast<size_t>(std::max<int64_t>(hidden_size, 1));
  const auto rank = static_cast<int64_t>(selection.basis.size() / hidden);
  if (selection.mean.size() != hidden || selection.basis.size() % hidden != 0 ||
      (selection.rank != 0 && selection.rank != rank)) {
    return Fail(ErrorKind::kCorrupt,
                fmt::format("selection: mean has {} values, basis {}, rank {}, the hidden size is {}",
                            selection.mean.size(), selection.basis.size(), selection.rank, hidden_size),
                "Parse");
  }
  selection.rank = rank;
  return selection;
}

Json SelectionToJson(const SkillSelection& selection) {
  Json json = Json::object();
  json["metric"] = selection.metric;
  json["phi_layer"] = selection.phi_layer;
  json["mean"] = EncodeF16Base64(selection.mean);
  json["basis"] = EncodeF16Base64(selection.basis);
  json["rank"] = selection.rank;  // other readers demand it
  if (selection.err_mean) json["err_mean"] = *selection.err_mean;
  if (selection.err_std) json["err_std"] = *selection.err_std;
  json.update(selection.extra);
  return json;
}

}  // namespace

std::string EncodeF16Base64(std::span<const float> values) {
  std::vector<std::byte> bytes(values.size() * 2);
  for (size_t i = 0; i < values.size(); ++i) StoreLe<uint16_t>(bytes.data() + 2 * i, F32ToF16(values[i]));
  return EncodeBase64(bytes);
}

Result<std::vector<float>> DecodeF16Base64(std::string_view text) {
  const auto bytes = DecodeBase64(text);
  if (!bytes || bytes->size() % 2 != 0)
    return Fail(ErrorKind::kCorrupt, "not base64 of 16-bit floats", "Parse");
  std::vector<float> values(bytes->size() / 2);
  for (size_t i = 0; i < values.size(); ++i) values[i] = F16ToF32(LoadLe<uint16_t>(bytes->data() + 2 * i));
  return values;
}

Result<SkillRecord> ParseSkill(const Json& json, int64_t hidden_size) {
  SkillRecord skill;
  JsonFields fields(json, "skill record");
  fields.Require({"id"});
  fields.Read("id", skill.id);
  fields.Read("name", skill.name);
  if (const Json* layers = fields.Find("layers"); layers != nullptr && layers->is_array()) {
    for (const Json& layer : *layers) {  // an abbreviated list may hold "..."
      if (layer.is_number_integer()) skill.layers.push_back(layer.get<int64_t>());
    }
  }
  fields.Read("input_mask_task", skill.input_mask_task);
  fields.Read("base_dir_hash", skill.base_dir_hash);
  fields.Read("base_arch", skill.base_arch);
  fields.Read("task", skill.task);
  if (const Json* quality = fields.Find("quality")) skill.quality = *quality;
  if (const Json* provenance = fields.Find("provenance")) skill.provenance = *provenance;
  const Json* selection_json = fields.Find("selection");
  CMF_CHECK(fields.status());
  if (skill.id.empty()) return Fail(ErrorKind::kCorrupt, "skill record: the id is empty", "Parse");
  skill.extra = fields.Rest();
  if (selection_json != nullptr) {
    if (auto selection = ParseSelection(*selection_json, hidden_size)) {
      skill.selection = std::move(*selection);
    } else {
      skill.selection_problem = std::move(selection).error().message;
      skill.extra["selection"] = *selection_json;  // not ours to drop
    }
  }
  return skill;
}

Json SkillToJson(const SkillRecord& skill) {
  Json json = Json::object();
  json["id"] = skill.id;
  json["name"] = skill.name;
  json["layers"] = skill.layers;
  if (skill.selection) json["selection"] = SelectionToJson(*skill.selection);
  if (skill.input_mask_task) json["input_mask_task"] = *skill.input_mask_task;
  if (!skill.quality.is_null()) json["quality"] = skill.quality;
  if (skill.base_dir_hash) json["base_dir_hash"] = *skill.base_dir_hash;
  if (skill.base_arch) json["base_arch"] = *skill.base_arch;
  if (skill.task) json["task"] = *skill.task;
  if (!skill.provenance.is_null()) json["provenance"] = skill.provenance;
  json.update(skill.extra);
  return json;
}

std::string SkillTensorName(std::string_view id, std::string_view replaced) {
  return fmt::format("skill.{}.{}", id, replaced);
}

std::optional<SkillTensorRef> SplitSkillTensorName(std::string_view name,
                                                   std::span<const SkillRecord> skills) {
  constexpr std::string_view kPrefix = "skill.";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  std::optional<SkillTensorRef> best;
  for (const SkillRecord& skill : skills) {
    if (name.size() <= skill.id.size() + 1 || !name.starts_with(skill.id) || name[skill.id.size()] != '.')
      continue;
    if (!best || skill.id.size() > best->id.size())
      best = {name.substr(0, skill.id.size()), name.substr(skill.id.size() + 1)};
  }
  return best;
}

Result<void> CheckSkillId(std::string_view id) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  };
  if (id.empty() || id.size() > 64 || !std::all_of(id.begin(), id.end(), allowed)) {
    return Fail(ErrorKind::kUsage,
                fmt::format("skill id '{}': use 1 to 64 letters, digits, '_' and '-'", id));
  }
  return {};
}

}  // namespace cmforge::cmf
