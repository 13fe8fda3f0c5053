// A whole file as bytes: mapped read-only, or read into memory where mapping is unwanted.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "base/bytes.h"
#include "base/result.h"

namespace cmforge {

class MappedFile {
 public:
  enum class Mode {
    kMap,   // pages come on demand; a file that shrinks under us raises SIGBUS on access
    kRead,  // private copy in memory (--no-mmap)
  };

  MappedFile() = default;
  MappedFile(MappedFile&&) noexcept;
  MappedFile& operator=(MappedFile&&) noexcept;
  ~MappedFile();

  /// Fails: kNotFound (no such file, a dangling link named with its target), kUsage (a folder, pipe or device; never
  /// waits for one), kIo (not readable). An empty file is fine and has no bytes.
  static Result<MappedFile> Open(const std::filesystem::path& path, Mode mode = Mode::kMap);

  [[nodiscard]] Bytes bytes() const { return bytes_; }
  [[nodiscard]] const std::string& path() const { return path_; }

  /// Copies bytes out by reading instead of touching the mapping: for one pass over much data this saves the page
  /// faults, which can cost more than the data. Fails: kIo; a range beyond the end, or a file that became shorter.
  Result<void> ReadAt(uint64_t offset, std::span<std::byte> out) const;
  /// Asks the kernel to bring `range` into memory soon.
  void Prefetch(ByteRange range) const;
  /// Tells the kernel that `range` will be read from front to back soon, or (false) at random.
  void AdviseSequential(ByteRange range, bool sequential = true) const;
  /// Lets the kernel drop the pages of `range` from this process; they come back on access.
  void Release(ByteRange range) const;

 private:
  std::string path_;
  Bytes bytes_;
  int fd_ = -1;  // open while mapped
};

/// A whole (small) file as text. Fails: as MappedFile::Open, and kLimit above `limit_bytes`.
Result<std::string> ReadTextFile(const std::filesystem::path& path, uint64_t limit_bytes = uint64_t{1} << 30);

}  // namespace cmforge
