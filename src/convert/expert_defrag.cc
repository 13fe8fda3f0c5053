// A view of the file with experts renumbered, written out by the container's rewriter.
#include "convert/expert_defrag.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <unordered_map>

#include "cmf/checked_source.h"
#include "cmf/hash64.h"
#include "cmf/rewrite.h"
#include "quant/encoding.h"

namespace cmforge {
namespace {

/// Where a tensor stands in a layer's mixture.
struct MixturePart {
  int64_t layer = -1;
  int64_t expert = -1;      // -1: not of one expert
  std::string_view prefix;  // up to and with "mlp."; begins with "skill.ID." for a replacement
  std::string_view suffix;  // behind "mlp.", or behind the expert's number: "gate_proj.weight"

  /// Its first dimension counts the layer's experts.
  [[nodiscard]] bool is_per_expert() const {
    return expert < 0 && (suffix == "gate.weight" || suffix == "gate.bias" || suffix == "expert_bias" ||
                          suffix == "gate.e_score_correction_bias" ||
                          suffix == "experts.e_score_correction_bias" || suffix == "per_expert_scale");
  }
};

// Takes a number and the dot behind it off the front.
bool TakeNumber(std::string_view& text, int64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0 || end == text.data() + text.size() || *end != '.') return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()) + 1);
  return true;
}

MixturePart PartOf(std::string_view name, std::span<const cmf::SkillRecord> skills) {
  MixturePart part;
  std::string_view rest = name;
  if (const auto skill = cmf::SplitSkillTensorName(name, skills)) rest = skill->replaced;
  constexpr std::string_view kLayers = "model.layers.", kMlp = "mlp.", kExperts = "experts.";
  int64_t layer = 0;
  if (!rest.starts_with(kLayers)) return part;
  rest.remove_prefix(kLayers.size());
  if (!TakeNumber(rest, layer) || !rest.starts_with(kMlp)) return part;
  rest.remove_prefix(kMlp.size());
  part.layer = layer;
  part.prefix = name.substr(0, name.size() - rest.size());
  part.suffix = rest;
  if (rest.starts_with(kExperts)) {
    std::string_view behind = rest.substr(kExperts.size());
    if (int64_t expert = 0; TakeNumber(behind, expert)) {
      part.expert = expert;
      part.suffix = behind;
    }
  }
  return part;
}

int RoleRank(std::string_view suffix) {
  return suffix.starts_with("gate_proj")   ? 0
         : suffix.starts_with("up_proj")   ? 1
         : suffix.starts_with("down_proj") ? 2
                                           : 3;
}

/// The file as it is after the selection. Expert tensors have new names, routers fewer rows.
class DefraggedExperts final : public TensorSource {
 public:
  DefraggedExperts(const cmf::File& file, const cmf::ExpertSelection& selection) : file_(file) {
    // Experts of a layer stand together role by role, at the place of the first of them.
    struct Bank {
      std::vector<TensorInfo> tensors;
      std::vector<std::pair<int, int64_t>> order;  // (role, expert)
    };
    std::unordered_map<std::string_view, Bank> banks;
    std::vector<std::string_view> slots;  // per entry of `order`: a bank's prefix, or empty for `plain`
    std::vector<TensorInfo> plain;
    for (const TensorInfo& info : file.tensors()) {
      const MixturePart part = PartOf(info.name, file.header().skills);
      const auto kept = part.layer < 0 ? selection.kept.end() : selection.kept.find(part.layer);
      TensorInfo entry = info;
      if (part.expert >= 0) {
        int64_t number = part.expert;
        if (kept != selection.kept.end()) {
          const auto at = std::lower_bound(kept->second.begin(), kept->second.end(), part.expert);
          if (at == kept->second.end() || *at != part.expert) continue;
          number = at - kept->second.begin();
        }
        entry.name = fmt::format("{}experts.{}.{}", part.prefix, number, part.suffix);
        from_[entry.name] = {&info, nullptr};
        Bank& bank = banks[part.prefix];
        if (bank.tensors.empty()) slots.push_back(part.prefix);
        bank.order.emplace_back(RoleRank(part.suffix), number);
        bank.tensors.push_back(std::move(entry));
        continue;
      }
      const bool is_gathered = kept != selection.kept.end() && part.is_per_expert();
      from_[entry.name] = {&info, is_gathered ? &kept->second : nullptr};
      if (is_gathered && !entry.shape.empty()) {
        entry.shape[0] = static_cast<int64_t>(kept->second.size());
        entry.nbytes = 0;  // known once it was gathered; only progress counts it
      }
      slots.emplace_back();
      plain.push_back(std::move(entry));
    }
    size_t next = 0;
    for (const std::string_view prefix : slots) {
      if (prefix.empty()) {
        tensors_.push_back(std::move(plain[next++]));
        continue;
      }
      Bank& bank = banks[prefix];
      std::vector<size_t> order(bank.tensors.size());
      for (size_t i = 0; i < order.size(); ++i) order[i] = i;
      std::stable_sort(order.begin(), order.end(),
                       [&](size_t a, size_t b) { return bank.order[a] < bank.order[b]; });
      for (const size_t i : order) tensors_.push_back(std::move(bank.tensors[i]));
    }
    for (const TensorInfo& info : tensors_) index_[info.name] = &info;
  }

  [[nodiscard]] std::span<const TensorInfo> tensors() const override { return tensors_; }
  [[nodiscard]] const TensorInfo* Find(std::string_view name) const override {
    const auto at = index_.find(name);
    return at == index_.end() ? nullptr : at->second;
  }
  [[nodiscard]] std::string_view path() const override { return file_.path(); }

  Result<TensorView> Read(std::string_view name) const override {
    const auto from = from_.find(std::string(name));
    if (from == from_.end()) {
      return Fail(ErrorKind::kNotFound, fmt::format("{}: tensor '{}': not there", path(), name));
    }
    CMF_TRY(TensorView view, file_.Read(from->second.info->name));
    CMF_CHECK(cmf::CheckPayload(file_, *from->second.info, view.bytes));  // under its new name nobody would
    if (from->second.rows == nullptr) return view;
    return Gather(view, from->second.info->name, *from->second.rows);
  }

 private:
  struct From {
    const TensorInfo* info = nullptr;
    const std::vector<int64_t>* rows = nullptr;  // gathered; null: the payload as it is
  };

  // Floats keep their type; rows of other encodings become f32, which holds them exactly.
  Result<TensorView> Gather(const TensorView& view, std::string_view name,
                            const std::vector<int64_t>& rows) const {
    if (view.shape.empty() || view.shape[0] <= rows.back()) {
      return Fail(ErrorKind::kCorrupt, fmt::format("{}: tensor '{}': shape {} has no row for expert {}",
                                                   path(), name, ShapeText(view.shape), rows.back()));
    }
    TensorView out = view;
    out.shape[0] = static_cast<int64_t>(rows.size());
    auto bytes = std::make_shared<std::vector<std::byte>>();
    const int64_t columns = *ElementCount(view.shape) / view.shape[0];
    if (const int element = ElementBytes(view.dtype); element > 0) {
      const auto row_bytes = static_cast<size_t>(columns * element);
      for (const int64_t row : rows) {
        const Bytes from = view.bytes.subspan(static_cast<size_t>(row) * row_bytes, row_bytes);
        bytes->insert(bytes->end(), from.begin(), from.end());
      }
    } else {
      CMF_TRY(const FloatRows floats, AsFloatRows(view));
      out.dtype = DType::kF32;
      bytes->resize(rows.size() * static_cast<size_t>(columns) * sizeof(float));
      std::vector<float> row(static_cast<size_t>(columns));
      for (size_t i = 0; i < rows.size(); ++i) {
        floats.Read(rows[i], rows[i] + 1, row.data());
        std::memcpy(bytes->data() + i * row.size() * sizeof(float), row.data(), row.size() * sizeof(float));
      }
    }
    out.bytes = *bytes;
    out.owner = std::move(bytes);
    return out;
  }

  const cmf::File& file_;
  std::vector<TensorInfo> tensors_;
  std::unordered_map<std::string_view, const TensorInfo*> index_;
  std::unordered_map<std::string, From> from_;
};

// A router that a skill replaces must have a row for every expert too, and every layer keeps at least one
// expert.
Result<void> CheckRouters(const cmf::File& file, const cmf::ExpertSelection& selection) {
  for (const TensorInfo& info : file.tensors()) {
    const MixturePart part = PartOf(info.name, file.header().skills);
    const auto experts = selection.experts.find(part.layer);
    if (experts == selection.experts.end() || !part.is_per_expert()) continue;
    if (info.shape.empty() || info.shape[0] != experts->second) {
      return Fail(ErrorKind::kCorrupt, fmt::format("{}: tensor '{}': shape {} for {} experts", file.path(),
                                                   info.name, ShapeText(info.shape), experts->second));
    }
  }
  return {};
}

// Bit i of a row becomes the bit of the i-th kept expert. The width stays nominal: bits behind the kept
// experts are set only where the row restricts nothing.
Result<int64_t> RemapMasks(cmf::MaskCatalog& catalog, const cmf::ExpertSelection& selection,
                           std::string_view path) {
  int64_t remapped = 0;
  for (cmf::TaskMask& mask : catalog.masks) {
    if (!mask.has_expert_fields()) continue;
    ++remapped;
    for (const auto& [layer, kept] : selection.kept) {
      if (layer >= static_cast<int64_t>(mask.bits.experts.size())) continue;
      std::vector<uint8_t>& row = mask.bits.experts[static_cast<size_t>(layer)];
      std::vector<uint8_t> next(row.size());
      int64_t alive = 0;
      for (size_t i = 0; i < kept.size(); ++i) {
        if (!cmf::TestBit(row, kept[i])) continue;
        next[i / 8] |= static_cast<uint8_t>(1 << (i % 8));
        ++alive;
      }
      if (alive == 0) {
        return Fail(
            ErrorKind::kUsage,
            fmt::format("{}: mask '{}': layer {} would lose its last expert: raise --cover, or remove the "
                        "mask first (`cmforge mask remove`)",
                        path, mask.name, layer));
      }
      row =
          alive == static_cast<int64_t>(kept.size()) ? cmf::FullRow(mask.bits.expert_count) : std::move(next);
    }
  }
  return remapped;
}

Json Provenance(const cmf::File& file, const cmf::ExpertStats& stats, const cmf::ExpertSelection& selection,
                const std::string& tool) {
  cmf::ExpertStats renumbered;
  Json kept_per_layer = Json::array();
  int64_t most = 0;
  for (const auto& [layer, experts] : selection.experts) {
    most = std::max(most, experts);
    const auto kept = selection.kept.find(layer);
    kept_per_layer.push_back(kept == selection.kept.end() ? experts
                                                          : static_cast<int64_t>(kept->second.size()));
    if (kept == selection.kept.end()) continue;
    for (const int64_t e : kept->second) {
      renumbered.counts[layer].push_back(stats.counts.at(layer)[static_cast<size_t>(e)]);
    }
  }
  const ModelConfig& config = file.config();
  Json entry = {{"tool", tool},
                {"cover", selection.cover},
                {"stats_hash64", cmf::Hash64Hex(stats.hash)},
                {"num_experts_pre", config.moe ? std::max(most, config.moe->num_experts) : most},
                {"kept_per_layer", std::move(kept_per_layer)},
                {"routing_counts", Json::parse(cmf::DumpExpertStats(renumbered))}};
  return entry;
}

}  // namespace

Result<cmf::ExpertStats> EmbeddedExpertStats(const cmf::File& file) {
  const Json& provenance = file.header().provenance;
  const Json* counts = nullptr;
  if (provenance.is_object() && provenance.contains("moe_defrag") && provenance["moe_defrag"].is_object() &&
      provenance["moe_defrag"].contains("routing_counts")) {
    counts = &provenance["moe_defrag"]["routing_counts"];
  }
  if (counts == nullptr) {
    return Fail(ErrorKind::kNotFound,
                fmt::format("{}: no expert statistics inside: give --stats FILE (see `cmforge moe-stats`)",
                            file.path()));
  }
  return cmf::ParseExpertStats(DumpJson(*counts), fmt::format("{}: provenance", file.path()));
}

Result<ExpertDefragReport> DefragExperts(const cmf::File& file, const cmf::ExpertStats& stats, double cover,
                                         const std::string& tool, const std::filesystem::path& target,
                                         const RunControl& control) {
  if (file.is_skill_file()) {
    return Fail(ErrorKind::kUnsupported,
                fmt::format("{}: a standalone skill: apply it first (`cmforge skill apply`)", file.path()));
  }
  if (!file.is_complete()) {
    return Fail(ErrorKind::kUnsupported,
                fmt::format("{}: one shard alone: name a file of the whole set", file.path()));
  }
  ExpertDefragReport report;
  CMF_TRY(report.selection, cmf::SelectExperts(stats, cover, file, file.config()));
  if (report.selection.Dropped() == 0) {
    return Fail(
        ErrorKind::kUsage,
        fmt::format("{}: a cover of {} needs every expert: nothing would be dropped", file.path(), cover));
  }
  CMF_CHECK(CheckRouters(file, report.selection));
  const DefraggedExperts source(file, report.selection);
  cmf::Contents contents = cmf::ContentsOf(file);
  contents.tensors = &source;
  contents.names.clear();
  for (const TensorInfo& info : source.tensors()) contents.names.push_back(info.name);
  CMF_TRY(report.remapped_masks, RemapMasks(contents.masks, report.selection, file.path()));
  if (!contents.header.provenance.is_object()) contents.header.provenance = Json::object();
  contents.header.provenance["moe_defrag"] = Provenance(file, stats, report.selection, tool);
  CMF_TRY(const cmf::WriteSummary summary, cmf::WriteCmf(target, contents, control));
  for (const cmf::Part& part : file.parts()) report.bytes_before += part.bytes.size();
  report.bytes_after = summary.bytes;
  return report;
}

}  // namespace cmforge
