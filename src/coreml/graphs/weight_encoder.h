// Compresses one matrix: palettes fitted group by group, or integers with scales. All threads work on it; the
// result does not depend on their number.
#pragma once

#include <functional>
#include <vector>

#include "base/progress.h"
#include "base/thread_pool.h"
#include "coreml/graphs/weight_form.h"
#include "coreml/graphs/weight_rows.h"

namespace cmforge::coreml {

struct EncodedWeight {
  /// Palette: tables, fp16 [rows / group, 2^bits]. Scaled: scales, fp16 [rows, columns / group].
  std::vector<std::byte> tables;
  /// Indices or two's complement integers, row-major, packed as weight files have them.
  std::vector<std::byte> codes;
  double error = 0;   // sum of importance * (w - w')^2; importance is 1 where nothing says otherwise
  double energy = 0;  // sum of importance * w^2
  int64_t count = 0;  // numbers in the matrix
};

/// `form` is compressed and its group divides (FormFor). w is the matrix rounded to fp16.
/// Symmetric integers: scale = largest magnitude / (2^(bits-1) - 1), rounded to fp16 before the integers are
/// chosen.
/// `on_progress` is called with the numbers done so far. Memory: about the matrix in fp16.
/// Fails: kCorrupt (NaN or Inf), kUnsupported (beyond fp16), kCancelled.
Result<EncodedWeight> EncodeWeight(const WeightRows& rows, const WeightForm& form, ThreadPool& pool,
                                   const RunControl& control,
                                   const std::function<void(int64_t numbers)>& on_progress);

}  // namespace cmforge::coreml
