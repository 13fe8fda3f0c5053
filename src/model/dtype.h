// How the numbers of a tensor are stored. Ids 0-16 are those of the CMF directory (spec 3.1); ids from 64
// exist only in checkpoints we read.
#pragma once

#include <cstdint>
#include <string_view>

namespace cmforge {

enum class DType : uint8_t {
  kF32 = 0,
  kF16 = 1,
  kBF16 = 2,
  kQ8Row = 3,
  kQ4Block = 4,
  kMix84 = 5,  // reserved
  kU8 = 6,     // reserved in the spec; raw bytes
  kQ4Col = 7,  // reserved
  kVbit = 8,
  kQ8TwoField = 9,  // q8_2f
  kVbitRo = 10,
  kQ4Tiled = 11,
  kQ1 = 12,
  kQ1s = 13,
  kQ1t = 14,
  kQ4tp = 15,
  kQ2tp = 16,  // not in the spec's table, found in files
  // Checkpoint-only types.
  kF64 = 64,
  kI64 = 65,
  kI32 = 66,
  kI16 = 67,
  kI8 = 68,
  kBool = 69,
  kF8E4M3 = 70,
  kF8E5M2 = 71,
  kU16 = 72,
  kU32 = 73,
  kU64 = 74,
};

inline constexpr int kCmfDTypeCount = 17;

/// The name as the spec's table writes it ("q8_row"); checkpoint-only types as safetensors does, in lower case.
[[nodiscard]] std::string_view DTypeName(DType dtype);

/// Bytes of one element where every element has its own bytes (floats, integers, bool); 0 for the others.
[[nodiscard]] int ElementBytes(DType dtype);

}  // namespace cmforge
