// Reading, writing and applying expert statistics.
#include "cmf/expert_stats.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "base/json.h"
#include "cmf/hash64.h"
#include "cmf/masks.h"

namespace cmforge::cmf {
namespace {

Result<int64_t> ParseLayer(std::string_view key, std::string_view name) {
  int64_t layer = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), layer);
  if (error != std::errc() || end != key.data() + key.size() || layer < 0) {
    return Fail(
        ErrorKind::kCorrupt,
        fmt::format("{}: key '{}' is not a layer number: expert statistics look like {{\"0\": [5, 90]}}",
                    name, key));
  }
  return layer;
}

}  // namespace

double ExpertStats::Total(int64_t layer) const {
  const auto at = counts.find(layer);
  return at == counts.end() ? 0 : std::accumulate(at->second.begin(), at->second.end(), 0.0);
}

Result<ExpertStats> ParseExpertStats(std::string_view text, std::string_view name) {
  CMF_TRY(const Json json, ParseJson(text, name));
  if (!json.is_object()) {
    return Fail(ErrorKind::kCorrupt,
                fmt::format("{}: not an object: expert statistics look like {{\"0\": [5, 90]}}", name));
  }
  ExpertStats stats;
  stats.hash = Hash64(AsBytes(text));
  for (const auto& [key, list] : json.items()) {
    CMF_TRY(const int64_t layer, ParseLayer(key, name));
    if (!list.is_array()) {
      return Fail(ErrorKind::kCorrupt, fmt::format("{}: layer {}: not a list of counts", name, layer));
    }
    std::vector<double> counts;
    for (const Json& count : list) {
      const double value = count.is_number() ? count.get<double>() : -1;
      if (!(value >= 0) || !std::isfinite(value)) {
        return Fail(ErrorKind::kCorrupt, fmt::format("{}: layer {}: expert {}: the count must be 0 or more",
                                                     name, layer, counts.size()));
      }
      counts.push_back(value);
    }
    if (!stats.counts.emplace(layer, std::move(counts)).second) {  // "1" and "01"
      return Fail(ErrorKind::kCorrupt, fmt::format("{}: layer {} occurs twice", name, layer));
    }
  }
  if (stats.counts.empty()) {
    return Fail(ErrorKind::kUsage, fmt::format("{}: no layers: record some with `cmforge moe-stats`", name));
  }
  return stats;
}

std::string DumpExpertStats(const ExpertStats& stats) {
  Json json = Json::object();
  for (const auto& [layer, counts] : stats.counts) {
    Json list = Json::array();
    for (const double count : counts) {
      const bool is_whole = count < 9007199254740992.0 && std::floor(count) == count;
      list.push_back(is_whole ? Json(static_cast<uint64_t>(count)) : Json(count));
    }
    json[std::to_string(layer)] = std::move(list);
  }
  return DumpJson(json);
}

std::map<int64_t, int64_t> ExpertsOfLayers(const TensorSource& source, const ModelConfig& config) {
  std::map<int64_t, int64_t> layers;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const std::string prefix = fmt::format("model.layers.{}.mlp.", layer);
    if (source.Find(prefix + "gate.weight") == nullptr) continue;
    int64_t count = 0;
    while (source.Find(fmt::format("{}experts.{}.gate_proj.weight", prefix, count)) != nullptr) ++count;
    if (count > 0) layers[layer] = count;
  }
  return layers;
}

std::vector<int64_t> CoveringExperts(std::span<const double> counts, double cover) {
  std::vector<int64_t> order(counts.size());
  std::iota(order.begin(), order.end(), 0);
  const double total = std::accumulate(counts.begin(), counts.end(), 0.0);
  if (total <= 0) return order;
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return counts[static_cast<size_t>(a)] > counts[static_cast<size_t>(b)];
  });
  size_t kept = 0;
  for (double sum = 0; kept < order.size() && (kept == 0 || sum < cover * total); ++kept) {
    sum += counts[static_cast<size_t>(order[kept])];
  }
  order.resize(kept);
  std::sort(order.begin(), order.end());
  return order;
}

int64_t ExpertSelection::Kept() const {
  int64_t sum = 0;
  for (const auto& [layer, ids] : kept) sum += static_cast<int64_t>(ids.size());
  return sum;
}

int64_t ExpertSelection::Dropped() const {
  int64_t sum = 0;
  for (const auto& [layer, ids] : kept) sum += experts.at(layer) - static_cast<int64_t>(ids.size());
  return sum;
}

Result<ExpertSelection> SelectExperts(const ExpertStats& stats, double cover, const TensorSource& source,
                                      const ModelConfig& config) {
  if (!(cover > 0 && cover <= 1)) {
    return Fail(ErrorKind::kUsage,
                fmt::format("cover: {} is outside of (0, 1]: give a share like 0.95", cover));
  }
  ExpertSelection selection;
  selection.cover = cover;
  if (config.moe) selection.experts = ExpertsOfLayers(source, config);
  if (selection.experts.empty()) {
    return Fail(ErrorKind::kUsage,
                fmt::format("{}: no layer has experts: there is nothing to select", source.path()));
  }
  for (const auto& [layer, counts] : stats.counts) {
    const auto has = selection.experts.find(layer);
    if (has == selection.experts.end() || has->second != static_cast<int64_t>(counts.size())) {
      return Fail(
          ErrorKind::kUsage,
          fmt::format("expert statistics: layer {} counts {} experts, {} has {} there: record them with "
                      "this model (`cmforge moe-stats`)",
                      layer, counts.size(), source.path(), has == selection.experts.end() ? 0 : has->second));
    }
    selection.kept[layer] = CoveringExperts(counts, cover);
  }
  return selection;
}

Result<void> RestrictExperts(ActiveSet& active, const ExpertSelection& selection, const ModelConfig& config) {
  const auto layers = static_cast<size_t>(config.num_layers);
  if (active.experts.empty()) {
    active.expert_count = config.moe ? config.moe->num_experts : 0;
    for (const auto& [layer, count] : selection.experts)
      active.expert_count = std::max(active.expert_count, count);
    active.experts.assign(layers, FullRow(active.expert_count));
  }
  for (size_t row = 0; row < active.experts.size(); ++row) {  // rows may also be visits of a looped model
    const auto kept = selection.kept.find(static_cast<int64_t>(row % layers));
    if (kept == selection.kept.end()) continue;
    std::vector<uint8_t> stays(active.experts[row].size());
    for (const int64_t e : kept->second) {
      if (TestBit(active.experts[row], e))
        stays[static_cast<size_t>(e / 8)] |= static_cast<uint8_t>(1 << (e % 8));
    }
    if (CountBits(stays) == 0) {
      return Fail(
          ErrorKind::kUsage,
          fmt::format("expert statistics: layer {} keeps none of the experts that the task mask allows: "
                      "raise --cover, or choose another task",
                      kept->first));
    }
    active.experts[row] = std::move(stays);
  }
  return {};
}

}  // namespace cmforge::cmf
