// Writing whole files from what another source holds: compaction, sharding, adding or dropping masks and
// skills are each "the contents of that file, with one thing changed".
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/progress.h"
#include "cmf/file.h"
#include "cmf/writer.h"

namespace cmforge::cmf {

struct Contents {
  Header header;                          // unknown keys of its document are kept
  const TensorSource* tensors = nullptr;  // CMF dtypes only; must outlive the write
  std::vector<std::string> names;         // which of them, in which order
  MaskCatalog masks;
  Bytes tokenizer_json;
  bool sparse_index = false;
  // The file that `tensors` is, or that it passes payloads on from: what comes out of it unchanged is compared with the
  // hash it has there, so that damage is not passed on under a fresh one. May be null.
  const File* origin = nullptr;
};

/// All of `file`, which must outlive the result, in canonical order, so that what a file went through (skills added and
/// removed, shards) does not show in what is written from it; a set of shards becomes one (its `shard` block is dropped).
/// The old sparse index is kept only as a wish for a fresh one.
[[nodiscard]] Contents ContentsOf(const File& file);

/// One file. `target` may be the very file that `tensors` reads from.
/// Fails: kCorrupt naming the section or tensor of `origin` whose bytes were changed; as Writer.
Result<WriteSummary> WriteCmf(const std::filesystem::path& target, const Contents& contents,
                              const RunControl& run = {});

/// `{prefix}-00001-of-0000N.cmf`, greedily filled; one shard only: still named and marked as a set of one.
/// Returns the paths. All shards are complete before the first of them appears.
Result<std::vector<std::filesystem::path>> WriteShards(const std::filesystem::path& prefix,
                                                       const Contents& contents, double max_gb,
                                                       const RunControl& run = {});

}  // namespace cmforge::cmf
