// Rounding rows to fp16.
#include "coreml/graphs/half_rows.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "base/half.h"

namespace cmforge::coreml {
namespace {

constexpr int64_t kAtOnce =
    1 << 15;  // numbers that a thread reads before it rounds them: they stay in its cache

/// The largest magnitude of `values`; NaN when one is.
float Largest(std::span<const float> values) {
  float largest = 0;
  for (const float v : values) {
    if (!(std::fabs(v) <= largest)) largest = std::isnan(v) ? v : std::fabs(v);
    if (std::isnan(largest)) break;
  }
  return largest;
}

Result<void> CheckLargest(float largest) {
  if (std::isfinite(largest) && !std::isinf(F16ToF32(F32ToF16(largest)))) return {};
  if (!std::isfinite(largest)) {
    return Fail(ErrorKind::kCorrupt, "holds NaN or infinity: fetch the checkpoint again");
  }
  return Fail(
      ErrorKind::kUnsupported,
      fmt::format("a weight of {} is beyond fp16, which ends at 65504: this model cannot be a Core ML "
                  "package",
                  largest));
}

}  // namespace

Result<void> CheckHalfRange(std::span<const float> numbers) { return CheckLargest(Largest(numbers)); }

Result<void> ReadHalves(const WeightRows& rows, int64_t begin, int64_t end, ThreadPool& pool,
                        std::span<uint16_t> halves) {
  std::mutex mutex;
  float largest = 0;
  const int64_t step = std::max<int64_t>(kAtOnce / std::max<int64_t>(rows.cols, 1), 1);
  pool.ForRanges(end - begin, 1, [&](int64_t first, int64_t last) {
    std::vector<float> numbers(static_cast<size_t>(std::min(step, last - first) * rows.cols));
    float here = 0;
    for (int64_t row = first; row < last; row += step) {
      const int64_t stop = std::min(row + step, last);
      const auto count = static_cast<size_t>((stop - row) * rows.cols);
      rows.read(begin + row, begin + stop, numbers.data());
      uint16_t* to = halves.data() + row * rows.cols;
      for (size_t i = 0; i < count; ++i) to[i] = F32ToF16(numbers[i]);
      const float most = Largest(std::span(numbers).first(count));
      if (!(most <= here)) here = most;
    }
    const std::scoped_lock lock(mutex);
    if (!(here <= largest)) largest = here;
  });
  return CheckLargest(largest);
}

}  // namespace cmforge::coreml
