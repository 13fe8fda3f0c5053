// The machine's read bandwidth, measured on the model's own pages: what decoding could reach at best.
#pragma once

#include <vector>

#include "base/thread_pool.h"
#include "model/tensor_source.h"

namespace cmforge::cli {

/// The tensors' bytes where the source has them, up to `limit_bytes` of the largest; computed ones are left out. Where
/// there are none (Core ML packages, a null source), other memory of 512 MiB.
[[nodiscard]] std::vector<TensorView> WeightPages(const TensorSource* source,
                                                  uint64_t limit_bytes = uint64_t{1} << 30);

/// GB/s of all threads reading these views front to back, once; the best of `passes`.
[[nodiscard]] double MeasureReadBandwidth(ThreadPool& pool, const std::vector<TensorView>& pages,
                                          int passes = 3);

}  // namespace cmforge::cli
