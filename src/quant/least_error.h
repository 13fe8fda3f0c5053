// The `mse` encoders: the same layouts as the standard encoders write, so that any reader reads them, but every group's
// scale is searched for the least squared error instead of following from its largest weight. The largest weight may
// then be cut off, for the sake of the others.
#pragma once

#include <cstdint>

#include "quant/encoding.h"

namespace cmforge {

using EncodeFunction = decltype(Encoding::encode);

/// For q4_block, q4_tiled, q4tp, vbit and vbit_ro; nullptr for all others. Contract: as Encoding::encode.
[[nodiscard]] EncodeFunction LeastErrorEncoder(DType dtype);

/// The stored scale (f16) near `standard` (a stored scale > 0) with the least squared error of 32 weights coded to
/// integers in [low, high]; `standard` itself when none is better. Depends on nothing but its arguments.
[[nodiscard]] float LeastErrorScale(const float* w, float low, float high, float standard);

// The entries of LeastErrorEncoder, each defined in the file of its encoding.
Result<std::vector<std::byte>> EncodeQ4BlockLeastError(const FloatRows&, const EncodeOptions&, ThreadPool&);
Result<std::vector<std::byte>> EncodeQ4TiledLeastError(const FloatRows&, const EncodeOptions&, ThreadPool&);
Result<std::vector<std::byte>> EncodeQ4tpLeastError(const FloatRows&, const EncodeOptions&, ThreadPool&);
Result<std::vector<std::byte>> EncodeVbitLeastError(const FloatRows&, const EncodeOptions&, ThreadPool&);
Result<std::vector<std::byte>> EncodeVbitRoLeastError(const FloatRows&, const EncodeOptions&, ThreadPool&);

}  // namespace cmforge
