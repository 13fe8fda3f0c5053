// Which processors Core ML may use for a package.
#pragma once

#include <string_view>

#include "base/result.h"

namespace cmforge::coreml {

enum class ComputeUnits : uint8_t { kNeuralEngine, kGpu, kAll, kCpu };

/// "ne", "gpu", "all", "cpu". Fails: kUsage.
Result<ComputeUnits> ParseComputeUnits(std::string_view text);

/// Fails: kUnsupported for the CPU alone, with the reason.
Result<void> CheckComputeUnits(ComputeUnits units);

}  // namespace cmforge::coreml
