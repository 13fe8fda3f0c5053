// Writes a .cmf file in one pass: head space is reserved from the names, payloads follow one by one, then
// masks, vocab and index; header, directory and envelope go into the reserved space last. Peak memory is the
// caller's one payload. The file appears under its name only when it is complete, and its bytes depend on the
// inputs alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
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

class Writer {
 public:
  /// `names`: every tensor that will be added, in any order (fewer may come). `header`: as it will be;
  /// quant_type, section hashes and the shard's dir_hashes are filled in, anything else may still grow a
  /// little (4 KiB). Fails: as AtomicFile::Create; kUsage for names that occur twice.
  static Result<Writer> Create(const std::filesystem::path& target, Header header,
                               std::span<const std::string> names);

  /// Fails: kUsage (a name not declared or added twice, a shape or size the dtype does not allow), kIo.
  Result<void> Add(std::string_view name, DType dtype, std::span<const int64_t> shape, Bytes payload);

  [[nodiscard]] Header& header() { return header_; }

  /// Everything but the rename: a set of shards is finished whole before any of it appears.
  Result<WriteSummary> Finish(const TailSections& tail);
  Result<void> Commit();

 private:
  Writer() = default;

  AtomicFile file_;
  std::string path_;  // for messages
  Header header_;
  std::unordered_set<std::string> expected_;  // declared, not added yet
  std::vector<DirectoryEntry> entries_;
  uint64_t data_off_ = 0;
  uint64_t data_end_ = 0;
  bool finished_ = false;
};

}  // namespace cmforge::cmf
