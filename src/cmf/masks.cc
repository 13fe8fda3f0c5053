// The masks section <-> MaskCatalog.
#include "cmf/masks.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_set>

#include "cmf/header.h"
#include "cmf/json_fields.h"

namespace cmforge::cmf {
namespace {

constexpr uint64_t kCounts = 8;  // [n_masks u32][meta_len u32]
constexpr uint64_t kBlobAlignment = 8;

struct PriorityWord {
  MaskPriority priority;
  std::string_view word;
};
constexpr PriorityWord kPriorityWords[] = {{MaskPriority::kFallback, "Fallback"},
                                           {MaskPriority::kNormal, "Normal"},
                                           {MaskPriority::kPrimary, "Primary"}};

constexpr int64_t RowBytes(int64_t bits) { return (bits + 7) / 8; }

using Rows = std::vector<std::vector<uint8_t>>;

// One bit field area of a blob: `rows` rows of `bits` bits.
struct Area {
  int64_t rows = 0, bits = 0;
  [[nodiscard]] uint64_t bytes() const { return static_cast<uint64_t>(rows * RowBytes(bits)); }
};

bool TailIsClear(std::span<const uint8_t> row, int64_t bits) {
  return bits % 8 == 0 || (row.back() >> (bits % 8)) == 0;
}

// Takes an area off the front of `blob`. Rows of no bits are not kept: a hostile header can claim millions of
// them.
Result<Rows> ReadArea(Bytes& blob, const Area& area, std::string_view mask, std::string_view what) {
  if (area.bits == 0) return Rows{};
  Rows rows(static_cast<size_t>(area.rows));
  for (size_t layer = 0; layer < rows.size(); ++layer) {
    const auto* at = reinterpret_cast<const uint8_t*>(blob.data());
    rows[layer].assign(at, at + RowBytes(area.bits));
    blob = blob.subspan(rows[layer].size());
    if (!TailIsClear(rows[layer], area.bits)) {
      return Fail(
          ErrorKind::kCorrupt,
          fmt::format("masks: mask '{}': {} row {} has bits beyond {} set", mask, what, layer, area.bits),
          "Parse");
    }
  }
  return rows;
}

Result<TaskMask> ReadMask(const Json& meta, Bytes section, const MaskGeometry& geometry, uint64_t& budget) {
  TaskMask mask;
  JsonFields fields(meta, "masks: meta");
  fields.Require({"task_id", "name", "blob_off", "blob_len"});
  int64_t task_id = 0, offset = 0, length = 0;
  std::string priority = "Normal";
  bool has_experts = false;
  fields.Read("name", mask.name);
  fields.Read("task_id", task_id);
  fields.Read("description", mask.description);
  fields.Read("parent", mask.parent);
  fields.Read("sparsity", mask.sparsity);
  if (const Json* quality = fields.Find("quality")) mask.quality = *quality;
  fields.Read("priority", priority);
  fields.Read("has_hot_pack", mask.has_hot_pack);
  fields.Read("has_expert_fields", has_experts);
  fields.Read("blob_off", offset, 0, INT64_MAX);
  fields.Read("blob_len", length, 0, INT64_MAX);
  const auto* word = std::find_if(std::begin(kPriorityWords), std::end(kPriorityWords),
                                  [&](const PriorityWord& w) { return w.word == priority; });
  if (word == std::end(kPriorityWords)) fields.Error("priority", fmt::format("'{}' is not known", priority));
  CMF_CHECK(fields.status());
  mask.task_id = static_cast<uint32_t>(task_id);
  if (word != std::end(kPriorityWords)) mask.priority = word->priority;
  mask.extra = fields.Rest();

  const auto parse_error = [&](std::string fact) {
    return Fail(ErrorKind::kCorrupt, fmt::format("masks: mask '{}': {}", mask.name, fact), "Parse");
  };
  const auto range = ByteRange::Checked(static_cast<uint64_t>(offset), static_cast<uint64_t>(length),
                                        section.size(), "blob");
  if (!range) return parse_error(range.error().message);
  if (range->size > budget) return parse_error("its blob overlaps those of other masks");
  budget -= range->size;

  const Area physical_ffn{geometry.layers, geometry.ffn_width};
  const Area visit_ffn{geometry.layers * geometry.loops, geometry.ffn_width};
  const Area heads{geometry.layers, geometry.heads};
  const Area gates{1, geometry.layers};
  const Area experts{geometry.layers, geometry.experts};
  if (has_experts && geometry.experts == 0)
    return parse_error("has expert fields, but the model has no experts");
  const uint64_t rest = heads.bytes() + gates.bytes() + (has_experts ? experts.bytes() : 0);
  const bool per_visit = range->size == visit_ffn.bytes() + rest;
  if (!per_visit && range->size != physical_ffn.bytes() + rest) {
    return parse_error(
        fmt::format("its blob has {} bytes, {} layers, {} neurons, {} heads and {} experts need {}",
                    range->size, geometry.layers, geometry.ffn_width, geometry.heads,
                    has_experts ? geometry.experts : 0, visit_ffn.bytes() + rest));
  }
  Bytes blob = range->Of(section);
  mask.bits.ffn_width = geometry.ffn_width;
  mask.bits.head_count = geometry.heads;
  mask.bits.expert_count = has_experts ? geometry.experts : 0;
  CMF_TRY(mask.bits.ffn, ReadArea(blob, per_visit ? visit_ffn : physical_ffn, mask.name, "neuron"));
  CMF_TRY(mask.bits.heads, ReadArea(blob, heads, mask.name, "head"));
  CMF_TRY(Rows gate_row, ReadArea(blob, gates, mask.name, "layer gate"));
  if (!gate_row.empty()) mask.bits.layer_gates = std::move(gate_row[0]);
  if (has_experts) {
    CMF_TRY(mask.bits.experts, ReadArea(blob, experts, mask.name, "expert"));
  }
  return mask;
}

// Appends `area.rows` rows to the blob: those of `rows` over and over (a looped model), ones where there are
// none.
Result<void> PackArea(std::vector<std::byte>& blob, const Rows& rows, const Area& area, std::string_view mask,
                      std::string_view what) {
  if (!rows.empty() && area.rows % static_cast<int64_t>(rows.size()) != 0) {
    return Fail(ErrorKind::kUsage,
                fmt::format("mask '{}': {} {} rows, the model has {}", mask, rows.size(), what, area.rows));
  }
  const std::vector<uint8_t> full = FullRow(area.bits);
  for (size_t i = 0; i < static_cast<size_t>(area.rows); ++i) {
    const std::vector<uint8_t>& row = rows.empty() ? full : rows[i % rows.size()];
    if (row.size() != full.size()) {
      return Fail(ErrorKind::kUsage, fmt::format("mask '{}': {} row {} has {} bytes, {} bits need {}", mask,
                                                 what, i, row.size(), area.bits, full.size()));
    }
    if (!TailIsClear(row, area.bits)) {
      return Fail(ErrorKind::kUsage,
                  fmt::format("mask '{}': {} row {} has bits beyond {} set", mask, what, i, area.bits));
    }
    const Bytes bytes = std::as_bytes(std::span(row));
    blob.insert(blob.end(), bytes.begin(), bytes.end());
  }
  return {};
}

Result<std::vector<std::byte>> PackBlob(const TaskMask& mask, const MaskGeometry& geometry) {
  std::vector<std::byte> blob;
  const Rows gate_row = mask.bits.layer_gates.empty() ? Rows{} : Rows{mask.bits.layer_gates};
  CMF_CHECK(PackArea(blob, mask.bits.ffn, {geometry.layers * geometry.loops, geometry.ffn_width}, mask.name,
                     "neuron"));
  CMF_CHECK(PackArea(blob, mask.bits.heads, {geometry.layers, geometry.heads}, mask.name, "head"));
  CMF_CHECK(PackArea(blob, gate_row, {1, geometry.layers}, mask.name, "layer gate"));
  if (mask.has_expert_fields()) {
    if (geometry.experts == 0) {
      return Fail(ErrorKind::kUsage,
                  fmt::format("mask '{}': has expert rows, but the model has no experts", mask.name));
    }
    CMF_CHECK(PackArea(blob, mask.bits.experts, {geometry.layers, geometry.experts}, mask.name, "expert"));
  }
  return blob;
}

Json MaskMeta(const TaskMask& mask, uint64_t blob_off, uint64_t blob_len) {
  Json meta = Json::object();
  meta["task_id"] = mask.task_id;
  meta["name"] = mask.name;
  meta["description"] = mask.description ? Json(*mask.description) : Json();
  meta["sparsity"] = mask.sparsity;
  meta["quality"] = mask.quality;
  meta["parent"] = mask.parent ? Json(*mask.parent) : Json();
  for (const PriorityWord& word : kPriorityWords) {
    if (word.priority == mask.priority) meta["priority"] = word.word;
  }
  meta["has_hot_pack"] = mask.has_hot_pack;
  if (mask.has_expert_fields()) meta["has_expert_fields"] = true;
  meta["blob_off"] = blob_off;
  meta["blob_len"] = blob_len;
  meta.update(mask.extra);
  return meta;
}

}  // namespace

MaskGeometry MaskGeometry::Of(const ModelConfig& config) {
  return {config.num_layers, config.num_loops, config.intermediate_size, config.num_attention_heads,
          config.moe ? config.moe->num_experts : 0};
}

int64_t CountBits(std::span<const uint8_t> row) {
  int64_t count = 0;
  for (const uint8_t byte : row) count += std::popcount(byte);
  return count;
}

std::vector<uint8_t> FullRow(int64_t bits) {
  std::vector<uint8_t> row(static_cast<size_t>(RowBytes(bits)), 0xFF);
  if (bits % 8 != 0) row.back() = static_cast<uint8_t>((1u << (bits % 8)) - 1);
  return row;
}

Result<void> CheckQuality(const Json& quality) {
  if (quality.is_null()) return {};
  const auto lacks = [](std::string_view what) {
    return Fail(ErrorKind::kUsage,
                fmt::format("quality: {}: a figure needs metric, value, baseline_dense, n_samples and "
                            "dataset_sha256 of held-out data, or null for not measured",
                            what));
  };
  if (!quality.is_object()) return lacks("not an object");
  const auto has = [&](const char* key, auto is_right) {
    return quality.contains(key) && is_right(quality[key]);
  };
  if (!has("metric", [](const Json& v) { return v.is_string() && !v.get_ref<const std::string&>().empty(); }))
    return lacks("no metric");
  if (!has("value", [](const Json& v) { return v.is_number(); })) return lacks("no value");
  if (!has("baseline_dense", [](const Json& v) { return v.is_number(); })) return lacks("no baseline_dense");
  if (!has("n_samples", [](const Json& v) { return v.is_number_integer() && v.get<int64_t>() > 0; }))
    return lacks("no n_samples");
  const auto is_sha256 = [](const Json& v) {
    return v.is_string() && v.get_ref<const std::string&>().size() == 64 &&
           v.get_ref<const std::string&>().find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
  };
  if (!has("dataset_sha256", is_sha256)) return lacks("no dataset_sha256 of 64 hex digits");
  return {};
}

bool TaskMask::is_measured() const { return !quality.is_null() && CheckQuality(quality).has_value(); }

const TaskMask* MaskCatalog::Find(std::string_view name) const {
  const auto it =
      std::find_if(masks.begin(), masks.end(), [&](const TaskMask& mask) { return mask.name == name; });
  return it == masks.end() ? nullptr : &*it;
}

const TaskMask* MaskCatalog::Initial() const {
  if (const TaskMask* mask = Find(default_task)) return mask;
  const auto it = std::find_if(masks.begin(), masks.end(),
                               [](const TaskMask& m) { return m.priority == MaskPriority::kFallback; });
  return it == masks.end() ? nullptr : &*it;
}

Result<MaskCatalog> ReadMasks(Bytes section, const MaskGeometry& geometry) {
  const auto parse_error = [](std::string fact) {
    return Fail(ErrorKind::kCorrupt, fmt::format("masks: {}", fact), "Parse");
  };
  if (section.size() < kCounts)
    return parse_error(fmt::format("{} bytes, the counts alone need {}", section.size(), kCounts));
  const auto n_masks = LoadLe<uint32_t>(section.data());
  const auto meta_len = LoadLe<uint32_t>(section.data() + 4);
  if (meta_len > section.size() - kCounts) {
    return parse_error(
        fmt::format("the meta JSON of {} bytes leaves the section of {}", meta_len, section.size()));
  }
  if (meta_len > kMaxHeaderBytes) {
    return Fail(
        ErrorKind::kLimit,
        fmt::format("masks: the meta JSON has {} bytes, at most {} are read", meta_len, kMaxHeaderBytes),
        "Parse");
  }
  const std::string_view text = AsText(section.subspan(kCounts, meta_len));
  if (!IsUtf8(text)) return parse_error("the meta JSON is not UTF-8");
  CMF_TRY(const Json meta, ParseJson(text, "masks: meta"));
  MaskCatalog catalog;
  JsonFields fields(meta, "masks: meta");
  fields.Read("default_task", catalog.default_task);
  const Json* list = fields.Find("masks");
  if (list == nullptr || !list->is_array()) fields.Error("masks", "must be a list");
  CMF_CHECK(fields.status());
  if (list->size() != n_masks)
    return parse_error(
        fmt::format("the section counts {} masks, the meta JSON has {}", n_masks, list->size()));
  catalog.extra = fields.Rest();
  std::unordered_set<std::string> names;
  uint64_t budget = section.size();  // blobs do not overlap, so together they fit
  for (const Json& item : *list) {
    CMF_TRY(TaskMask mask, ReadMask(item, section, geometry, budget));
    if (!names.insert(mask.name).second) return parse_error(fmt::format("mask '{}' occurs twice", mask.name));
    catalog.masks.push_back(std::move(mask));
  }
  return catalog;
}

Result<std::vector<std::byte>> PackMasks(const MaskCatalog& catalog, const MaskGeometry& geometry) {
  std::vector<std::vector<std::byte>> blobs;
  std::unordered_set<std::string> names;
  for (const TaskMask& mask : catalog.masks) {
    if (mask.name.empty() || !names.insert(mask.name).second) {
      return Fail(ErrorKind::kUsage, fmt::format("mask '{}': the name is empty or taken", mask.name));
    }
    CMF_TRY(std::vector<std::byte> blob, PackBlob(mask, geometry));
    blobs.push_back(std::move(blob));
  }
  // Offsets in the meta JSON depend on its own length: let the length grow until the text fits, and fill with
  // blanks.
  std::string text;
  for (uint64_t meta_len = 0;;) {
    uint64_t at = AlignUp(kCounts + meta_len, kBlobAlignment);
    Json list = Json::array();
    for (size_t i = 0; i < blobs.size(); ++i) {
      list.push_back(MaskMeta(catalog.masks[i], at, blobs[i].size()));
      at = AlignUp(at + blobs[i].size(), kBlobAlignment);
    }
    Json meta = {{"default_task", catalog.default_task}, {"masks", std::move(list)}};
    meta.update(catalog.extra);
    text = DumpJson(meta);
    if (text.size() > kMaxHeaderBytes) {
      return Fail(ErrorKind::kLimit, fmt::format("masks: the meta JSON has {} bytes, at most {} are written",
                                                 text.size(), kMaxHeaderBytes));
    }
    if (text.size() <= meta_len) {
      text.resize(meta_len, ' ');
      break;
    }
    meta_len = text.size();
  }
  std::vector<std::byte> section(kCounts);
  StoreLe<uint32_t>(section.data(), static_cast<uint32_t>(blobs.size()));
  StoreLe<uint32_t>(section.data() + 4, static_cast<uint32_t>(text.size()));
  const Bytes meta_bytes = AsBytes(text);
  section.insert(section.end(), meta_bytes.begin(), meta_bytes.end());
  for (const std::vector<std::byte>& blob : blobs) {
    section.resize(AlignUp(section.size(), kBlobAlignment));
    section.insert(section.end(), blob.begin(), blob.end());
  }
  return section;
}

}  // namespace cmforge::cmf
