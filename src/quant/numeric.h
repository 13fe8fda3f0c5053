// The arithmetic that encoders share. Bits reach files from here, so nothing depends on the compiler, the
// machine or libm: round half to even by the FPU's own addition, true division, f16 scales with a floor.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "base/half.h"

namespace cmforge {

inline constexpr float kF16Max = 65504.0f;

/// The smallest scale that is stored, the smallest normal f16: an all-zero group has it, with zero codes.
inline constexpr float kScaleFloor = 0x1p-14f;

/// The value of a scale >= 0 as the reader will see it; infinite when it does not fit.
[[nodiscard]] inline float StoredScale(float x) { return std::max(RoundToF16(x), kScaleFloor); }

/// `x` to the nearest integer, half to even, for |x| < 2^22: the sum has no bits left below 1.
[[nodiscard]] inline float RoundHalfEven(float x) {
  constexpr float kShift = 0x1.8p23f;
  return (x + kShift) - kShift;
}

/// The integer code in [low, high] nearest to `x`, half to even. Clamping first gives the same code and
/// keeps the rounding in its range.
[[nodiscard]] inline int32_t Code(float x, float low, float high) {
  return static_cast<int32_t>(RoundHalfEven(std::min(std::max(x, low), high)));
}

[[nodiscard]] inline float AbsMax(const float* values, int64_t count) {
  // Eight running maxima: the order of a maximum does not matter, and the compiler may use vectors.
  float lanes[8] = {};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int k = 0; k < 8; ++k) lanes[k] = std::max(lanes[k], std::fabs(values[i + k]));
  }
  for (; i < count; ++i) lanes[0] = std::max(lanes[0], std::fabs(values[i]));
  return *std::max_element(lanes, lanes + 8);
}

}  // namespace cmforge
