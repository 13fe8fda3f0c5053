// The search over scales.
#include "quant/least_error.h"

#include <algorithm>

#include "quant/numeric.h"
#include "quant/shapes.h"

namespace cmforge {
namespace {

// Squared error of a group coded with a scale: eight sums side by side, for the vector unit, added up in order.
float ErrorWith(const float* w, float low, float high, float scale) {
  const float inverse = 1.0f / scale;
  float lanes[8] = {};
  for (int64_t i = 0; i < kGroup; i += 8) {
    for (int64_t k = 0; k < 8; ++k) {
      const float code = RoundHalfEven(std::min(std::max(w[i + k] * inverse, low), high));
      const float difference = w[i + k] - code * scale;
      lanes[k] += difference * difference;
    }
  }
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

}  // namespace

float LeastErrorScale(const float* w, float low, float high, float standard) {
  // From 0.60 to 1.08 of the standard scale in steps of 0.02; Gaussian groups find theirs near 0.9 at 4 bits.
  constexpr int kSmallest = 30, kLargest = 54, kUnit = 50;
  float best = standard, least = ErrorWith(w, low, high, standard);
  for (int step = kLargest; step >= kSmallest && least > 0; --step) {
    const float scale = StoredScale(standard * (static_cast<float>(step) / kUnit));
    if (scale > kF16Max) continue;
    const float error = ErrorWith(w, low, high, scale);
    if (error < least) {
      least = error;
      best = scale;
    }
  }
  return best;
}

EncodeFunction LeastErrorEncoder(DType dtype) {
  switch (dtype) {
    case DType::kQ4Block:
      return EncodeQ4BlockLeastError;
    case DType::kQ4Tiled:
      return EncodeQ4TiledLeastError;
    case DType::kQ4tp:
      return EncodeQ4tpLeastError;
    case DType::kVbit:
      return EncodeVbitLeastError;
    case DType::kVbitRo:
      return EncodeVbitRoLeastError;
    default:
      return nullptr;
  }
}

}  // namespace cmforge
