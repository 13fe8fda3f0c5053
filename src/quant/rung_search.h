// The search that q4tp and q2tp share: of the four rungs around the nominal one, the one that codes a group
// with the least squared error.
#pragma once

#include <algorithm>
#include <cstdint>

#include "quant/ladder.h"
#include "quant/numeric.h"
#include "quant/shapes.h"

namespace cmforge {

/// Four floats that the compiler computes side by side (GCC and Clang on any machine).
using Float4 = float __attribute__((vector_size(16)));

[[nodiscard]] inline Float4 RoundHalfEven4(Float4 x, float low, float high) {
  constexpr float kShift = 0x1.8p23f;  // as in RoundHalfEven
  const Float4 lows = {low, low, low, low}, highs = {high, high, high, high};
  x = x > lows ? x : lows;
  x = x < highs ? x : highs;
  return (x + kShift) - kShift;
}

/// Value(x): the value, in units of the scale, of the code nearest to x.
struct Q4Grid {  // -8 to 7
  static Float4 Value(Float4 x) { return RoundHalfEven4(x, -8.0f, 7.0f); }
};
struct Q2Grid {  // -1.5, -0.5, 0.5, 1.5
  static Float4 Value(Float4 x) { return RoundHalfEven4(x + 1.5f, 0.0f, 3.0f) - 1.5f; }
};

struct RungChoice {
  int rung = 0;
  float error = 0;
};

/// Tries rungs nominal - 2 to nominal + 1 within [0, top]; of equally good ones the lowest. An error is an
/// f32 sum in the order of the weights; the four sums are the four lanes.
template <class Grid>
[[nodiscard]] RungChoice FindRung(const float* w, const Ladder& ladder, int nominal, int top) {
  int rungs[4];
  Float4 scales;
  for (int c = 0; c < 4; ++c) {
    rungs[c] = std::clamp(nominal - 2 + c, 0, top);
    scales[c] = ladder.rung[rungs[c]];
  }
  const Float4 inverses = 1.0f / scales;
  Float4 errors = {};
  for (int64_t i = 0; i < kGroup; ++i) {
    const Float4 difference = w[i] - Grid::Value(w[i] * inverses) * scales;
    errors += difference * difference;
  }
  RungChoice best{rungs[0], errors[0]};
  for (int c = 1; c < 4; ++c) {
    if (errors[c] < best.error) best = {rungs[c], errors[c]};
  }
  return best;
}

}  // namespace cmforge
