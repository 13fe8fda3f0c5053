// Choosing a task mask.
#include "open/tasks.h"

#include <algorithm>

namespace cmforge {
namespace {

bool IsAllOnes(const std::vector<std::vector<uint8_t>>& rows, int64_t bits) {
  const auto full = cmf::FullRow(bits);
  return std::all_of(rows.begin(), rows.end(), [&](const auto& row) { return row == full; });
}

Task Switch(const OpenedSource& source, const cmf::TaskMask& mask, const RunControl& control) {
  if (ForbidsNothing(mask.bits, source.config->num_layers)) return {mask.name, nullptr};
  if (!mask.is_measured()) {
    control.Warn(fmt::format("{}: task '{}': what the mask costs was never measured on held-out text",
                             source.path, mask.name));
  }
  return {mask.name, std::shared_ptr<const ActiveSet>(source.cmf, &mask.bits)};
}

}  // namespace

bool ForbidsNothing(const ActiveSet& bits, int64_t layers) {
  return IsAllOnes(bits.ffn, bits.ffn_width) && IsAllOnes(bits.heads, bits.head_count) &&
         IsAllOnes(bits.experts, bits.expert_count) &&
         (bits.layer_gates.empty() || bits.layer_gates == cmf::FullRow(layers));
}

Result<Task> FindTask(const OpenedSource& source, std::string_view name, const RunControl& control) {
  const cmf::TaskMask* mask = source.cmf ? source.cmf->masks().Find(name) : nullptr;
  if (mask != nullptr) return Switch(source, *mask, control);
  if (name == kNoTask) return Task{};
  std::vector<std::string> names;
  if (source.cmf) {
    for (const cmf::TaskMask& other : source.cmf->masks().masks) names.push_back(other.name);
  }
  return Fail(
      ErrorKind::kNotFound,
      fmt::format("{}: no task '{}': {}", source.path, name,
                  names.empty() ? "it has no masks" : fmt::format("it has {}", fmt::join(names, ", "))));
}

Result<Task> DefaultTask(const OpenedSource& source, const RunControl& control) {
  const cmf::TaskMask* mask = source.cmf ? source.cmf->masks().Initial() : nullptr;
  if (mask == nullptr) return Task{};
  return Switch(source, *mask, control);
}

}  // namespace cmforge
