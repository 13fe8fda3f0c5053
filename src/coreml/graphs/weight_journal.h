// Compressed weights on disk beside the package that is being written, so that an interrupted conversion does
// not compress them again, and one that weighs two widths against each other does so once.
//
//   [magic 8 bytes][SHA-256 of the identity]
//   record: [mark u32][bytes of the key u32][bytes of the tables u64][of the codes u64][error f64][energy
// f64]
//           [count i64][SHA-256 of the record before it and all behind it][key][tables][codes]
//
// A torn record at the end is cut off; one that does not have its hash is not used.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "base/atomic_file.h"
#include "coreml/graphs/weight_encoder.h"

namespace cmforge::coreml {

class WeightJournal {
 public:
  /// `identity` stands for everything that decides the weights besides their keys. With `resume` what a
  /// journal of the same identity holds is taken over, and the file stays when the object is dropped;
  /// without, it begins empty. A killed process leaves it either way. Fails: as AtomicFile::TakeUp.
  static Result<WeightJournal> Open(const std::filesystem::path& path, std::string_view identity,
                                    bool resume);

  /// What was stored under that key, or nothing. Fails: kIo.
  Result<std::optional<EncodedWeight>> Find(const std::string& key) const;
  Result<void> Add(const std::string& key, const EncodedWeight& weight);

  /// Weights that an earlier run had compressed and this one has asked for.
  [[nodiscard]] int64_t resumed() const { return resumed_; }

  /// Removes the file: the package is complete.
  void Discard() { file_.Discard(); }

 private:
  struct Record {
    uint64_t offset = 0, size = 0;
    bool is_old = false;  // of an earlier run
  };
  Result<void> TakeOver();

  AtomicFile file_;
  std::map<std::string, Record> records_;
  mutable int64_t resumed_ = 0;
};

}  // namespace cmforge::coreml
