// Rules of the Neural Engine, applied operation by operation.
#include "coreml/device_plan.h"

#include <algorithm>

#include "coreml/interpreter.h"

namespace cmforge::coreml {
namespace {

using mil::Operation;

constexpr int64_t kMaxSpatial = 16384;   // depth, height, width
constexpr int64_t kMaxChannels = 65536;  // and items of a batch
constexpr int64_t kMaxRank = 5;

/// Axes count from the last one: W, H, C, then N or (of five) D and N.
int64_t AxisLimit(size_t rank, size_t axis) {
  const size_t from_end = rank - 1 - axis;
  const bool is_wide = from_end == 2 || (from_end == 3 && rank == 4) || from_end == 4;
  return is_wide ? kMaxChannels : kMaxSpatial;
}

bool HasInteger(const FunctionView& function, const Operation& op) {
  for (const char* parameter : {"x", "y"}) {
    const mil::TensorType* type = function.TypeOf(op, parameter);
    if (type && mil::IsInteger(type->dtype)) return true;
  }
  return false;
}

}  // namespace

Placement PlaceOperation(const FunctionView& function, const Operation& op) {
  if (op.type.starts_with("gather")) {
    const Operation* indices = function.MakerOf(op, "indices");
    if (FunctionView::Name(op, "indices") && !(indices && IsConstantOperation(*indices)))
      return {Obstacle::kRuntimeGather, "gather by indices only known at run time"};
  }
  for (const mil::NamedType& output : op.outputs) {
    const mil::TensorType& type = output.type.tensor;
    if (mil::IsInteger(type.dtype)) return {Obstacle::kIntegers, "integers"};
    if (type.dtype == mil::DataType::kBool) {
      // Comparing floats is done where they are.
      if (HasInteger(function, op)) return {Obstacle::kIntegers, "integers"};
      if (op.type.starts_with("logical_")) return {Obstacle::kBooleans, "booleans"};
    }
    if (type.dtype == mil::DataType::kFloat32) return {Obstacle::kFloat32, "f32"};
    if (type.rank() > kMaxRank)
      return {Obstacle::kRank, fmt::format("rank {}, at most {}", type.rank(), kMaxRank)};
    for (size_t i = 0; i < type.shape.size(); ++i) {
      if (type.shape[i] == mil::kUnknownDim)
        return {Obstacle::kRuntimeShape, "a shape only known at run time"};
      const int64_t limit = AxisLimit(type.shape.size(), i);
      if (type.shape[i] > limit)
        return {Obstacle::kAxis, fmt::format("an axis of {}, at most {}", type.shape[i], limit)};
    }
  }
  return {};
}

std::vector<PlannedOperations> PredictDevices(const mil::Function& function) {
  const FunctionView view("", function);
  std::map<std::pair<std::string, std::string>, int64_t> counts;  // type, reason
  for (const Operation& op : function.body.operations) {
    if (!IsConstantOperation(op)) ++counts[{op.type, PlaceOperation(view, op).reason}];
  }
  std::vector<PlannedOperations> out;
  for (const auto& [key, count] : counts)
    out.push_back({key.first, count, key.second.empty() ? "ANE" : "CPU", key.second});
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.count > b.count; });
  return out;
}

Result<std::vector<PlannedFunction>> PlanDevices(const std::filesystem::path& folder,
                                                 const PackageMeta& meta) {
  CMF_TRY(const PackageParts parts, FindParts(folder, meta));
  std::vector<std::filesystem::path> paths = {parts.embeddings};
  paths.insert(paths.end(), parts.chunks.begin(), parts.chunks.end());
  paths.push_back(parts.lm_head);
  std::vector<PlannedFunction> out;
  for (const auto& path : paths) {
    CMF_TRY(mil::Package package, mil::OpenPackage(path));
    CMF_TRY(const auto interpreter, Interpreter::Create(std::move(package)));
    for (const auto& [name, function] : interpreter->package().model.program.functions) {
      PlannedFunction planned{path.filename().string(), name, PredictDevices(function), {}};
      CMF_TRY(const Runner runner, interpreter->Plan(name));
      planned.kernels = runner.StepHistogram();
      out.push_back(std::move(planned));
    }
  }
  return out;
}

}  // namespace cmforge::coreml
