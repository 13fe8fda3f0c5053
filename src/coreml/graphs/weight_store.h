// The weights of one model being written: each is rounded to fp16 and streamed into the weight file when a
// graph first asks for it, and found again by its name when the other function does. At most one tensor of the
// source and one block of rows are in memory.
#pragma once

#include <map>
#include <string>

#include "base/progress.h"
#include "base/thread_pool.h"
#include "coreml/graphs/weight_rows.h"
#include "mil/blob_file.h"
#include "mil/value.h"

namespace cmforge::coreml {

class WeightStore {
 public:
  /// All four must outlive the store.
  WeightStore(const TensorSource& source, mil::BlobWriter& blobs, ThreadPool& pool, const RunControl& control)
      : source_(source), blobs_(blobs), pool_(pool), control_(control) {}

  [[nodiscard]] const TensorSource& source() const { return source_; }

  /// The fp16 constant of that name and shape, written when it is new; `rows` is asked for only then. Fewer
  /// than 10 numbers stay in the program. Fails: kCorrupt (NaN or Inf in the source), kUnsupported (numbers
  /// beyond fp16: the largest named), kIo, kCancelled; what `rows` gives.
  Result<mil::Value> Add(const std::string& name, const Shape& shape,
                         const std::function<Result<WeightRows>()>& rows);

  /// Called with the numbers written so far after every block.
  std::function<void(int64_t weights)> on_progress;

 private:
  const TensorSource& source_;
  mil::BlobWriter& blobs_;
  ThreadPool& pool_;
  const RunControl& control_;
  std::map<std::string, mil::Value> known_;
  int64_t written_ = 0;
};

}  // namespace cmforge::coreml
