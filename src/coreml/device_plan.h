// Where the operations of a package will run: how many of each type, on which device by the rules that are known
// of the Neural Engine, and which kernels of the interpreter execute them here. A prediction, not a measurement.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "coreml/package_meta.h"
#include "mil/program.h"

namespace cmforge::coreml {

struct PlannedOperations {
  std::string type;
  int64_t count = 0;
  std::string device;  // "ANE", "CPU"
  std::string reason;  // why not the Neural Engine; empty for it
};

struct PlannedFunction {
  std::string part, function;
  std::vector<PlannedOperations> operations;  // constants not counted; most frequent first
  std::map<std::string, int64_t> kernels;     // steps of the interpreter, after folding and views
};

/// The rules alone, of one function.
[[nodiscard]] std::vector<PlannedOperations> PredictDevices(const mil::Function& function);

/// Fails: as FindParts, mil::OpenPackage and Interpreter::Plan.
Result<std::vector<PlannedFunction>> PlanDevices(const std::filesystem::path& folder,
                                                 const PackageMeta& meta);

}  // namespace cmforge::coreml
