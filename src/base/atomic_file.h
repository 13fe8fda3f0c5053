// An output file that appears under its name only when it is complete: written beside the target
// under a temporary name, synced, then renamed. Dropped without Commit(), it leaves nothing behind.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"

namespace cmforge {

class AtomicFile {
 public:
  AtomicFile() = default;
  AtomicFile(AtomicFile&&) noexcept;
  AtomicFile& operator=(AtomicFile&&) noexcept;
  ~AtomicFile();

  /// Creates an unnamed file in the target's folder, or TARGET.tmp-PID-N where that is not possible. Follows a link at `target`, so the link stays.
  /// Fails: kNotFound (no such folder), kIo (not writable), kUsage (target is a folder).
  static Result<AtomicFile> Create(const std::filesystem::path& target);

  /// The same for work that may be taken up again: the bytes grow in TARGET + `suffix`, which a killed process leaves
  /// behind, and with `keep` whoever drops the object without Commit() or Discard(). What an earlier run left is kept:
  /// size() says how much, CutTo drops what is not wanted. A file under that name which is not empty and which `is_ours`
  /// does not know by its content is somebody else's and left alone. Fails: as Create; kUsage for another's file; kIo
  /// while another process writes it.
  static Result<AtomicFile> TakeUp(const std::filesystem::path& target, std::string_view suffix, bool keep,
                                   const std::function<bool(const AtomicFile&)>& is_ours);

  /// Whether the file begins with `text`, or with as much of it as it has.
  [[nodiscard]] bool BeginsWith(std::string_view text) const;

  Result<void> Write(Bytes bytes);                     // at the end
  Result<void> WriteAt(uint64_t offset, Bytes bytes);  // inside what was written, or beyond it
  Result<void> PadTo(uint64_t offset);                 // zeros up to `offset`
  Result<void> CutTo(uint64_t size);                   // forgets what was written from there on
  [[nodiscard]] uint64_t size() const { return size_; }

  /// Bytes already written, read back. Fails: kIo.
  Result<void> ReadAt(uint64_t offset, std::span<std::byte> out) const;

  /// fsync, rename, fsync of the folder. The object is empty afterwards.
  Result<void> Commit();

  /// Removes what was written. The object is empty afterwards.
  void Discard();

 private:
  Error WriteError(int error) const;

  std::filesystem::path target_;
  std::filesystem::path temporary_;
  int fd_ = -1;
  uint64_t size_ = 0;
  bool is_unnamed_ = false;
  bool is_kept_ = false;  // when dropped
};

/// The whole of a small output file at once, atomically.
Result<void> WriteFileAtomically(const std::filesystem::path& target, Bytes bytes);

}  // namespace cmforge
