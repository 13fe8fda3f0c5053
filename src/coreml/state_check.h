// The states of a package against what the engine remembers after the same tokens.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "coreml/package_meta.h"
#include "model/layer_states.h"

namespace cmforge::coreml {

struct NamedState {
  std::string name;
  Shape shape;
  std::vector<float> values;
};

/// How far one part of a state is off, over the layers it holds.
struct StateDifference {
  std::string state;        // "model_model_kv_cache_0"
  std::string part;         // "keys", "values", "memory" (of delta nets), "history" (of convolutions)
  int64_t layers = 0;       // compared
  int64_t worst_layer = 0;  // of max_relative
  double max_abs = 0;
  double max_relative = 0;  // to the largest number of that layer's part; infinite where sizes do not fit
};

/// `position`: tokens both have seen. States of names the layout does not know are left out.
[[nodiscard]] std::vector<StateDifference> CompareStates(const PackageMeta& meta,
                                                         std::span<const NamedState> states,
                                                         std::span<const LayerStates> layers,
                                                         int64_t position);

}  // namespace cmforge::coreml
