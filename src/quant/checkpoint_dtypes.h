// Number types that occur in checkpoints but not in a CMF directory: read as f32, never written.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "model/dtype.h"

namespace cmforge {

/// Bytes of one element of f64, i64, i32, i16, i8, bool, u16, u32, u64; 0 for every other dtype (f8 too:
/// its values mean nothing without their scales).
[[nodiscard]] int64_t CheckpointElementSize(DType dtype);

/// Elements [begin, end) as f32, rounded half to even; a bool is 0 or 1. `bytes` holds them all.
void ReadCheckpointElements(DType dtype, Bytes bytes, int64_t begin, int64_t end, float* out);

}  // namespace cmforge
