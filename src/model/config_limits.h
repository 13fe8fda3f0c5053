// Which real numbers of a ModelConfig a model can have: far wider than any that was ever trained, narrow
// enough that float32 arithmetic on them stays finite.
#pragma once

#include "base/result.h"
#include "model/model_config.h"

namespace cmforge {

/// Counts and shapes are not looked at: they are checked against the tensors.
/// Fails: kCorrupt naming the field (as `arch` and config.json do), its value and the range.
Result<void> CheckNumbers(const ModelConfig& config);

}  // namespace cmforge
