// Defragmentation of a .cmf file (spec 11): the neurons that a task's mask switches off leave the file, and the mask goes
// with them; heads and layers that it switches off are baked in as zeros. What stays is an ordinary, smaller model for
// that one task.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/thread_pool.h"
#include "cmf/file.h"
#include "convert/ffn_keep.h"

namespace cmforge {

struct DefragReport {
  FfnKeepSummary neurons;
  std::vector<std::string> wider;  // tensors that had to leave their encoding for q8_2f
  uint64_t bytes_before = 0, bytes_after = 0;
};

/// Cut tensors keep their encoding where the new shape allows it, else they become q8_2f; all others are copied. `tool`
/// names the program in the provenance. Skills lose the same neurons, and their ties to tasks.
/// Fails: kNotFound (no such task), kUsage (nothing to cut), kUnsupported (as KeepFromMask; a standalone skill, one shard
/// alone), kCorrupt (damaged payloads), kIo, kCancelled; then no file appears.
Result<DefragReport> DefragFile(const cmf::File& file, const std::string& task, const std::string& tool,
                                const std::filesystem::path& target, ThreadPool& pool,
                                const RunControl& run = {});

/// The provenance entry of spec 11, for files cut by a mask and for conversions with --defrag.
[[nodiscard]] std::string DefragProvenance(const FfnKeepSummary& summary, const std::string& source_skill);

}  // namespace cmforge
