// The engine's side of comparing states.
#pragma once

#include "model/layer_states.h"

namespace cmforge::engine {

/// Fails: kUsage (no sequence of this engine), kUnsupported (layers that are visited more than once).
Result<std::vector<LayerStates>> LayerStatesOf(const Sequence& sequence);

}  // namespace cmforge::engine
