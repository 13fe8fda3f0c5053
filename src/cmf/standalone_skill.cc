// Cutting a skill out of a specialist, and putting it back.
#include "cmf/standalone_skill.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <unordered_set>

#include "cmf/checked_source.h"
#include "cmf/hash64.h"
#include "cmf/rewrite.h"
#include "cmf/verify.h"

namespace cmforge::cmf {
namespace {

Result<void> CheckIsWholeModel(const File& file) {
  if (file.is_skill_file()) {
    return Fail(ErrorKind::kUsage,
                fmt::format("{}: is itself a standalone skill: name the complete model", file.path()));
  }
  if (file.parts().size() > 1 || !file.is_complete()) {
    return Fail(
        ErrorKind::kUnsupported,
        fmt::format("{}: is one of several shards: make one file of them first (unshard)", file.path()));
  }
  return {};
}

Result<bool> IsSame(const File& a, const File& b, const TensorInfo& tensor) {
  const TensorInfo* other = b.Find(tensor.name);
  if (other == nullptr || other->dtype != tensor.dtype || other->shape != tensor.shape ||
      other->nbytes != tensor.nbytes || a.PlaceOf(tensor).hash != b.PlaceOf(*other).hash) {
    return false;
  }
  // hash64 does not notice swapped words, so equal hashes only say that it is worth looking.
  CMF_TRY(const TensorView mine, a.Read(tensor.name));
  CMF_TRY(const TensorView theirs, b.Read(tensor.name));
  return std::equal(mine.bytes.begin(), mine.bytes.end(), theirs.bytes.begin(), theirs.bytes.end());
}

std::vector<int64_t> LayersOf(std::span<const std::string> names) {
  constexpr std::string_view kLayers = "model.layers.";
  std::set<int64_t> layers;
  for (const std::string& name : names) {
    int64_t layer = 0;
    const char* begin = name.data() + std::min(kLayers.size(), name.size());
    if (!name.starts_with(kLayers)) continue;
    if (std::from_chars(begin, name.data() + name.size(), layer).ec == std::errc()) layers.insert(layer);
  }
  return {layers.begin(), layers.end()};
}

/// The base before the skill.
class AppliedSource final : public TensorSource {
 public:
  AppliedSource(const File& base, const File& skill) : base_(base), skill_(skill) {
    for (const TensorInfo& tensor : base.tensors()) {
      const TensorInfo* over = skill.Find(tensor.name);
      tensors_.push_back(over != nullptr ? *over : tensor);
    }
    for (const TensorInfo& tensor : skill.tensors()) {
      if (base.Find(tensor.name) == nullptr) tensors_.push_back(tensor);
    }
  }
  [[nodiscard]] std::span<const TensorInfo> tensors() const override { return tensors_; }
  [[nodiscard]] const TensorInfo* Find(std::string_view name) const override {
    const TensorInfo* over = skill_.Find(name);
    return over != nullptr ? over : base_.Find(name);
  }
  Result<TensorView> Read(std::string_view name) const override {
    const TensorInfo* over = skill_.Find(name);
    if (over == nullptr) return base_.Read(name);
    CMF_TRY(TensorView view, skill_.Read(name));
    CMF_CHECK(CheckPayload(skill_, *over, view.bytes));
    return view;
  }
  [[nodiscard]] std::string_view path() const override { return base_.path(); }

 private:
  const File& base_;
  const File& skill_;
  std::vector<TensorInfo> tensors_;
};

}  // namespace

Result<WriteSummary> ExportSkill(const File& specialist, const File& base, const ExportedSkill& skill,
                                 const std::filesystem::path& target, const RunControl& run) {
  CMF_CHECK(CheckSkillId(skill.id));
  CMF_CHECK(CheckIsWholeModel(specialist));
  CMF_CHECK(CheckIsWholeModel(base));
  const ModelConfig &mine = specialist.config(), &theirs = base.config();
  if (mine.arch_name != theirs.arch_name || mine.num_layers != theirs.num_layers ||
      mine.hidden_size != theirs.hidden_size) {
    return Fail(
        ErrorKind::kUsage,
        fmt::format("{}: {} of {} layers, hidden {}, but {} is {} of {} layers, hidden {}: it was not made "
                    "from that base",
                    specialist.path(), mine.arch_name, mine.num_layers, mine.hidden_size, base.path(),
                    theirs.arch_name, theirs.num_layers, theirs.hidden_size));
  }
  for (const TensorInfo& tensor : base.tensors()) {
    if (specialist.Find(tensor.name) != nullptr || tensor.name.starts_with("skill.")) continue;
    return Fail(ErrorKind::kUsage,
                fmt::format("{}: tensor '{}' of {} is not in it: a skill cannot take a tensor away",
                            specialist.path(), tensor.name, base.path()));
  }
  Contents contents;
  for (const TensorInfo& tensor : specialist.tensors()) {
    CMF_CHECK(run.CheckCancelled());
    CMF_TRY(const bool is_same, IsSame(specialist, base, tensor));
    if (!is_same) contents.names.push_back(tensor.name);
  }
  if (contents.names.empty()) {
    return Fail(ErrorKind::kUsage, fmt::format("{}: every tensor is that of {}: there is no skill to export",
                                               specialist.path(), base.path()));
  }
  contents.tensors = contents.origin = &specialist;
  contents.masks = specialist.masks();
  contents.header.config = mine;
  contents.header.chat = specialist.chat();
  contents.header.provenance = specialist.header().provenance;
  SkillRecord record;
  record.id = skill.id;
  record.name = skill.name;
  record.layers = LayersOf(contents.names);
  record.base_dir_hash = Hash64Hex(base.dir_hash());
  record.base_arch = theirs.arch_name;
  record.task = specialist.masks().empty() ? "general" : specialist.masks().default_task;
  record.provenance = {{"cut_from", skill.cut_from}, {"tensors", contents.names.size()}};
  contents.header.skills.push_back(std::move(record));
  return WriteCmf(target, contents, run);
}

Result<WriteSummary> ApplySkill(const File& base, const File& skill, bool force,
                                const std::filesystem::path& target, const RunControl& run) {
  CMF_CHECK(CheckIsWholeModel(base));
  const auto& records = skill.header().skills;
  const auto record = std::find_if(records.begin(), records.end(),
                                   [](const SkillRecord& r) { return r.base_dir_hash.has_value(); });
  if (record == records.end()) {
    return Fail(ErrorKind::kUsage,
                fmt::format("{}: not a standalone skill: no record of it names a base", skill.path()));
  }
  if (!CheckSkillId(record->id)) {
    return Fail(
        ErrorKind::kCorrupt,
        fmt::format("{}: skill id '{}': not 1 to 64 letters, digits, '_' and '-'", skill.path(), record->id));
  }
  if (const std::string key = Hash64Hex(base.dir_hash()); key != *record->base_dir_hash) {
    const std::string fact =
        fmt::format("{}: skill '{}' was cut against a base with directory hash {} ({}), {} has {}",
                    skill.path(), record->id, *record->base_dir_hash,
                    record->base_arch.value_or("architecture not told"), base.path(), key);
    if (!force) {
      return Fail(ErrorKind::kUsage,
                  fmt::format("{}: use that exact file (adding or removing a skill changes the "
                              "hash too), or --force at your own risk",
                              fact));
    }
    run.Warn(fact + ": applied all the same");
  }
  for (const Part& part : skill.parts()) CMF_CHECK(CheckSections(part));
  const AppliedSource source(base, skill);
  Contents contents = ContentsOf(base);
  contents.tensors = &source;
  contents.names.clear();
  for (const TensorInfo& tensor : source.tensors()) {
    if (!tensor.name.starts_with("skill.")) contents.names.push_back(tensor.name);
  }
  contents.masks = skill.masks();
  contents.sparse_index = contents.sparse_index && !contents.masks.empty();
  contents.header.config = skill.config();  // masks are sized by it
  if (skill.chat()) contents.header.chat = skill.chat();
  SkillRecord applied = *record;
  applied.base_dir_hash.reset();
  contents.header.skills = {std::move(applied)};
  return WriteCmf(target, contents, run);
}

}  // namespace cmforge::cmf
