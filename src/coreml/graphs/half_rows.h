// Rows on their last step into a file: rounded to fp16, and refused where fp16 cannot hold them.
#pragma once

#include <span>

#include "base/thread_pool.h"
#include "coreml/graphs/weight_rows.h"

namespace cmforge::coreml {

/// Rows [begin, end) as fp16 bit patterns into `halves`, (end - begin) * cols of them, read by all threads of
/// the pool. Fails: kCorrupt (NaN or infinity), kUnsupported (a number beyond fp16: the largest named).
Result<void> ReadHalves(const WeightRows& rows, int64_t begin, int64_t end, ThreadPool& pool,
                        std::span<uint16_t> halves);

/// The same check for numbers at hand.
Result<void> CheckHalfRange(std::span<const float> numbers);

}  // namespace cmforge::coreml
