// Append-only growth (spec 9): new tensors, directory and header go to the tail of an existing file, and the
// envelope is updated in place as the very last write. Bytes and offsets of what was there never change, so
// processes that have the file mapped go on; killed at any byte, the file is the old one or the new one.
//
//   write order: tensors, directory, header, [masks, [index]], fsync, envelope (one write of 128 bytes),
//   fsync
//
// New tensor bytes extend data_len, so the data section then covers older dead sections and a live vocab
// section; readers navigate through the envelope and the directory, never by assuming that sections do not
// overlap.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/progress.h"
#include "cmf/file.h"
#include "cmf/in_place_file.h"

namespace cmforge::cmf {

struct AppendEdits {
  std::optional<Header> header;           // default: as it is
  const TensorSource* tensors = nullptr;  // where new tensors come from
  std::vector<std::string> add;     // their names; a name that exists is replaced (its old bytes become dead)
  std::vector<std::string> remove;  // directory entries to drop
  std::optional<MaskCatalog> masks;  // replaces the catalog (empty: no masks section any more)
};

/// Emits the write sequence that turns `part` (one file; of a set: shard 1) into the edited file.
Result<void> EmitAppend(const Part& part, const AppendEdits& edits, InPlaceSink& sink,
                        const RunControl& run = {});

/// Applies the edits to the file in place (a set of shards: to shard 1). Takes a lock, so that two appends
/// cannot mix. Fails: as File::Open; kIo (read-only, disk full: the file stays as it was, the torn tail is
/// cut off); kUsage (an edit that does not fit).
Result<void> Append(const std::filesystem::path& path, const AppendEdits& edits, const RunControl& run = {});

}  // namespace cmforge::cmf
