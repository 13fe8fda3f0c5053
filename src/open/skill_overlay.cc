// Skill overlays and blends.
#include "open/skill_overlay.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <unordered_map>
#include <unordered_set>

#include "quant/encoding.h"

namespace cmforge {
namespace {

constexpr std::string_view kPrefix = "skill.";

/// The registry, and `id` beside it where it only has tensors.
std::vector<cmf::SkillRecord> WithId(std::span<const cmf::SkillRecord> skills, std::string_view id) {
  std::vector<cmf::SkillRecord> all(skills.begin(), skills.end());
  if (std::none_of(all.begin(), all.end(), [&](const auto& s) { return s.id == id; })) {
    all.emplace_back().id = id;
  }
  return all;
}

Result<void> CheckSkill(const TensorSource& source, std::string_view id,
                        std::span<const cmf::SkillRecord> skills) {
  const bool is_registered =
      std::any_of(skills.begin(), skills.end(), [&](const auto& skill) { return skill.id == id; });
  if (is_registered || !ReplacedTensors(source, id, skills).empty()) return {};
  const auto ids = SkillIds(source, skills);
  return Fail(
      ErrorKind::kNotFound,
      fmt::format("{}: no skill '{}': {}", source.path(), id,
                  ids.empty() ? "the file has none" : fmt::format("it has {}", fmt::join(ids, ", "))));
}

/// Names that are looked up elsewhere in the source behind.
class Overlay final : public TensorSource {
 public:
  explicit Overlay(std::shared_ptr<const TensorSource> source) : source_(std::move(source)) {}

  Result<void> Build(std::string_view id, std::span<const cmf::SkillRecord> skills) {
    for (std::string& name : ReplacedTensors(*source_, id, skills)) {
      std::string replacement = cmf::SkillTensorName(id, name);
      const TensorInfo *mine = source_->Find(replacement), *theirs = source_->Find(name);
      if (theirs != nullptr && mine->shape != theirs->shape) {
        return Fail(
            ErrorKind::kCorrupt,
            fmt::format("{}: tensor '{}': shape {}, but what it replaces has {}: add the skill again",
                        source_->path(), replacement, ShapeText(mine->shape), ShapeText(theirs->shape)));
      }
      replacement_of_.emplace(std::move(name), std::move(replacement));
    }
    std::unordered_set<std::string_view> listed;
    for (const TensorInfo& tensor : source_->tensors()) {
      if (tensor.name.starts_with(kPrefix)) continue;
      const auto it = replacement_of_.find(tensor.name);
      if (it == replacement_of_.end()) {
        tensors_.push_back(tensor);
      } else {
        tensors_.push_back(*source_->Find(it->second));
        tensors_.back().name = tensor.name;
      }
      listed.insert(tensor.name);
    }
    for (const auto& [name, replacement] : replacement_of_) {  // what the backbone does not have at all
      if (listed.contains(name)) continue;
      tensors_.push_back(*source_->Find(replacement));
      tensors_.back().name = name;
    }
    for (size_t i = 0; i < tensors_.size(); ++i) by_name_.emplace(tensors_[i].name, i);
    return {};
  }

  [[nodiscard]] std::span<const TensorInfo> tensors() const override { return tensors_; }
  [[nodiscard]] const TensorInfo* Find(std::string_view name) const override {
    const auto it = by_name_.find(name);
    return it == by_name_.end() ? nullptr : &tensors_[it->second];
  }
  Result<TensorView> Read(std::string_view name) const override {
    const auto it = replacement_of_.find(std::string(name));
    return source_->Read(it == replacement_of_.end() ? name : std::string_view(it->second));
  }
  [[nodiscard]] std::span<const std::string> skipped() const override { return source_->skipped(); }
  [[nodiscard]] std::string_view path() const override { return source_->path(); }

 private:
  std::shared_ptr<const TensorSource> source_;
  std::unordered_map<std::string, std::string> replacement_of_;
  std::vector<TensorInfo> tensors_;
  std::unordered_map<std::string_view, size_t> by_name_;
};

class Blend final : public TensorSource {
 public:
  Blend(std::shared_ptr<const TensorSource> backbone,
        std::vector<std::pair<std::shared_ptr<const TensorSource>, float>> parts,
        const std::unordered_set<std::string>& touched)
      : backbone_(std::move(backbone)), parts_(std::move(parts)) {
    for (const TensorInfo& tensor : backbone_->tensors()) {
      tensors_.push_back(tensor);
      if (!touched.contains(tensor.name)) continue;
      tensors_.back().dtype = DType::kF32;
      tensors_.back().nbytes = static_cast<uint64_t>(ElementCount(tensor.shape).value_or(0)) * sizeof(float);
      blended_.insert(tensor.name);
    }
    for (size_t i = 0; i < tensors_.size(); ++i) by_name_.emplace(tensors_[i].name, i);
  }

  [[nodiscard]] std::span<const TensorInfo> tensors() const override { return tensors_; }
  [[nodiscard]] const TensorInfo* Find(std::string_view name) const override {
    const auto it = by_name_.find(name);
    return it == by_name_.end() ? nullptr : &tensors_[it->second];
  }
  Result<TensorView> Read(std::string_view name) const override {
    if (!blended_.contains(std::string(name))) return backbone_->Read(name);
    const TensorInfo& info = *Find(name);
    auto sum = std::make_shared<std::vector<float>>(static_cast<size_t>(*ElementCount(info.shape)));
    for (const auto& [source, weight] : parts_) {
      CMF_TRY(const TensorView view, source->Read(name));
      auto values = Dequantize(view);
      if (!values)
        return Fail(std::move(values).error().In(fmt::format("{}: tensor '{}'", source->path(), name)));
      for (size_t i = 0; i < sum->size(); ++i) (*sum)[i] += weight * (*values)[i];
    }
    return TensorView{DType::kF32, info.shape, std::as_bytes(std::span(*sum)), sum};
  }
  [[nodiscard]] std::string_view path() const override { return backbone_->path(); }

 private:
  std::shared_ptr<const TensorSource> backbone_;
  std::vector<std::pair<std::shared_ptr<const TensorSource>, float>> parts_;
  std::vector<TensorInfo> tensors_;
  std::unordered_set<std::string> blended_;
  std::unordered_map<std::string_view, size_t> by_name_;
};

}  // namespace

std::vector<std::string> ReplacedTensors(const TensorSource& source, std::string_view id,
                                         std::span<const cmf::SkillRecord> skills) {
  const auto all = WithId(skills, id);
  std::vector<std::string> names;
  for (const TensorInfo& tensor : source.tensors()) {
    const auto ref = cmf::SplitSkillTensorName(tensor.name, all);
    if (ref && ref->id == id) names.emplace_back(ref->replaced);
  }
  return names;
}

std::vector<std::string> SkillIds(const TensorSource& source, std::span<const cmf::SkillRecord> skills) {
  std::vector<std::string> ids;
  for (const cmf::SkillRecord& skill : skills) ids.push_back(skill.id);
  for (const TensorInfo& tensor : source.tensors()) {
    if (!tensor.name.starts_with(kPrefix) || cmf::SplitSkillTensorName(tensor.name, skills)) continue;
    const std::string rest = tensor.name.substr(kPrefix.size());
    const std::string id = rest.substr(0, rest.find('.'));
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  }
  return ids;
}

Result<std::shared_ptr<const TensorSource>> MakeSkillOverlay(std::shared_ptr<const TensorSource> source,
                                                             std::string_view id,
                                                             std::span<const cmf::SkillRecord> skills) {
  if (id.empty()) return source;
  CMF_CHECK(CheckSkill(*source, id, skills));
  auto overlay = std::make_shared<Overlay>(std::move(source));
  CMF_CHECK(overlay->Build(id, skills));
  return overlay;
}

Result<std::shared_ptr<const TensorSource>> MakeSkillBlend(std::shared_ptr<const TensorSource> source,
                                                           std::span<const SkillWeight> weights,
                                                           std::span<const cmf::SkillRecord> skills) {
  std::vector<std::pair<std::shared_ptr<const TensorSource>, float>> parts;
  std::unordered_set<std::string> touched;
  for (const SkillWeight& part : weights) {
    CMF_TRY(auto overlay, MakeSkillOverlay(source, part.id, skills));
    parts.emplace_back(std::move(overlay), static_cast<float>(part.weight));
    for (std::string& name : ReplacedTensors(*source, part.id, skills)) {
      if (source->Find(name) == nullptr) {
        return Fail(ErrorKind::kUnsupported,
                    fmt::format("{}: skill '{}' has tensor '{}', the backbone does not: it cannot be blended",
                                source->path(), part.id, name));
      }
      touched.insert(std::move(name));
    }
  }
  return std::make_shared<Blend>(std::move(source), std::move(parts), touched);
}

Result<std::vector<SkillWeight>> ParseBlend(std::string_view text) {
  std::vector<SkillWeight> weights;
  double sum = 0;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string_view item = text.substr(at, end - at);
    at = end + 1;
    const size_t colon = item.rfind(':');
    SkillWeight part;
    part.id = item.substr(0, colon);
    const std::string_view number = colon == item.npos ? "" : item.substr(colon + 1);
    const auto [stop, error] = std::from_chars(number.data(), number.data() + number.size(), part.weight);
    if (part.id.empty() || error != std::errc() || stop != number.data() + number.size() ||
        !std::isfinite(part.weight) || part.weight < 0) {
      return Fail(ErrorKind::kUsage,
                  fmt::format("blend: '{}' is not ID:WEIGHT: write it like sql:0.25,poet:0.75", item));
    }
    for (const SkillWeight& other : weights) {
      if (other.id == part.id)
        return Fail(ErrorKind::kUsage, fmt::format("blend: '{}' occurs twice", part.id));
    }
    sum += part.weight;
    weights.push_back(std::move(part));
  }
  if (!(sum > 0)) return Fail(ErrorKind::kUsage, "blend: all weights are 0: give at least one above");
  for (SkillWeight& part : weights) part.weight /= sum;
  return weights;
}

FrontedSource::FrontedSource(const TensorSource& front, const TensorSource& back)
    : front_(front), back_(back) {
  for (const TensorInfo& tensor : back.tensors()) {
    if (front.Find(tensor.name) == nullptr) tensors_.push_back(tensor);
  }
  tensors_.insert(tensors_.end(), front.tensors().begin(), front.tensors().end());
}

const TensorInfo* FrontedSource::Find(std::string_view name) const {
  const TensorInfo* info = front_.Find(name);
  return info != nullptr ? info : back_.Find(name);
}

Result<TensorView> FrontedSource::Read(std::string_view name) const {
  return front_.Find(name) != nullptr ? front_.Read(name) : back_.Read(name);
}

}  // namespace cmforge
