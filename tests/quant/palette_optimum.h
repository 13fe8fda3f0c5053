// The least error that a palette can leave, found by trying every cut: for tests of small groups.
#pragma once

#include <algorithm>
#include <limits>
#include <map>
#include <span>
#include <vector>

#include "base/half.h"

namespace cmforge {

/// By the quadratic recurrence in long double, centroids unrounded.
inline double PaletteOptimum(std::span<const uint16_t> values, std::span<const float> weights,
                             size_t clusters) {
  std::map<double, long double> mass;
  for (size_t i = 0; i < values.size(); ++i) {
    mass[static_cast<double>(F16ToF32(values[i]))] +=
        weights.empty() ? 1.0L : static_cast<long double>(weights[i % weights.size()]);
  }
  std::vector<std::pair<long double, long double>> points(mass.begin(), mass.end());
  const size_t n = points.size();
  std::vector<long double> best(n + 1, std::numeric_limits<long double>::infinity());
  best[0] = 0;
  for (size_t k = 0; k < clusters; ++k) {
    std::vector<long double> next = best;  // a cluster may stay unused
    for (size_t end = 1; end <= n; ++end) {
      long double w = 0, wx = 0, wxx = 0;
      for (size_t begin = end; begin-- > 0;) {
        w += points[begin].second;
        wx += points[begin].second * points[begin].first;
        wxx += points[begin].second * points[begin].first * points[begin].first;
        next[end] = std::min(next[end], best[begin] + wxx - wx * wx / w);
      }
    }
    best = next;
  }
  return static_cast<double>(best[n]);
}

}  // namespace cmforge
