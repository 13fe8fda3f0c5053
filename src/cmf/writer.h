// Writes a .cmf file in one pass: head space is reserved from the names, payloads follow one by one, then
// masks, vocab and index; header, directory and envelope go into the reserved space last. Peak memory is the
// caller's one payload. The file appears under its name only when it is complete, and its bytes depend on the
// inputs alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/atomic_file.h"
#include "cmf/directory.h"
#include "cmf/envelope.h"
#include "cmf/header.h"
#include "cmf/masks.h"

namespace cmforge::cmf {

/// Sections that follow the weights.
struct TailSections {
  const MaskCatalog* masks = nullptr;  // null or empty: no section
  Bytes tokenizer_json;                // verbatim; empty: no section
  bool sparse_index = false;           // write spec 7's deprecated index for the masks
};

struct WriteSummary {
  uint64_t bytes = 0;  // of the file
  int64_t tensors = 0;
  uint64_t dir_hash = 0;
};

/// The feature bits a file with these contents must carry (spec 1.1).
[[nodiscard]] uint32_t FeaturesOf(const Header& header, std::span<const DirectoryEntry> entries,
                                  bool has_masks);

/// The word for the dtype with the most bytes: what `quant_type` says.
[[nodiscard]] std::string QuantTypeOf(std::span<const DirectoryEntry> entries);

/// Whether a payload may stand in a directory under this dtype and shape. Fails: kUsage, or what its encoding
/// finds.
Result<void> CheckPayload(std::string_view name, DType dtype, std::span<const int64_t> shape, Bytes payload);

/// Where in the blob a tensor goes that follows byte `end`: on a page from 16 KiB on, else on 64 bytes.
[[nodiscard]] uint64_t PlaceTensor(uint64_t end, uint64_t nbytes);

/// How a write that was interrupted is taken up again.
struct Resumption {
  uint64_t key = 0;    // of everything that decides the bytes: what was left under another key is not used
  bool go_on = false;  // use what an earlier run has left; else begin anew
  bool keep = false;   // what was written stays when the writer is dropped without Commit
};

class Writer {
 public:
  /// `names`: every tensor that will be added, in any order (fewer may come). `header`: as it will be;
  /// quant_type, section hashes and the shard's dir_hashes are filled in, anything else may still grow a
  /// little (4 KiB). Fails: as AtomicFile::Create; kUsage for names that occur twice.
  static Result<Writer> Create(const std::filesystem::path& target, Header header,
                               std::span<const std::string> names);

  /// The same, with the payloads growing in TARGET.part and a manifest of them (manifest.h) in TARGET.manifest: both are
  /// left by a process that dies. Payloads that are taken over are read back and compared with their hashes, so that not
  /// even a power cut passes damage on. Fails: also kIo while another process writes the same file.
  static Result<Writer> Resume(const std::filesystem::path& target, Header header,
                               std::span<const std::string> names, const Resumption& resumption);

  /// The payload of that name, when it was taken over: it is not added again.
  [[nodiscard]] const DirectoryEntry* TakenOver(std::string_view name) const;

  /// `recorded_hash`: what the payload's hash must be, where the source knows it. Fails: kUsage (a name not declared or
  /// added twice, a shape or size the dtype does not allow), kCorrupt (another hash), kIo.
  Result<void> Add(std::string_view name, DType dtype, std::span<const int64_t> shape, Bytes payload,
                   std::optional<uint64_t> recorded_hash = std::nullopt);

  [[nodiscard]] Header& header() { return header_; }
  [[nodiscard]] std::span<const DirectoryEntry> entries() const { return entries_; }  // so far, in file order

  /// Everything but the rename: a set of shards is finished whole before any of it appears.
  Result<WriteSummary> Finish(const TailSections& tail);
  Result<void> Commit();

 private:
  Writer() = default;
  static Result<Writer> Prepare(const std::filesystem::path& target, Header header,
                                std::span<const std::string> names);
  Result<void> TakeOver(std::span<const DirectoryEntry> entries);

  AtomicFile file_;
  std::optional<AtomicFile> manifest_;
  std::unordered_map<std::string, size_t> taken_over_;  // into entries_
  std::string path_;                                    // for messages
  Header header_;
  std::unordered_set<std::string> expected_;  // declared, not added yet
  std::vector<DirectoryEntry> entries_;
  uint64_t data_off_ = 0;
  uint64_t data_end_ = 0;
  bool finished_ = false;
};

}  // namespace cmforge::cmf
