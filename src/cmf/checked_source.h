// A .cmf file whose payloads are compared with their recorded hashes as they are read: for programs that write elsewhere what
// they read, so that damage is not passed on.
#pragma once

#include <atomic>
#include <vector>

#include "cmf/file.h"

namespace cmforge::cmf {

/// `payload` is the bytes of `tensor`, which must come from `file`. Fails: kCorrupt naming file and tensor.
Result<void> CheckPayload(const File& file, const TensorInfo& tensor, Bytes payload);

class CheckedSource final : public TensorSource {
 public:
  /// Checks the sections too. `file` must outlive the result. Fails: kCorrupt naming file and section.
  static Result<CheckedSource> Of(const File& file);

  [[nodiscard]] std::span<const TensorInfo> tensors() const override { return file_->tensors(); }
  [[nodiscard]] const TensorInfo* Find(std::string_view name) const override { return file_->Find(name); }
  /// As File; each payload is hashed until it was found right once. Fails also: as CheckPayload.
  Result<TensorView> Read(std::string_view name) const override;
  [[nodiscard]] std::string_view path() const override { return file_->path(); }

 private:
  explicit CheckedSource(const File& file) : file_(&file), is_right_(file.tensors().size()) {}

  const File* file_;
  mutable std::vector<std::atomic<bool>> is_right_;  // parallel to the file's tensors
};

}  // namespace cmforge::cmf
