// Where the operations of a package will run: how many of each type, on which device by the rules that are known
// of the Neural Engine, and which kernels of the interpreter execute them here. A prediction, not a measurement.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "coreml/function_view.h"
#include "coreml/package_meta.h"

namespace cmforge::coreml {

/// What keeps an operation off the Neural Engine.
enum class Obstacle : uint8_t {
  kNone,
  kRuntimeGather,
  kIntegers,
  kBooleans,
  kFloat32,
  kRank,
  kAxis,
  kRuntimeShape
};

struct Placement {
  Obstacle obstacle = Obstacle::kNone;
  std::string reason;  // empty without an obstacle
};
/// Of an operation that is no constant.
[[nodiscard]] Placement PlaceOperation(const FunctionView& function, const mil::Operation& op);

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
