// Expert defragmentation (spec 11.1): a smaller file for one task, with only the experts that its statistics
// cover. Kept experts become a contiguous prefix in their old order, router rows and selection biases are
// gathered to match, payloads are copied as they are. The result answers as the full file does with the same
// experts switched off: the router's softmax is taken over the routable experts either way.
#pragma once

#include <filesystem>
#include <string>

#include "base/progress.h"
#include "cmf/expert_stats.h"
#include "cmf/file.h"

namespace cmforge {

struct ExpertDefragReport {
  cmf::ExpertSelection selection;
  uint64_t bytes_before = 0, bytes_after = 0;  // of the files
  int64_t remapped_masks = 0;
};

/// Statistics that an earlier defragmentation left in the provenance, numbered as the file's experts are now.
/// Fails: kNotFound (none there), kCorrupt.
Result<cmf::ExpertStats> EmbeddedExpertStats(const cmf::File& file);

/// `tool` names the program in the provenance. A set of shards becomes one file. Expert fields of masks are
/// renumbered. Fails: kUsage (as SelectExperts; nothing to drop; a mask that would lose its last expert in a
/// layer), kUnsupported (a standalone skill, one shard alone), kCorrupt (a router whose rows are not the
/// experts), kIo, kCancelled; then no file appears.
Result<ExpertDefragReport> DefragExperts(const cmf::File& file, const cmf::ExpertStats& stats, double cover,
                                         const std::string& tool, const std::filesystem::path& target,
                                         const RunControl& control);

}  // namespace cmforge
