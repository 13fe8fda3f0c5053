// Expert statistics: how often a text's tokens chose each expert of each mixture-of-experts layer, and which
// experts suffice for a share of those choices (spec 11.1). The same selection restricts a run, fills a task
// mask's expert fields, or decides what a smaller file keeps.
//
//   {"1": [5, 90, 3, 60], "3": [40, 2, 33, 7]}      layer: one count an expert
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/language_model.h"
#include "model/model_config.h"
#include "model/tensor_source.h"

namespace cmforge::cmf {

struct ExpertStats {
  // By layer, [experts]. Doubles, since shares do as well as counts; whole numbers are exact up to 2^53.
  std::map<int64_t, std::vector<double>> counts;
  uint64_t hash = 0;  // hash64 of the text it was parsed from

  [[nodiscard]] double Total(int64_t layer) const;
};

/// `name` (the file) begins every message. Fails: kCorrupt (not JSON, not an object of layers, a count that
/// is negative or no number), kUsage (no layer at all).
Result<ExpertStats> ParseExpertStats(std::string_view text, std::string_view name);

/// One line of JSON; counts that are whole are written as whole numbers.
[[nodiscard]] std::string DumpExpertStats(const ExpertStats& stats);

/// Layers with a router, and how many experts each has: those present without a gap from expert 0 on.
[[nodiscard]] std::map<int64_t, int64_t> ExpertsOfLayers(const TensorSource& source,
                                                         const ModelConfig& config);

/// The smallest set of experts whose counts reach `cover` (0 < cover <= 1) of the sum, as ascending ids: the
/// most chosen first, of equals the lower id. All of them when nothing was counted.
[[nodiscard]] std::vector<int64_t> CoveringExperts(std::span<const double> counts, double cover);

struct ExpertSelection {
  double cover = 1;
  std::map<int64_t, int64_t> experts;            // every layer with experts: how many it has
  std::map<int64_t, std::vector<int64_t>> kept;  // layers with statistics: who stays, ascending

  [[nodiscard]] int64_t Kept() const;     // over all layers with statistics
  [[nodiscard]] int64_t Dropped() const;  // of those layers
};

/// Fails: kUsage (cover outside of (0, 1], a model without experts, statistics of another model: a layer
/// without experts or with another number of them; layer and numbers named).
Result<ExpertSelection> SelectExperts(const ExpertStats& stats, double cover, const TensorSource& source,
                                      const ModelConfig& config);

/// Takes away from `active` the experts that the selection drops; what else it restricts stays.
/// Fails: kUsage when a layer is left without an expert.
Result<void> RestrictExperts(ActiveSet& active, const ExpertSelection& selection, const ModelConfig& config);

}  // namespace cmforge::cmf
