// The weights of one model being written: each is rounded to fp16, or compressed as the part is told, and put
// into the weight file when a graph first asks for it, and found again by its name when the other function
// does. At most one tensor of the source is in memory.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/thread_pool.h"
#include "coreml/graphs/weight_form.h"
#include "coreml/graphs/weight_journal.h"
#include "coreml/graphs/weight_rows.h"
#include "mil/blob_file.h"
#include "mil/value.h"
#include "quant/channel_stats.h"

namespace cmforge::coreml {

/// What a weight is for, which decides whether it may be compressed.
enum class WeightRole : uint8_t {
  kPlain,   // norms, convolution taps, rope tables, routers: always fp16
  kMatrix,  // of a linear operator
  kLookup,  // a table whose rows are looked up: no activations meet its columns
};

/// Matrices of no more numbers than this stay fp16: nothing would be saved.
inline constexpr int64_t kMostNumbersOfSmall = 2048;

/// How a part's matrices are to be stored. Everything pointed to must outlive the store.
struct CompressionPlan {
  WeightForm form;
  std::map<std::string, WeightForm> exceptions;  // by weight name
  WeightJournal* journal = nullptr;              // needed when any form is compressed
  const ChannelStats* statistics = nullptr;      // weigh errors of matrices; null: all columns alike
};

/// A constant as the program has it: `op` applied to `parameters`.
struct StoredWeight {
  std::string op = "const";                                    // or the operation that decompresses
  std::vector<std::pair<std::string, mil::Value>> parameters;  // of const: val
  std::string suffix;                                          // of its name in the program
};

/// What was compressed, and what it cost.
struct CompressionReport {
  int64_t weights = 0, numbers = 0;
  uint64_t bytes = 0;            // of tables and codes
  double error = 0, energy = 0;  // sums over the weights, as in EncodedWeight
  std::vector<std::string>
      uneven;  // weights whose group had to be smaller, "NAME: 9497 channels in groups of 1"
};

class WeightStore {
 public:
  /// All must outlive the store. Without `blobs` nothing is written: a graph is only walked through, and
  /// every matrix that could be compressed goes to `on_matrix`.
  WeightStore(const TensorSource& source, mil::BlobWriter* blobs, const CompressionPlan& plan,
              ThreadPool& pool, const RunControl& control)
      : source_(source), blobs_(blobs), plan_(plan), pool_(pool), control_(control) {}

  [[nodiscard]] const TensorSource& source() const { return source_; }

  /// A tensor of the source, with the statistics there are of it. Fails: as TensorRows; kUsage for statistics
  /// of another width.
  Result<WeightRows> Rows(const std::string& name) const;

  /// The constant of that name and shape, written when it is new; `make` is asked for only then. Fewer than
  /// 10 numbers stay in the program. Fails: kCorrupt (NaN or Inf in the source), kUnsupported (numbers beyond
  /// fp16: the largest named), kUsage (no statistics where there should be), kIo, kCancelled; what `make`
  /// gives.
  Result<StoredWeight> Add(const std::string& name, const Shape& shape, WeightRole role,
                           const std::function<Result<WeightRows>()>& make);

  /// Called with the numbers written so far after every block.
  std::function<void(int64_t numbers)> on_progress;
  std::function<Result<void>(const std::string& name, const WeightRows& rows)> on_matrix;

  [[nodiscard]] const CompressionReport& report() const { return report_; }

  /// From the journal, or compressed now and added to it. Progress is reported on top of what was written.
  Result<EncodedWeight> Compress(const std::string& name, const WeightRows& rows, const WeightForm& form);

 private:
  Result<StoredWeight> AddHalves(const Shape& shape, const WeightRows& rows);
  Result<StoredWeight> AddCompressed(const std::string& name, const Shape& shape, const WeightRows& rows,
                                     const WeightForm& form);
  [[nodiscard]] const WeightForm& FormOf(const std::string& name) const;
  void Progress(int64_t more) const {
    if (on_progress) on_progress(written_ + more);
  }

  const TensorSource& source_;
  mil::BlobWriter* const blobs_;
  const CompressionPlan& plan_;
  ThreadPool& pool_;
  const RunControl& control_;
  std::map<std::string, StoredWeight> known_;
  CompressionReport report_;
  int64_t written_ = 0;
};

}  // namespace cmforge::coreml
