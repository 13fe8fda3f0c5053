// Loops over several tensors at once, each with strides of its own (0 along a broadcast axis). Axes that are
// contiguous for all of them are merged, so that the innermost loop is as long as it can be. No allocation
// when run.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "model/tensor_source.h"

namespace cmforge::coreml {

/// Row-major strides in elements.
[[nodiscard]] inline std::vector<int64_t> StridesOf(const Shape& shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= shape[i];
  }
  return strides;
}

/// Strides with which a tensor of shape `from` is read as one of shape `to` (numpy's broadcast).
[[nodiscard]] inline std::vector<int64_t> BroadcastStrides(const Shape& from, const Shape& to) {
  const std::vector<int64_t> own = StridesOf(from);
  std::vector<int64_t> strides(to.size(), 0);
  for (size_t i = 0; i < from.size(); ++i) {
    const size_t at = to.size() - from.size() + i;
    if (from[i] != 1) strides[at] = own[i];
  }
  return strides;
}

template <size_t N>
class StridedLoop {
 public:
  /// `strides[k]`: of tensor k, one number per dimension of `dims`.
  StridedLoop(const Shape& dims, const std::array<std::vector<int64_t>, N>& strides) {
    for (size_t i = 0; i < dims.size(); ++i) {
      if (dims[i] == 0) is_empty_ = true;
      if (dims[i] == 1) continue;
      Axis axis{dims[i], {}};
      for (size_t k = 0; k < N; ++k) axis.strides[k] = strides[k][i];
      bool merges = !axes_.empty();
      for (size_t k = 0; merges && k < N; ++k)
        merges = axes_.back().strides[k] == axis.strides[k] * axis.extent;
      if (merges) {
        axis.extent *= axes_.back().extent;
        axes_.back() = axis;
      } else {
        axes_.push_back(axis);
      }
    }
    if (axes_.empty()) axes_.push_back({1, {}});
    outer_count_ = is_empty_ ? 0 : 1;
    for (size_t i = 0; i + 1 < axes_.size(); ++i) outer_count_ *= axes_[i].extent;
  }

  [[nodiscard]] int64_t inner_extent() const { return axes_.back().extent; }
  [[nodiscard]] const std::array<int64_t, N>& inner_strides() const { return axes_.back().strides; }
  [[nodiscard]] int64_t outer_count() const { return outer_count_; }

  /// fn(offsets) for rows [begin, end) of the outer loop: where each tensor's inner row starts.
  template <class Fn>
  void ForRows(int64_t begin, int64_t end, Fn&& fn) const {
    if (begin >= end) return;
    std::array<int64_t, kMaxAxes> at{};
    std::array<int64_t, N> offsets{};
    const size_t outer = axes_.size() - 1;
    int64_t rest = begin;
    for (size_t i = outer; i-- > 0;) {
      at[i] = rest % axes_[i].extent;
      rest /= axes_[i].extent;
      for (size_t k = 0; k < N; ++k) offsets[k] += at[i] * axes_[i].strides[k];
    }
    for (int64_t row = begin; row < end; ++row) {
      fn(offsets);
      for (size_t i = outer; i-- > 0;) {
        for (size_t k = 0; k < N; ++k) offsets[k] += axes_[i].strides[k];
        if (++at[i] < axes_[i].extent) break;
        for (size_t k = 0; k < N; ++k) offsets[k] -= axes_[i].strides[k] * axes_[i].extent;
        at[i] = 0;
      }
    }
  }

  /// All rows, split over the pool when there is enough to do.
  template <class Fn>
  void Run(ThreadPool& pool, Fn&& fn) const {
    constexpr int64_t kWorthThreads = 1 << 15;
    if (pool.threads() == 1 || outer_count_ < 2 || outer_count_ * inner_extent() < kWorthThreads) {
      return ForRows(0, outer_count_, fn);
    }
    pool.ForRanges(outer_count_, 1, [&](int64_t begin, int64_t end) { ForRows(begin, end, fn); });
  }

  static constexpr size_t kMaxAxes = 20;

 private:
  struct Axis {
    int64_t extent;
    std::array<int64_t, N> strides;
  };
  std::vector<Axis> axes_;
  int64_t outer_count_ = 1;
  bool is_empty_ = false;
};

}  // namespace cmforge::coreml
