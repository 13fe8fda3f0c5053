// Encodings that hold the same numbers in another order: changing one into the other moves bytes and loses nothing,
// which decoding and encoding again would not promise.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "model/tensor_source.h"

namespace cmforge {

/// The payload of `tensor` (validated) as `to`: q4_block <-> q4_tiled, vbit <-> vbit_ro. Nothing for any other pair,
/// for shapes that `to` cannot hold, and for rows beyond what vbit_ro can address.
[[nodiscard]] std::optional<std::vector<std::byte>> Relayout(const TensorView& tensor, DType to);

}  // namespace cmforge
