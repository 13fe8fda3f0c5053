// Task masks (spec 5): bit fields that say which neurons, heads, layers and experts take part in a task.
//
//   [n_masks u32][meta_len u32][JSON meta][blobs, each at a multiple of 8 from the section start]
//   blob: [rows x ffn bytes][layers x head bytes][gate bytes][layers x expert bytes, if has_expert_fields]
//
// Bits are LSB first, set = active; bits beyond a dimension are 0. In a looped model (LOOP_MASKS) the FFN
// rows are per visit: all layers of pass 0, then pass 1. Heads, gates and experts are always per physical
// layer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/json.h"
#include "base/result.h"
#include "model/language_model.h"
#include "model/model_config.h"

namespace cmforge::cmf {

/// The sizes a mask blob is derived from.
struct MaskGeometry {
  int64_t layers = 0, loops = 1, ffn_width = 0, heads = 0, experts = 0;

  [[nodiscard]] static MaskGeometry Of(const ModelConfig& config);
  bool operator==(const MaskGeometry&) const = default;
};

enum class MaskPriority : uint8_t { kFallback, kNormal, kPrimary };

struct TaskMask {
  uint32_t task_id = 0;
  std::string name;
  std::optional<std::string> description, parent;
  double sparsity = 0;
  Json quality;  // null = not measured
  MaskPriority priority = MaskPriority::kNormal;
  bool has_hot_pack = false;
  Json extra = Json::object();  // meta keys we do not know, kept

  // ffn has `layers` rows, or `layers * loops` in a looped model: the row of visit v is v % ffn.size().
  // An empty member is not restricted at all (written as ones; experts: the area is left out).
  ActiveSet bits;

  [[nodiscard]] bool has_expert_fields() const { return !bits.experts.empty(); }
  /// True when `quality` is a complete held-out measurement; switching to another mask deserves a warning.
  [[nodiscard]] bool is_measured() const;
};

struct MaskCatalog {
  std::string default_task;
  std::vector<TaskMask> masks;  // in file order
  Json extra = Json::object();  // top-level meta keys we do not know, kept

  [[nodiscard]] bool empty() const { return masks.empty(); }
  [[nodiscard]] const TaskMask* Find(std::string_view name) const;
  /// What a runtime starts with: default_task, else the first Fallback; null (the whole model) without either.
  [[nodiscard]] const TaskMask* Initial() const;
};

/// Fails: kCorrupt "Parse" (counts, meta JSON, a blob that leaves the section or has a length the
/// architecture does not give, set tail bits, a name twice). Messages begin with "masks: " and name the mask.
Result<MaskCatalog> ReadMasks(Bytes section, const MaskGeometry& geometry);

/// The section; a looped model gets one FFN row a visit. `quality` is written as it is, since files of others are
/// rewritten too: whoever adds a mask calls CheckQuality. Fails: kUsage (rows of the wrong size, set tail bits, a name
/// that is empty or occurs twice, experts in a model without them).
Result<std::vector<std::byte>> PackMasks(const MaskCatalog& catalog, const MaskGeometry& geometry);

/// The held-out contract: null, or an object with metric, value, baseline_dense, n_samples > 0 and
/// dataset_sha256. Fails: kUsage naming what is missing: a figure without its evidence is not written.
Result<void> CheckQuality(const Json& quality);

/// Bit `index` of an LSB-first row, and the number of set bits.
[[nodiscard]] inline bool TestBit(std::span<const uint8_t> row, int64_t index) {
  return (row[static_cast<size_t>(index / 8)] >> (index % 8)) & 1;
}
[[nodiscard]] int64_t CountBits(std::span<const uint8_t> row);
/// `bits` ones, tail bits 0.
[[nodiscard]] std::vector<uint8_t> FullRow(int64_t bits);

}  // namespace cmforge::cmf
