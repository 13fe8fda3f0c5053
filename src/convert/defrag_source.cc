// Gathering rows and columns; the overlay of .npy files.
#include "convert/defrag_source.h"

#include <algorithm>
#include <charconv>

#include "quant/encoding.h"

namespace cmforge {
namespace {

namespace fs = std::filesystem;

struct FfnName {
  int64_t layer;
  bool is_down;  // else gate or up
};

// The replaced tensor's name of a skill's, else the name itself.
std::string_view WithoutSkill(std::string_view name) {
  const size_t at = name.starts_with("skill.") ? name.find(".model.layers.") : name.npos;
  return at == name.npos ? name : name.substr(at + 1);
}

// "model.layers.3.mlp.up_proj.weight", also behind "skill.ID."; biases of gate and up have neurons too.
std::optional<FfnName> ParseFfnName(std::string_view name) {
  constexpr std::string_view kLayers = "model.layers.";
  name = WithoutSkill(name);
  if (!name.starts_with(kLayers)) return std::nullopt;
  name.remove_prefix(kLayers.size());
  int64_t layer = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  if (error != std::errc() || layer < 0) return std::nullopt;
  const std::string_view suffix(end, static_cast<size_t>(name.data() + name.size() - end));
  if (suffix == ".mlp.down_proj.weight") return FfnName{layer, true};
  for (const std::string_view cut :
       {".mlp.gate_proj.weight", ".mlp.up_proj.weight", ".mlp.gate_proj.bias", ".mlp.up_proj.bias"}) {
    if (suffix == cut) return FfnName{layer, false};
  }
  return std::nullopt;
}

class NpyOverlay final : public TensorSource {
 public:
  explicit NpyOverlay(const TensorSource& inner)
      : inner_(inner), tensors_(inner.tensors().begin(), inner.tensors().end()) {
    for (size_t i = 0; i < tensors_.size(); ++i) by_name_.emplace(tensors_[i].name, i);
  }

  Result<void> Add(const fs::path& path) {
    const std::string name = path.stem().string();
    const auto found = by_name_.find(name);
    if (found == by_name_.end() || !ParseFfnName(name)) {
      return Fail(ErrorKind::kCorrupt,
                  fmt::format("{}: no feed-forward tensor of that name in {}", path.string(), inner_.path()));
    }
    CMF_TRY(const NpyArray array, ReadNpy(path));
    TensorInfo& info = tensors_[found->second];
    if (array.type != NpyType::kF32 && array.type != NpyType::kF64 && array.type != NpyType::kF16) {
      return Fail(ErrorKind::kCorrupt,
                  fmt::format("{}: {}, weights are floats", path.string(), NpyTypeName(array.type)));
    }
    if (array.shape != info.shape) {
      return Fail(ErrorKind::kCorrupt, fmt::format("{}: shape {}, the model's tensor has {}", path.string(),
                                                   ShapeText(array.shape), ShapeText(info.shape)));
    }
    info.dtype = DType::kF32;
    info.nbytes = static_cast<uint64_t>(array.count()) * sizeof(float);
    paths_[found->second] = path;
    return {};
  }
  [[nodiscard]] bool empty() const { return paths_.empty(); }

  [[nodiscard]] std::span<const TensorInfo> tensors() const override { return tensors_; }
  [[nodiscard]] const TensorInfo* Find(std::string_view name) const override {
    const auto found = by_name_.find(std::string(name));
    return found == by_name_.end() ? nullptr : &tensors_[found->second];
  }
  Result<TensorView> Read(std::string_view name) const override {
    const auto found = by_name_.find(std::string(name));
    const auto path = found == by_name_.end() ? paths_.end() : paths_.find(found->second);
    if (path == paths_.end()) return inner_.Read(name);
    CMF_TRY(const NpyArray array, ReadNpy(path->second));
    if (array.shape != tensors_[found->second].shape)
      return Fail(ErrorKind::kIo, fmt::format("{}: changed while it was read", path->second.string()));
    auto values = std::make_shared<std::vector<float>>(array.ToFloats());
    return TensorView{DType::kF32, array.shape, std::as_bytes(std::span<const float>(*values)), values};
  }
  [[nodiscard]] std::span<const std::string> skipped() const override { return inner_.skipped(); }
  [[nodiscard]] std::string_view path() const override { return inner_.path(); }

 private:
  const TensorSource& inner_;
  std::vector<TensorInfo> tensors_;
  std::unordered_map<std::string, size_t> by_name_;
  std::unordered_map<size_t, fs::path> paths_;  // of the tensors that come from a file
};

}  // namespace

Result<DefragSource> DefragSource::Create(const TensorSource& inner, FfnKeep keep, DeadColumns dead) {
  DefragSource source;
  source.inner_ = &inner;
  source.keep_ = std::move(keep);
  source.dead_ = std::move(dead);
  std::vector<int64_t> widths(source.keep_.size());
  for (size_t layer = 0; layer < widths.size(); ++layer) {
    if (!source.keep_[layer]) continue;
    const TensorInfo* down = inner.Find(fmt::format("model.layers.{}.mlp.down_proj.weight", layer));
    if (down == nullptr || down->shape.size() != 2 || source.keep_[layer]->back() >= down->shape[1]) {
      return Fail(
          ErrorKind::kCorrupt,
          fmt::format("{}: layer {}: its down_proj does not have the neurons to keep", inner.path(), layer));
    }
    widths[layer] = down->shape[1];
  }
  for (const TensorInfo& info : inner.tensors()) {
    TensorInfo cut = info;
    const auto ffn = ParseFfnName(info.name);
    if (ffn && static_cast<size_t>(ffn->layer) < source.keep_.size() &&
        source.keep_[static_cast<size_t>(ffn->layer)]) {
      const auto layer = static_cast<size_t>(ffn->layer);
      const size_t axis = ffn->is_down ? 1 : 0;
      if (info.shape.size() <= axis || info.shape[axis] != widths[layer]) {
        return Fail(ErrorKind::kCorrupt,
                    fmt::format("{}: tensor '{}': shape {}, its layer has {} neurons", inner.path(),
                                info.name, ShapeText(info.shape), widths[layer]));
      }
      const auto kept = static_cast<int64_t>(source.keep_[layer]->size());
      if (kept < widths[layer]) {  // else nothing is cut, and the payload may stay as it is
        cut.shape[axis] = kept;
      }
    }
    if (cut.shape != info.shape || source.dead_.contains(WithoutSkill(info.name))) {
      cut.dtype = DType::kF32;
      cut.nbytes = static_cast<uint64_t>(ElementCount(cut.shape).value_or(0)) * sizeof(float);
    }
    source.by_name_.emplace(cut.name, source.tensors_.size());
    source.tensors_.push_back(std::move(cut));
  }
  return source;
}

Result<DefragSource> DefragSource::Zeroed(const TensorSource& inner, const cmf::TaskMask& mask,
                                          const ModelConfig& config) {
  CMF_TRY(const FfnKeep keep, KeepFromMask(mask, inner, config));
  DeadColumns dead = DeadColumnsOf(mask, inner, config);
  for (size_t layer = 0; layer < keep.size(); ++layer) {
    const std::string name = fmt::format("model.layers.{}.mlp.down_proj.weight", layer);
    const TensorInfo* down = inner.Find(name);
    if (!keep[layer] || down == nullptr || down->shape.size() != 2) continue;
    int64_t begin = 0;
    const auto drop_to = [&](int64_t end) {
      if (begin < end) dead[name].emplace_back(begin, end);
      begin = end + 1;
    };
    for (const int32_t neuron : *keep[layer]) drop_to(neuron);
    drop_to(down->shape[1]);
  }
  return Create(inner, FfnKeep(keep.size()), std::move(dead));
}

const TensorInfo* DefragSource::Find(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

bool DefragSource::IsCut(std::string_view name) const {
  const TensorInfo* here = Find(name);
  const TensorInfo* below = inner_->Find(name);
  return here != nullptr && below != nullptr &&
         (here->shape != below->shape || dead_.contains(WithoutSkill(name)));
}

Result<TensorView> DefragSource::Read(std::string_view name) const {
  if (!IsCut(name)) return inner_->Read(name);
  const TensorInfo& info = *Find(name);
  const auto ffn = ParseFfnName(name);
  const bool has_fewer = info.shape != inner_->Find(name)->shape;
  CMF_TRY(const TensorView view, inner_->Read(name));
  CMF_TRY(const FloatRows rows, AsFloatRows(view));
  auto values =
      std::make_shared<std::vector<float>>(static_cast<size_t>(ElementCount(info.shape).value_or(0)));
  float* out = values->data();
  const auto dead = dead_.find(WithoutSkill(name));
  std::vector<float> row(static_cast<size_t>(rows.cols));
  const auto read = [&](int64_t r) {
    rows.Read(r, r + 1, row.data());
    if (dead == dead_.end()) return;
    for (const auto& [begin, end] : dead->second)
      std::fill(row.begin() + begin, row.begin() + std::min(end, rows.cols), 0.0f);
  };
  if (has_fewer && !ffn->is_down) {
    for (const int32_t neuron : *keep_[static_cast<size_t>(ffn->layer)]) {
      read(neuron);
      out = std::copy(row.begin(), row.end(), out);
    }
  } else {
    for (int64_t r = 0; r < rows.rows; ++r) {
      read(r);
      if (!has_fewer) {
        out = std::copy(row.begin(), row.end(), out);
        continue;
      }
      for (const int32_t neuron : *keep_[static_cast<size_t>(ffn->layer)])
        *out++ = row[static_cast<size_t>(neuron)];
    }
  }
  return TensorView{DType::kF32, info.shape, std::as_bytes(std::span<const float>(*values)), values};
}

Result<FfnKeep> KeepFromFolder(const fs::path& folder, const TensorSource& tensors, const ModelConfig& config,
                               ThreadPool& pool, const RunControl& run) {
  const fs::path path = folder / "ffn_keep.npy";
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return KeepFromZeroColumns(tensors, config, pool, run);
  CMF_TRY(const NpyArray array, ReadNpy(path));
  auto keep = KeepFromArray(array, tensors, config);
  if (!keep) return Fail(std::move(keep).error().In(path.string()));
  return std::move(*keep);
}

Result<std::unique_ptr<TensorSource>> OverlayNpyFolder(const TensorSource& inner, const fs::path& folder) {
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  if (error) {
    const ErrorKind kind =
        error == std::errc::no_such_file_or_directory ? ErrorKind::kNotFound : ErrorKind::kIo;
    return Fail(kind, fmt::format("{}: cannot read the folder: {}", folder.string(), error.message()));
  }
  auto overlay = std::make_unique<NpyOverlay>(inner);
  bool is_empty = true;
  for (const fs::directory_entry& entry : entries) {
    if (entry.path().extension() != ".npy") continue;
    CMF_CHECK(overlay->Add(entry.path()));
    is_empty = false;
  }
  std::error_code ignored;
  if (is_empty && !fs::exists(folder.parent_path() / "ffn_keep.npy", ignored)) {
    return Fail(ErrorKind::kNotFound,
                fmt::format("{}: no .npy file, and no ffn_keep.npy beside it: bake the weights first",
                            folder.string()));
  }
  return std::unique_ptr<TensorSource>(std::move(overlay));
}

}  // namespace cmforge
