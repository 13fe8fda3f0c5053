// Standalone skills (spec 9.1): what a specialist has that its base has not, in a file of its own that is bound
// to the base by the hash of its tensor directory. Applying one gives back the specialist, tensor for tensor and
// mask for mask.
#pragma once

#include <filesystem>
#include <string>

#include "base/progress.h"
#include "cmf/file.h"
#include "cmf/writer.h"

namespace cmforge::cmf {

struct ExportedSkill {
  std::string id, name;
  std::string cut_from;  // for the provenance: the specialist's file name
};

/// Writes the tensors of `specialist` whose bytes, dtype or shape differ from those of `base`, and all of its
/// masks. Fails: kUsage (an id that is none; another architecture, number of layers or hidden size; nothing
/// differs; a tensor of the base that the specialist lacks, since a skill cannot take one away; a file that is
/// itself a standalone skill), kUnsupported (shards: unshard first).
Result<WriteSummary> ExportSkill(const File& specialist, const File& base, const ExportedSkill& skill,
                                 const std::filesystem::path& target, const RunControl& run = {});

/// Writes `base` with the tensors and masks of `skill` over it: tensors in the base's order, new ones behind them.
/// Fails: kUsage (`skill` is no standalone skill, or `base` is one; the base is another file than the one it was cut
/// against: both hashes named; `force` makes that a warning), kCorrupt (an id that could be mistaken for a path),
/// kUnsupported (shards).
Result<WriteSummary> ApplySkill(const File& base, const File& skill, bool force,
                                const std::filesystem::path& target, const RunControl& run = {});

}  // namespace cmforge::cmf
