// What a sequence remembers of one layer, as plain numbers: what two implementations of a model are compared by.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "model/language_model.h"

namespace cmforge {

struct LayerStates {
  // Keys (normed and rotated) and values, [positions, heads, dim]; empty where a layer keeps none of its own.
  int64_t first_position = 0, positions = 0, heads = 0, dim = 0;
  std::vector<float> keys, values;

  std::vector<float> history;  // inputs of a causal convolution, [kernel - 1, channels], oldest first
  std::vector<float> memory;   // of a gated delta net: S, [value heads, key dim, value dim]
  int64_t key_dim = 0;         // of that
};

/// All layers of a sequence, in order. Fails: kUsage (a sequence of another implementation).
using LayerStatesReader = std::function<Result<std::vector<LayerStates>>(const Sequence&)>;

}  // namespace cmforge
