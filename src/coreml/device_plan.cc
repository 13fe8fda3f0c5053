// Rules of the Neural Engine, applied operation by operation.
#include "coreml/device_plan.h"

#include <algorithm>
#include <set>

#include "coreml/interpreter.h"

namespace cmforge::coreml {
namespace {

using mil::Operation;

constexpr int64_t kMaxAxis = 16384;
constexpr int64_t kMaxRank = 5;

/// Why the operation does not run on the Neural Engine, or "".
std::string ReasonAgainst(const Operation& op, const std::set<std::string>& constants) {
  if (op.type.starts_with("gather")) {
    const auto indices = op.inputs.find("indices");
    const auto* name = indices == op.inputs.end() ? nullptr : std::get_if<std::string>(&indices->second[0]);
    if (name && !constants.contains(*name)) return "gather by indices only known at run time";
  }
  for (const mil::NamedType& output : op.outputs) {
    const mil::TensorType& type = output.type.tensor;
    if (mil::IsInteger(type.dtype)) return "integers";
    if (type.dtype == mil::DataType::kBool) return "booleans";
    if (type.dtype == mil::DataType::kFloat32) return "f32";
    if (type.rank() > kMaxRank) return fmt::format("rank {}, at most {}", type.rank(), kMaxRank);
    for (const int64_t dim : type.shape) {
      if (dim == mil::kUnknownDim) return "a shape only known at run time";
      if (dim > kMaxAxis) return fmt::format("an axis of {}, at most {}", dim, kMaxAxis);
    }
  }
  return "";
}

}  // namespace

std::vector<PlannedOperations> PredictDevices(const mil::Function& function) {
  std::set<std::string> constants;
  std::map<std::pair<std::string, std::string>, int64_t> counts;  // type, reason
  for (const Operation& op : function.body.operations) {
    if (op.type == "const" || op.type.starts_with("constexpr_")) {
      for (const mil::NamedType& output : op.outputs) constants.insert(output.name);
      continue;
    }
    ++counts[{op.type, ReasonAgainst(op, constants)}];
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
