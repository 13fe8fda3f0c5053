// A few query rows of one key head at a time against the part of the cache that they see.
#include "coreml/interpreter/cached_attention.h"

#include <algorithm>
#include <limits>

#include "coreml/interpreter/clones.h"
#include "coreml/interpreter/softmax.h"

namespace cmforge::coreml {
namespace {

constexpr int64_t kRows = 24;         // query rows of a task: they share one pass over keys and values
constexpr int64_t kVisibleStep = 16;  // SoftmaxRow's

CMF_CLONES void Scale(float* x, float by, int64_t count) {
  for (int64_t i = 0; i < count; ++i) x[i] *= by;
}
CMF_CLONES void Add(float* x, const float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) x[i] += y[i];
}

struct KeyRange {
  int64_t begin, end;

  /// Widened by what a row of a mask lets through.
  void Include(const float* mask, int64_t keys) {
    constexpr float kHidden = -std::numeric_limits<float>::infinity();
    int64_t first = 0, last = keys;
    while (first < begin && mask[first] == kHidden) ++first;
    while (last > end && mask[last - 1] == kHidden) --last;
    begin = std::min(begin, first);
    end = std::max(end, last);
  }
};

}  // namespace

Kernel CachedAttention::Make(Isa isa, Frame& memory) const {
  const StoredKernels* kernels = &StoredKernelsOf(isa);
  memory.Reserve(kRows * keys + StoredScratchFloats(width), 0);
  return [a = *this, kernels, floats = FindFloatKernels("")](const Frame& frame) -> Result<void> {
    const int64_t rows = a.repeats * a.tokens, blocks = (rows + kRows - 1) / kRows;
    const float by = a.scale == kNoValue ? 1.0f : *frame.In(a.scale);
    frame.pool().Run(a.heads / a.repeats * blocks, [&](int64_t task, int worker) {
      const int64_t kv = task / blocks, first = task % blocks * kRows, count = std::min(kRows, rows - first);
      float* scores = frame.WorkerScratch(worker);
      // Query rows of one key head lie one behind another, and so do their results.
      const int64_t row = kv * rows + first;
      const auto mask_of = [&](int64_t i) {
        return frame.In(a.mask) + (row + i) / a.tokens * a.mask_head + (row + i) % a.tokens * a.mask_token;
      };
      KeyRange range{a.keys, 0};
      for (int64_t i = 0; i < count; ++i) range.Include(mask_of(i), a.keys);
      if (range.begin >= range.end) range = {0, a.keys};  // nothing is visible: NaN, as the formula says
      range.begin = range.begin / kVisibleStep * kVisibleStep;
      const int64_t n = range.end - range.begin;

      StoredMatrix cache;
      cache.rows = a.keys;
      cache.cols = a.width;
      cache.data = reinterpret_cast<const std::byte*>(frame.In(a.key) + kv * a.keys * a.width);
      MultiplyStored(*kernels, cache, range.begin, range.end, frame.In(a.query) + row * a.width, a.width,
                     count, nullptr, scores, 1, n, scores + kRows * a.keys);
      for (int64_t i = 0; i < count; ++i) {
        float* s = scores + i * n;
        const auto round = [&] {
          if (a.rounds) RoundToHalves(s, n);
        };
        round();
        if (a.scale != kNoValue) {
          Scale(s, by, n);
          round();
        }
        Add(s, mask_of(i) + range.begin, n);
        round();
        SoftmaxRow(*floats, s, n, s);
        round();
      }
      float* to = frame.Out(a.out) + row * a.value_width;
      kernels->combine(scores, n, count, frame.In(a.value) + (kv * a.keys + range.begin) * a.value_width,
                       a.value_width, n, a.value_width, to, a.value_width);
      if (a.rounds) RoundToHalves(to, count * a.value_width);
    });
    return {};
  };
}

}  // namespace cmforge::coreml
