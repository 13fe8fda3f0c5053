// The bit budget that the experts of a family share under vbit (spec 3.2): one family is the same projection of all
// experts of one layer. Loud experts, and with router counts often chosen ones, get more bits.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/progress.h"
#include "base/thread_pool.h"
#include "convert/quant_plan.h"
#include "model/tensor_source.h"

namespace cmforge {

/// How often a text's tokens chose each expert, by layer: [experts]. Layers may be missing: their experts are weighed
/// by loudness alone.
using RoutingCounts = std::map<int64_t, std::vector<double>>;

class VbitBudget {
 public:
  /// `plan` and `source` are only read here. `routing` may be null; else it must outlive the result.
  VbitBudget(const QuantPlan& plan, double mean_bits, const RoutingCounts* routing);

  /// EncodeOptions::row_bias_bits of a planned tensor; 0 for one that is no expert. The whole family is read the first
  /// time one of it is asked for. Fails: as the source; kUsage when the counts of the layer are for another number of
  /// experts; kCancelled.
  Result<double> BiasBits(const PlannedTensor& tensor, const TensorSource& source, ThreadPool& pool,
                          const RunControl& control);

  [[nodiscard]] bool has_families() const { return !families_.empty(); }

 private:
  struct Member {
    std::string name;
    int64_t expert = 0;
  };
  struct Family {
    int64_t layer = -1;  // of the model's own layers; -1: no router counts can be for it
    std::vector<Member> members;
  };
  Result<void> Settle(const Family& family, const TensorSource& source, ThreadPool& pool,
                      const RunControl& control);

  double mean_bits_;
  const RoutingCounts* routing_;
  std::map<std::string, Family> families_;           // by name without the expert's number
  std::unordered_map<std::string, double> bias_of_;  // of families that were read, by name
};

}  // namespace cmforge
