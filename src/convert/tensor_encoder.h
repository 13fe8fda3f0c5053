// Reads tensors of a source in the encodings that a plan gives them; whoever writes files asks it one by one.
#pragma once

#include <optional>

#include "base/progress.h"
#include "base/thread_pool.h"
#include "convert/quant_plan.h"
#include "convert/vbit_budget.h"
#include "model/tensor_source.h"

namespace cmforge::cmf {
class File;
}

namespace cmforge {

/// What the encoders are told beside the plan.
struct EncoderSettings {
  /// vbit: bits a weight. Given, tensors that are vbit already are encoded again; else they are copied.
  std::optional<double> mean_bits;
  bool least_error = false;  // the `mse` encoders, where an encoding has one (quant/least_error.h)
  const RoutingCounts* routing = nullptr;  // vbit experts; must outlive the work

  static constexpr double kMeanBits = 4.25;
};

class TensorEncoder {
 public:
  /// All but `plan` must outlive the result.
  TensorEncoder(const TensorSource& source, const QuantPlan& plan, const EncoderSettings& settings,
                ThreadPool& pool, const RunControl& control);

  /// False when the source's own payload will do as it is.
  [[nodiscard]] bool Changes(const PlannedTensor& tensor) const;

  /// The payload: the source's own where nothing changes, the same numbers in another order where that is possible, else
  /// encoded anew. Fails: kCorrupt when a .cmf source has another hash on record than its bytes have (damage is not
  /// passed on under a fresh hash), as the encoders, with file and tensor named.
  Result<TensorView> Read(const PlannedTensor& tensor);

 private:
  const TensorSource& source_;
  const cmf::File* file_;  // the source, when it has recorded hashes
  EncoderSettings settings_;
  VbitBudget budget_;
  ThreadPool& pool_;
  const RunControl& control_;
};

}  // namespace cmforge
