// Planning grafts.
#include "open/skill_graft.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <unordered_map>

#include "checkpoint/safetensors.h"
#include "cmf/checked_source.h"
#include "open/open_source.h"
#include "open/skill_overlay.h"
#include "quant/encoding.h"

namespace cmforge {
namespace {

namespace fs = std::filesystem;

std::optional<int64_t> LayerOf(std::string_view name) {
  constexpr std::string_view kLayers = "model.layers.";
  int64_t layer = 0;
  if (!name.starts_with(kLayers)) return std::nullopt;
  const auto [stop, error] = std::from_chars(name.data() + kLayers.size(), name.data() + name.size(), layer);
  return error == std::errc() ? std::optional(layer) : std::nullopt;
}

/// Encodes `donor` as `like` is encoded.
Result<TensorView> EncodeLike(const TensorView& like, const TensorView& donor, ThreadPool& pool) {
  if (donor.dtype == like.dtype) return donor;
  const Encoding* encoding = FindEncoding(like.dtype);
  if (encoding == nullptr)
    return Fail(ErrorKind::kUnsupported, fmt::format("encoding {} cannot be written", DTypeName(like.dtype)));
  EncodeOptions options;
  if (like.dtype == DType::kVbit || like.dtype == DType::kVbitRo) {  // the budget the backbone was given
    double bits = 0;
    for (int64_t r = 0; r < like.rows(); ++r)
      bits += std::to_integer<int>(like.bytes[static_cast<size_t>(r)]);
    if (like.rows() > 0) options.mean_bits = bits / static_cast<double>(like.rows());
  }
  CMF_TRY(const FloatRows rows, AsFloatRows(donor));
  CMF_TRY(auto bytes, encoding->encode(rows, options, pool));
  auto owner = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  return TensorView{like.dtype, like.shape, *owner, owner};
}

class GraftSource final : public TensorSource {
 public:
  GraftSource(const cmf::File& backbone, std::shared_ptr<const TensorSource> donor,
              std::shared_ptr<ThreadPool> pool)
      : backbone_(backbone), donor_(std::move(donor)), pool_(std::move(pool)) {}

  void Add(TensorInfo info) {
    by_name_.emplace(info.name, tensors_.size());
    tensors_.push_back(std::move(info));
  }
  [[nodiscard]] std::span<const TensorInfo> tensors() const override { return tensors_; }
  [[nodiscard]] const TensorInfo* Find(std::string_view name) const override {
    const auto it = by_name_.find(std::string(name));
    return it == by_name_.end() ? nullptr : &tensors_[it->second];
  }
  Result<TensorView> Read(std::string_view name) const override {
    CMF_TRY(const TensorView like, backbone_.Read(name));
    CMF_TRY(const TensorView donor, donor_->Read(name));
    auto encoded = EncodeLike(like, donor, *pool_);
    if (!encoded)
      return Fail(std::move(encoded).error().In(fmt::format("{}: tensor '{}'", donor_->path(), name)));
    return encoded;
  }
  [[nodiscard]] std::string_view path() const override { return donor_->path(); }

 private:
  const cmf::File& backbone_;
  std::shared_ptr<const TensorSource> donor_;
  std::shared_ptr<ThreadPool> pool_;
  std::vector<TensorInfo> tensors_;
  std::unordered_map<std::string, size_t> by_name_;
};

class Prefixed final : public TensorSource {
 public:
  Prefixed(std::shared_ptr<const TensorSource> inner, std::string_view id)
      : inner_(std::move(inner)), prefix_(cmf::SkillTensorName(id, "")) {
    for (TensorInfo info : inner_->tensors()) {
      info.name = prefix_ + info.name;
      tensors_.push_back(std::move(info));
    }
  }
  [[nodiscard]] std::span<const TensorInfo> tensors() const override { return tensors_; }
  [[nodiscard]] const TensorInfo* Find(std::string_view name) const override {
    const auto it =
        std::find_if(tensors_.begin(), tensors_.end(), [&](const auto& t) { return t.name == name; });
    return it == tensors_.end() ? nullptr : &*it;
  }
  Result<TensorView> Read(std::string_view name) const override {
    return inner_->Read(name.starts_with(prefix_) ? name.substr(prefix_.size()) : name);
  }
  [[nodiscard]] std::string_view path() const override { return inner_->path(); }

 private:
  std::shared_ptr<const TensorSource> inner_;
  std::string prefix_;
  std::vector<TensorInfo> tensors_;
};

/// |encoded - backbone| / |backbone|; 0 when both hold the same values.
Result<double> ChangeOf(const TensorView& backbone, const TensorView& encoded) {
  if (backbone.dtype == encoded.dtype &&
      std::equal(backbone.bytes.begin(), backbone.bytes.end(), encoded.bytes.begin(), encoded.bytes.end())) {
    return 0.0;
  }
  CMF_TRY(const FloatRows a, AsFloatRows(backbone));
  CMF_TRY(const FloatRows b, AsFloatRows(encoded));
  double difference = 0, length = 0;
  std::vector<float> x(static_cast<size_t>(a.cols)), y(x.size());
  for (int64_t row = 0; row < a.rows; ++row) {
    a.Read(row, row + 1, x.data());
    b.Read(row, row + 1, y.data());
    for (size_t i = 0; i < x.size(); ++i) {
      const double d = static_cast<double>(y[i]) - static_cast<double>(x[i]);
      difference += d * d;
      length += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    }
  }
  return length > 0 ? std::sqrt(difference / length) : difference > 0 ? INFINITY : 0.0;
}

}  // namespace

Result<std::shared_ptr<const TensorSource>> OpenDonor(const fs::path& path, const RunControl& control) {
  std::error_code error;
  if (fs::is_directory(path, error) && !fs::exists(path / "config.json", error)) {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(path, error)) {
      if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
    }
    if (files.size() != 1) {
      return Fail(
          ErrorKind::kUsage,
          fmt::format("{}: {} .safetensors files and no config.json: name the file, or a checkpoint folder",
                      path.string(), files.size()));
    }
    CMF_TRY(auto file, SafetensorsSource::Open(files[0]));
    return std::shared_ptr<const TensorSource>(std::move(file));
  }
  CMF_TRY(const OpenedSource source, OpenSource(path));
  for (const std::string& warning : source.warnings) control.Warn(warning);
  if (!source.cmf) return source.tensors;
  struct Checked {  // the one reads from the other
    std::shared_ptr<const cmf::File> file;
    cmf::CheckedSource tensors;
  };
  CMF_TRY(cmf::CheckedSource tensors, cmf::CheckedSource::Of(*source.cmf));
  const auto checked = std::make_shared<const Checked>(Checked{source.cmf, std::move(tensors)});
  return std::shared_ptr<const TensorSource>(checked, &checked->tensors);
}

Result<Graft> PlanGraft(const cmf::File& backbone, const std::shared_ptr<const TensorSource>& donor,
                        const GraftOptions& options, const std::shared_ptr<ThreadPool>& pool,
                        const RunControl& control) {
  Graft graft;
  auto grafted = std::make_shared<GraftSource>(backbone, donor, pool);
  std::set<int64_t> layers;
  std::vector<std::string> unknown;
  const auto all = donor->tensors();
  for (size_t i = 0; i < all.size(); ++i) {
    const TensorInfo& tensor = all[i];
    CMF_CHECK(control.CheckCancelled());
    control.Report("comparing", static_cast<int64_t>(i), static_cast<int64_t>(all.size()));
    if (tensor.name.starts_with("skill.")) continue;
    const auto layer = LayerOf(tensor.name);
    if (options.layers && (!layer || *layer < options.layers->first || *layer > options.layers->second))
      continue;
    const TensorInfo* old = backbone.Find(tensor.name);
    if (old == nullptr) {
      if (layer) {
        return Fail(
            ErrorKind::kUsage,
            fmt::format("{}: tensor '{}': the backbone has none: a donor must be of the same backbone",
                        donor->path(), tensor.name));
      }
      unknown.push_back(tensor.name);
      continue;
    }
    if (old->shape != tensor.shape) {
      return Fail(
          ErrorKind::kUsage,
          fmt::format("{}: tensor '{}': shape {}, the backbone's is {}: a donor must be of the same backbone",
                      donor->path(), tensor.name, ShapeText(tensor.shape), ShapeText(old->shape)));
    }
    CMF_TRY(const TensorView before, backbone.Read(tensor.name));
    CMF_TRY(const TensorView donated, donor->Read(tensor.name));
    auto encoded = EncodeLike(before, donated, *pool);
    if (!encoded)
      return Fail(std::move(encoded).error().In(fmt::format("{}: tensor '{}'", donor->path(), tensor.name)));
    CMF_TRY(const double change, ChangeOf(before, *encoded));
    if (change <= options.min_delta) {
      ++graft.unchanged;
      continue;
    }
    grafted->Add({tensor.name, encoded->dtype, encoded->shape, encoded->bytes.size()});
    if (layer) layers.insert(*layer);
  }
  control.Report("comparing", static_cast<int64_t>(all.size()), static_cast<int64_t>(all.size()));
  if (grafted->tensors().empty()) {
    std::string fact =
        fmt::format("all {} tensors are the backbone's: there is nothing to add", graft.unchanged);
    if (graft.unchanged > 0 && options.min_delta > 0) {
      fact = fmt::format("all {} tensors are within {} of the backbone's: give a smaller --min-delta",
                         graft.unchanged, options.min_delta);
    } else if (graft.unchanged == 0 && options.layers) {
      fact = fmt::format("has no tensor of {} in layers {} to {}", backbone.path(), options.layers->first,
                         options.layers->second);
    } else if (graft.unchanged == 0) {
      fact = fmt::format("has no tensor of {}: a donor must be of the same backbone", backbone.path());
    }
    return Fail(ErrorKind::kUsage, fmt::format("{}: {}", donor->path(), fact));
  }
  if (!unknown.empty()) {
    control.Warn(fmt::format("{}: {} tensors are not in the backbone and were left out, '{}' first",
                             donor->path(), unknown.size(), unknown[0]));
  }
  graft.tensors = std::move(grafted);
  graft.layers.assign(layers.begin(), layers.end());
  return graft;
}

std::shared_ptr<const TensorSource> AsSkillTensors(std::shared_ptr<const TensorSource> tensors,
                                                   std::string_view id) {
  return std::make_shared<Prefixed>(std::move(tensors), id);
}

cmf::AppendEdits SkillEdits(const cmf::File& file, const TensorSource& tensors, cmf::SkillRecord record) {
  cmf::AppendEdits edits;
  edits.header = file.header();
  edits.tensors = &tensors;
  for (const TensorInfo& tensor : tensors.tensors()) edits.add.push_back(tensor.name);
  for (const std::string& name : ReplacedTensors(file, record.id, file.header().skills)) {
    const std::string old = cmf::SkillTensorName(record.id, name);
    if (tensors.Find(old) == nullptr) edits.remove.push_back(old);
  }
  auto& skills = edits.header->skills;
  const auto same =
      std::find_if(skills.begin(), skills.end(), [&](const auto& s) { return s.id == record.id; });
  if (same != skills.end()) {
    *same = std::move(record);
  } else {
    skills.push_back(std::move(record));
  }
  return edits;
}

Result<cmf::AppendEdits> SkillRemovalEdits(const cmf::File& file, std::string_view id) {
  cmf::AppendEdits edits;
  edits.header = file.header();
  auto& skills = edits.header->skills;
  for (const std::string& name : ReplacedTensors(file, id, skills))
    edits.remove.push_back(cmf::SkillTensorName(id, name));
  const auto dropped = std::erase_if(skills, [&](const auto& skill) { return skill.id == id; });
  if (dropped == 0 && edits.remove.empty()) {
    const auto ids = SkillIds(file, file.header().skills);
    return Fail(
        ErrorKind::kNotFound,
        fmt::format("{}: no skill '{}': {}", file.path(), id,
                    ids.empty() ? "the file has none" : fmt::format("it has {}", fmt::join(ids, ", "))));
  }
  return edits;
}

}  // namespace cmforge
