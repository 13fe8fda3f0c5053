// Weight files ("blob storage", version 2), read and written.
//
//   header  [count u32][version u32 = 2][zeros to 64]
//   entry   [mark u32][type u32][size u64][data offset u64][padding bits u64][zeros to 64]   at a multiple of
//   64 data    at a multiple of 64, right behind its entry; nothing behind the last
//
// A program names an entry by the offset of its header. Sub-byte elements are packed (packed_bits.h).
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "base/atomic_file.h"
#include "base/mapped_file.h"
#include "mil/sha256.h"
#include "mil/types.h"

namespace cmforge::mil {

inline constexpr uint32_t kBlobMark = 0xDEADBEEF;
inline constexpr uint64_t kBlobAlignment = 64;

/// Type codes of the file; they differ from the numbers of the program.
[[nodiscard]] std::optional<uint32_t> BlobCodeOf(DataType type);
[[nodiscard]] std::optional<DataType> TypeOfBlobCode(uint32_t code);

struct BlobEntry {
  uint64_t offset = 0;  // of the header
  DataType dtype = DataType::kFloat16;
  uint64_t padding_bits = 0;
  Bytes data;

  /// Whole elements in `data`.
  [[nodiscard]] uint64_t count() const;
};

/// An open weight file; immutable, any thread may read it.
class BlobFile {
 public:
  /// Fails: as MappedFile::Open, and kCorrupt (shorter than its header, another version).
  static Result<BlobFile> Open(const std::filesystem::path& path,
                               MappedFile::Mode mode = MappedFile::Mode::kMap);
  /// `bytes` must outlive the result.
  static Result<BlobFile> FromBytes(Bytes bytes);

  [[nodiscard]] uint32_t declared_entries() const;
  [[nodiscard]] const std::string& path() const { return file_.path(); }
  [[nodiscard]] Bytes bytes() const { return bytes_; }

  /// The entry whose header lies at `offset`. Fails: kCorrupt for a wrong mark or type, or data outside the
  /// file.
  Result<BlobEntry> Entry(uint64_t offset) const;
  /// The bytes of a tensor of that type. Fails: as Entry, and kCorrupt where type or size differ.
  Result<Bytes> Tensor(uint64_t offset, const TensorType& type) const;
  /// All entries, found from the first one on. Fails: kCorrupt when fewer are there than the header declares.
  Result<std::vector<BlobEntry>> Entries() const;

 private:
  MappedFile file_;
  Bytes bytes_;
};

/// Writes a weight file front to back, in memory of one buffer the caller hands over at a time. Equal
/// contents of one type are stored once.
class BlobWriter {
 public:
  /// Fails: as AtomicFile::Create.
  static Result<BlobWriter> Create(const std::filesystem::path& path);

  /// A whole tensor. Returns the offset a BlobRef takes. Fails: as Begin, Append and End.
  Result<uint64_t> Add(DataType dtype, int64_t count, Bytes bytes);

  /// The same in pieces: sub-byte types may be cut anywhere between bytes.
  /// Fails: kUsage (a type the file has no code for, a wrong number of bytes), kIo.
  Result<void> Begin(DataType dtype, int64_t count);
  Result<void> Append(Bytes bytes);
  Result<uint64_t> End();

  [[nodiscard]] uint64_t entries() const { return entries_; }
  /// Completes the header and gives the file its name. Fails: kIo.
  Result<void> Commit();

 private:
  AtomicFile file_;
  uint32_t entries_ = 0;
  std::map<Sha256Digest, uint64_t> known_;  // of type and contents -> offset
  // The entry being written.
  uint64_t before_ = 0;  // size of the file without it
  uint64_t offset_ = 0;
  uint64_t left_ = 0;
  Sha256 hash_;
};

}  // namespace cmforge::mil
