// DefragFile: the cut source, encoded again, written as everything else is.
#include "convert/defrag.h"

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "cmf/checked_source.h"
#include "cmf/rewrite.h"
#include "convert/defrag_source.h"
#include "quant/encoding.h"

namespace cmforge {
namespace {

// The cut tensors of a DefragSource in the encodings they had below.
class EncodedCuts final : public TensorSource {
 public:
  EncodedCuts(const DefragSource& cut, const cmf::File& file, ThreadPool& pool) : cut_(cut), pool_(pool) {
    for (const TensorInfo& info : cut.tensors()) {
      TensorInfo encoded = info;
      if (cut.IsCut(info.name)) {
        encoded.dtype = file.Find(info.name)->dtype;
        const Encoding* encoding = FindEncoding(encoded.dtype);
        if (encoding == nullptr || !encoding->reason_against(info.shape).empty()) {
          encoded.dtype = DType::kQ8TwoField;  // has no rule about columns
          wider_.push_back(info.name);
        }
        const auto size = FindEncoding(encoded.dtype)->payload_size(info.shape);
        encoded.nbytes = size.value_or(file.Find(info.name)->nbytes);  // vbit and the like: for progress only
      }
      by_name_.emplace(encoded.name, tensors_.size());
      tensors_.push_back(std::move(encoded));
    }
  }
  [[nodiscard]] std::span<const TensorInfo> tensors() const override { return tensors_; }
  [[nodiscard]] const TensorInfo* Find(std::string_view name) const override {
    const auto found = by_name_.find(std::string(name));
    return found == by_name_.end() ? nullptr : &tensors_[found->second];
  }
  Result<TensorView> Read(std::string_view name) const override {
    CMF_TRY(const TensorView view, cut_.Read(name));
    if (!cut_.IsCut(name)) return view;
    const DType dtype = Find(name)->dtype;
    CMF_TRY(const FloatRows rows, AsFloatRows(view));
    auto payload = FindEncoding(dtype)->encode(rows, EncodeOptions{}, pool_);
    if (!payload) return Fail(std::move(payload).error().In(fmt::format("{}: tensor '{}'", path(), name)));
    auto bytes = std::make_shared<const std::vector<std::byte>>(std::move(*payload));
    return TensorView{dtype, view.shape, *bytes, bytes};
  }
  [[nodiscard]] std::string_view path() const override { return cut_.path(); }
  [[nodiscard]] const std::vector<std::string>& wider() const { return wider_; }

 private:
  const DefragSource& cut_;
  ThreadPool& pool_;
  std::vector<TensorInfo> tensors_;
  std::unordered_map<std::string, size_t> by_name_;
  std::vector<std::string> wider_;
};

}  // namespace

std::string DefragProvenance(const FfnKeepSummary& summary, const std::string& source_skill) {
  return DumpJson(Json{{"source_skill", source_skill},
                       {"pre_intermediate", summary.widest_before},
                       {"post_intermediate_max", summary.widest_after},
                       {"kept_per_layer", summary.kept_per_layer},
                       {"pruned_ratio", std::round(summary.pruned_ratio * 1e4) / 1e4}});
}

Result<DefragReport> DefragFile(const cmf::File& file, const std::string& task, const std::string& tool,
                                const std::filesystem::path& target, ThreadPool& pool,
                                const RunControl& run) {
  if (file.is_skill_file()) {
    return Fail(ErrorKind::kUnsupported,
                fmt::format("{}: a standalone skill: apply it first (`cmforge skill apply`)", file.path()));
  }
  if (!file.is_complete()) {
    return Fail(ErrorKind::kUnsupported,
                fmt::format("{}: one shard alone: name a file of the whole set", file.path()));
  }
  const cmf::TaskMask* mask = file.masks().Find(task);
  if (mask == nullptr) {
    std::vector<std::string_view> names;
    for (const cmf::TaskMask& each : file.masks().masks) names.push_back(each.name);
    return Fail(ErrorKind::kNotFound,
                fmt::format("{}: no task '{}': {}", file.path(), task,
                            names.empty() ? "the file has no masks"
                                          : fmt::format("it has {}", fmt::join(names, ", "))));
  }
  CMF_TRY(FfnKeep keep, KeepFromMask(*mask, file, file.config()));
  DefragReport report;
  report.neurons = Summarize(keep, file);
  DeadColumns dead = DeadColumnsOf(*mask, file, file.config());
  if (report.neurons.pruned_ratio == 0 && dead.empty()) {
    return Fail(ErrorKind::kUsage,
                fmt::format("{}: task '{}' uses every neuron: nothing would be cut", file.path(), task));
  }
  CMF_TRY(const cmf::CheckedSource checked, cmf::CheckedSource::Of(file));
  CMF_TRY(const DefragSource cut, DefragSource::Create(checked, std::move(keep), std::move(dead)));
  const EncodedCuts source(cut, file, pool);
  report.wider = source.wider();

  cmf::Contents contents = cmf::ContentsOf(file);
  contents.tensors = &source;
  contents.masks = {};
  contents.header.config.intermediate_size = report.neurons.widest_after;
  contents.header.quant_type.clear();
  for (cmf::SkillRecord& skill : contents.header.skills) skill.input_mask_task.reset();
  Json& provenance = contents.header.provenance;
  if (!provenance.is_object()) provenance = Json::object();
  provenance["defrag"] = Json::parse(DefragProvenance(report.neurons, task));
  provenance["defrag"]["tool"] = tool;
  CMF_TRY(const cmf::WriteSummary summary, cmf::WriteCmf(target, contents, run));
  for (const cmf::Part& part : file.parts()) report.bytes_before += part.bytes.size();
  report.bytes_after = summary.bytes;
  return report;
}

}  // namespace cmforge
