// Reasons and sizes.
#include "quant/shapes.h"

#include "base/bytes.h"

namespace cmforge {

std::string AnyShape(std::span<const int64_t>) { return {}; }

std::string ReasonNot2d(std::span<const int64_t> shape) {
  if (shape.size() != 2) return fmt::format("shape {} is not 2-D", ShapeText(shape));
  if (shape[0] == 0 || shape[1] == 0) return fmt::format("shape {} has no elements", ShapeText(shape));
  return {};
}

std::string ReasonNotGroups(std::span<const int64_t> shape) {
  if (std::string reason = ReasonNot2d(shape); !reason.empty()) return reason;
  if (shape[1] % kGroup != 0) return fmt::format("columns {} are not a multiple of {}", shape[1], kGroup);
  return {};
}

Result<void> CheckReason(std::string reason) {
  if (reason.empty()) return {};
  return Fail(ErrorKind::kUsage, std::move(reason));
}

std::optional<uint64_t> DependsOnData(std::span<const int64_t>) { return std::nullopt; }

uint64_t SaturatedMul(uint64_t a, uint64_t b) { return CheckedMul(a, b).value_or(UINT64_MAX); }

uint64_t SaturatedAdd(uint64_t a, uint64_t b) { return CheckedAdd(a, b).value_or(UINT64_MAX); }

uint64_t ElementBytes(std::span<const int64_t> shape, uint64_t bytes_per_element) {
  const std::optional<int64_t> count = ElementCount(shape);
  return count ? SaturatedMul(static_cast<uint64_t>(*count), bytes_per_element) : UINT64_MAX;
}

uint64_t GroupBytes(std::span<const int64_t> shape, uint64_t bytes_per_group) {
  const uint64_t row_groups = static_cast<uint64_t>(shape[1] / kGroup);
  return SaturatedMul(SaturatedMul(static_cast<uint64_t>(shape[0]), row_groups), bytes_per_group);
}

}  // namespace cmforge
