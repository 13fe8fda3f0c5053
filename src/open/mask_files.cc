// Keep-sets into masks.
#include "open/mask_files.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/mapped_file.h"
#include "base/npy.h"
#include "model/tensor_source.h"

namespace cmforge {
namespace {

namespace fs = std::filesystem;
using Rows = std::vector<std::vector<uint8_t>>;

/// [rows, bits], `rows` being one of `allowed`.
Result<Rows> ReadBits(const fs::path& path, std::initializer_list<int64_t> allowed, int64_t bits,
                      std::string_view what) {
  CMF_TRY(const NpyArray array, ReadNpy(path));
  const bool fits = array.shape.size() == 2 && array.shape[1] == bits &&
                    std::find(allowed.begin(), allowed.end(), array.shape[0]) != allowed.end();
  if (!fits) {
    return Fail(ErrorKind::kUsage, fmt::format("{}: shape {}, {} of this model need [{}, {}]", path.string(),
                                               ShapeText(array.shape), what, *allowed.begin(), bits));
  }
  const std::vector<float> values = array.ToFloats();
  if (std::any_of(values.begin(), values.end(), [](float v) { return std::isnan(v); }))
    return Fail(ErrorKind::kCorrupt, fmt::format("{}: has NaN: an element is 0 or it is not", path.string()));
  Rows rows(static_cast<size_t>(array.shape[0]));
  for (size_t r = 0; r < rows.size(); ++r) {
    rows[r].resize(static_cast<size_t>((bits + 7) / 8));
    for (size_t i = 0; i < static_cast<size_t>(bits); ++i) {
      if (values[r * static_cast<size_t>(bits) + i] != 0)
        rows[r][i / 8] |= static_cast<uint8_t>(1u << (i % 8));
    }
  }
  if (std::none_of(values.begin(), values.end(), [](float v) { return v != 0; })) {
    return Fail(
        ErrorKind::kUsage,
        fmt::format("{}: none of the {} is kept: an element that is not 0 stays on", path.string(), what));
  }
  return rows;
}

double ShareOff(const Rows& rows, const std::vector<uint8_t>& gates, int64_t layers, int64_t bits) {
  int64_t on = 0, all = 0;
  for (size_t r = 0; r < rows.size(); ++r) {
    if (!gates.empty() && !cmf::TestBit(gates, static_cast<int64_t>(r) % layers)) continue;
    on += cmf::CountBits(rows[r]);
    all += bits;
  }
  return all > 0 ? 1 - static_cast<double>(on) / static_cast<double>(all) : 0;
}

}  // namespace

Result<cmf::TaskMask> ReadMaskFiles(std::string name, const MaskFiles& files,
                                    const cmf::MaskGeometry& geometry) {
  if (files.keep.empty() && files.heads.empty() && files.gates.empty()) {
    return Fail(
        ErrorKind::kUsage,
        fmt::format("mask '{}': nothing is restricted: give a keep-set of neurons, heads or layers", name));
  }
  cmf::TaskMask mask;
  mask.name = std::move(name);
  mask.bits.ffn_width = geometry.ffn_width;
  mask.bits.head_count = geometry.heads;
  if (!files.keep.empty()) {
    CMF_TRY(mask.bits.ffn, ReadBits(files.keep, {geometry.layers, geometry.layers * geometry.loops},
                                    geometry.ffn_width, "neurons"));
  }
  if (!files.heads.empty()) {
    CMF_TRY(mask.bits.heads, ReadBits(files.heads, {geometry.layers}, geometry.heads, "heads"));
  }
  if (!files.gates.empty()) {
    CMF_TRY(NpyArray array, ReadNpy(files.gates));
    const std::vector<float> values = array.ToFloats();
    if (static_cast<int64_t>(values.size()) != geometry.layers) {
      return Fail(ErrorKind::kUsage,
                  fmt::format("{}: shape {}, layers of this model need [{}]", files.gates.string(),
                              ShapeText(array.shape), geometry.layers));
    }
    mask.bits.layer_gates.resize(static_cast<size_t>((geometry.layers + 7) / 8));
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] != 0) mask.bits.layer_gates[i / 8] |= static_cast<uint8_t>(1u << (i % 8));
    }
    if (cmf::CountBits(mask.bits.layer_gates) == 0)
      return Fail(ErrorKind::kUsage, fmt::format("{}: no layer is kept", files.gates.string()));
  }
  const auto& gates = mask.bits.layer_gates;
  mask.sparsity = !files.keep.empty()    ? ShareOff(mask.bits.ffn, gates, geometry.layers, geometry.ffn_width)
                  : !files.heads.empty() ? ShareOff(mask.bits.heads, gates, geometry.layers, geometry.heads)
                                         : 0;
  return mask;
}

Result<cmf::MaskCatalog> ReadMaskFolder(const fs::path& folder, const cmf::MaskGeometry& geometry) {
  std::error_code error;
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const fs::path& path = entry.path();
    if (path.extension() != ".npy") continue;
    const std::string stem = path.stem().string();
    const std::string part = fs::path(stem).extension().string();
    names.insert(part == ".heads" || part == ".gates" ? fs::path(stem).stem().string() : stem);
  }
  if (error)
    return Fail(ErrorKind::kNotFound,
                fmt::format("{}: cannot list it: {}", folder.string(), error.message()));
  if (names.empty()) {
    return Fail(ErrorKind::kNotFound,
                fmt::format("{}: no masks: put keep-sets of shape [{}, {}] there, one NAME.npy a task",
                            folder.string(), geometry.layers, geometry.ffn_width));
  }
  cmf::MaskCatalog catalog;
  for (const std::string& name : names) {
    const auto present = [&](const char* suffix) {
      const fs::path path = folder / (name + suffix);
      return fs::exists(path, error) ? path : fs::path();
    };
    CMF_TRY(cmf::TaskMask mask,
            ReadMaskFiles(name, {present(".npy"), present(".heads.npy"), present(".gates.npy")}, geometry));
    if (const fs::path path = present(".quality.json"); !path.empty()) {
      CMF_TRY(const std::string text, ReadTextFile(path));
      CMF_TRY(mask.quality, ParseJson(text, path.string()));
      if (auto status = cmf::CheckQuality(mask.quality); !status)
        return Fail(std::move(status).error().In(path.string()));
    }
    mask.priority = catalog.empty() ? cmf::MaskPriority::kFallback : cmf::MaskPriority::kNormal;
    CMF_CHECK(AddToCatalog(catalog, std::move(mask)));
  }
  catalog.default_task = names.contains("general") ? "general" : *names.begin();
  return catalog;
}

Result<void> AddToCatalog(cmf::MaskCatalog& catalog, cmf::TaskMask mask) {
  mask.task_id = 0;
  for (const cmf::TaskMask& other : catalog.masks) {
    if (other.name == mask.name)
      return Fail(ErrorKind::kUsage,
                  fmt::format("mask '{}': there is one of that name: remove it first", mask.name));
    mask.task_id = std::max(mask.task_id, other.task_id + 1);
  }
  catalog.masks.push_back(std::move(mask));
  return {};
}

}  // namespace cmforge
