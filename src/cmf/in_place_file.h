// A .cmf file that is changed where it lies: positional writes in an order that the disk keeps, under a lock.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/bytes.h"
#include "base/result.h"

namespace cmforge::cmf {

/// Where changes in place go: the file, or a recorder in tests.
class InPlaceSink {
 public:
  virtual ~InPlaceSink() = default;
  virtual Result<void> WriteAt(uint64_t offset, Bytes bytes) = 0;
  virtual Result<void> Sync() = 0;  // everything written so far is on disk before anything written later
};

class InPlaceFile final : public InPlaceSink {
 public:
  /// Opens and locks, so that two changes cannot mix. Fails: kNotFound; kIo (read-only, locked by another).
  static Result<InPlaceFile> Open(const std::filesystem::path& path);
  InPlaceFile(InPlaceFile&& other) noexcept;
  InPlaceFile& operator=(InPlaceFile&&) = delete;
  ~InPlaceFile() override;

  Result<void> WriteAt(uint64_t offset, Bytes bytes) override;
  Result<void> Sync() override;

  /// Whether a write of the envelope was begun: from then on the file may be the new one.
  [[nodiscard]] bool envelope_begun() const { return envelope_begun_; }
  /// Gives a dead tail back to the disk; never grows the file.
  void CutTo(uint64_t size);

 private:
  explicit InPlaceFile(std::string path);
  [[nodiscard]] Error WriteError(int error) const;

  std::string path_;
  int fd_ = -1;
  bool envelope_begun_ = false;
};

}  // namespace cmforge::cmf
