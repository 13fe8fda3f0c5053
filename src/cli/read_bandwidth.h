// The machine's read bandwidth, measured the way decoding reads weights: all threads, front to back, once.
#pragma once

#include "base/thread_pool.h"

namespace cmforge::cli {

/// GB/s over `mebibytes` of memory far larger than the caches, on ordinary (4 KiB) pages; the best of three
/// passes.
[[nodiscard]] double MeasureReadBandwidth(ThreadPool& pool, int64_t mebibytes = 512);

}  // namespace cmforge::cli
