// What encodings say about shapes: why one cannot be stored, and how many bytes one takes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "model/tensor_source.h"

namespace cmforge {

/// Weights that share a scale.
inline constexpr int64_t kGroup = 32;

/// For `Encoding::reason_against`; empty = the shape is fine.
std::string AnyShape(std::span<const int64_t> shape);
/// "shape [3, 4, 5] is not 2-D", "shape [0, 32] has no elements".
std::string ReasonNot2d(std::span<const int64_t> shape);
/// ReasonNot2d, or "columns 44 are not a multiple of 32".
std::string ReasonNotGroups(std::span<const int64_t> shape);

/// Fails with kUsage when there is a reason.
Result<void> CheckReason(std::string reason);

/// For `Encoding::payload_size` of encodings that only their data can tell.
std::optional<uint64_t> DependsOnData(std::span<const int64_t> shape);

/// a * b and a + b, UINT64_MAX when they do not fit: no file has that size.
[[nodiscard]] uint64_t SaturatedMul(uint64_t a, uint64_t b);
[[nodiscard]] uint64_t SaturatedAdd(uint64_t a, uint64_t b);

/// Bytes of all elements, and of all groups of a shape that ReasonNotGroups accepts; saturated.
[[nodiscard]] uint64_t ElementBytes(std::span<const int64_t> shape, uint64_t bytes_per_element);
[[nodiscard]] uint64_t GroupBytes(std::span<const int64_t> shape, uint64_t bytes_per_group);

}  // namespace cmforge
