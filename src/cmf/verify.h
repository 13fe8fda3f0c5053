// Checks the whole hash chain of a .cmf file or shard set (spec 8.1): header and directory against the
// envelope, masks, vocab and index against the header, every tensor against its directory record, payload
// structure, the sparse index against the masks, and the detached signature (spec 8.2) where one lies beside
// the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/thread_pool.h"
#include "cmf/file.h"

namespace cmforge::cmf {

struct Problem {
  std::string where;  // "header", "tensor 'model.norm.weight'", "signature"; with the file's name in a set
  std::string what;
};

enum class SignatureState : uint8_t { kAbsent, kValid, kInvalid };

struct VerifyReport {
  std::vector<std::string> files;
  int64_t sections = 0, tensors = 0;
  uint64_t bytes = 0;  // hashed
  SignatureState signature = SignatureState::kAbsent;
  std::vector<Problem> problems;  // in file order
  std::vector<Problem>
      notes;  // what is not wrong, but worth saying: no hash recorded, not run by this program
  // One shard of several, when it alone was checked.
  struct LoneShard {
    int64_t no = 1, count = 1;
  };
  std::optional<LoneShard> lone_shard;

  [[nodiscard]] bool ok() const { return problems.empty(); }
};

struct VerifyOptions {
  bool check_signature = true;
  std::string public_key;  // 64 hex digits: a signature by this key is demanded of every file
};

/// Reads everything once, ahead and in parallel. Fails only when a file cannot be opened at all, or
/// kCancelled. One shard whose siblings are all elsewhere verifies alone, and the report says so; if some are there,
/// the missing ones are problems. A name that contradicts the header is one too.
Result<VerifyReport> Verify(const std::filesystem::path& path, const VerifyOptions& options, ThreadPool& pool,
                            const RunControl& run = {});

/// The hash chain of an open file, without signatures.
Result<VerifyReport> Verify(const File& file, ThreadPool& pool, const RunControl& run = {});

/// The hashes of header, directory, masks, vocab and index alone: what a program checks before it writes them elsewhere.
/// Fails: kCorrupt naming file and section.
Result<void> CheckSections(const Part& part);

/// Names of its sections for which no hash is recorded, so that nothing vouches for their bytes.
[[nodiscard]] std::vector<std::string_view> SectionsWithoutHash(const Part& part);

[[nodiscard]] std::string_view SignatureStateName(SignatureState state);  // "absent", "valid", "invalid"

}  // namespace cmforge::cmf
