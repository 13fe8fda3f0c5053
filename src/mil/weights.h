// The weight files of one model, by the names its program uses: opened when first asked for, kept mapped.
#pragma once

#include <memory>
#include <mutex>

#include "mil/blob_file.h"
#include "mil/value.h"

namespace cmforge::mil {

/// Any thread may read; the bytes handed out live as long as the object.
class Weights {
 public:
  /// `model_path` is the folder that "@model_path" stands for. Opens nothing yet.
  explicit Weights(std::filesystem::path model_path, MappedFile::Mode mode = MappedFile::Mode::kMap)
      : model_path_(std::move(model_path)), mode_(mode) {}

  /// The bytes of a tensor value, immediate or in a file (sub-byte types packed).
  /// Fails: kCorrupt (a name that leaves the folder, what BlobFile says), kNotFound (no such file).
  Result<Bytes> Data(const Value& value) const;

  /// `value` itself when it is immediate, else a copy with its contents; for small integer constants only.
  /// Fails: as Data, and kLimit above `max_bytes`.
  Result<Value> Immediate(const Value& value, uint64_t max_bytes = 1 << 20) const;

  /// The file of that name, opened. Fails: as Data.
  Result<const BlobFile*> File(const std::string& name) const;

 private:
  std::filesystem::path model_path_;
  MappedFile::Mode mode_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::unique_ptr<BlobFile>> files_;
};

}  // namespace cmforge::mil
