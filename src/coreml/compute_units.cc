// Names of compute units, and the one that gives wrong answers.
#include "coreml/compute_units.h"

namespace cmforge::coreml {

Result<ComputeUnits> ParseComputeUnits(std::string_view text) {
  if (text == "ne") return ComputeUnits::kNeuralEngine;
  if (text == "gpu") return ComputeUnits::kGpu;
  if (text == "all") return ComputeUnits::kAll;
  if (text == "cpu") return ComputeUnits::kCpu;
  return Fail(ErrorKind::kUsage, fmt::format("compute-units: '{}': give ne, gpu, all or cpu", text));
}

Result<void> CheckComputeUnits(ComputeUnits units) {
  if (units != ComputeUnits::kCpu) return {};
  return Fail(
      ErrorKind::kUnsupported,
      "compute-units cpu: Core ML's own CPU path returns NaN for stateful fp16 graphs like these: use ne or "
      "gpu, or the interpreter (--compute exact)");
}

}  // namespace cmforge::coreml
