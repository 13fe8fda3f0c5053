// Channel statistics in a file: safetensors, one float32 vector [columns] for each weight name, one [rows]
// named WEIGHT.rows for the head, and the number of tokens in the metadata:
//
//   "__metadata__": {"format": "cmforge-channel-stats", "tokens": "4096"}
#pragma once

#include <filesystem>

#include "base/bytes.h"
#include "base/result.h"
#include "quant/channel_stats.h"

namespace cmforge {

Result<void> WriteChannelStats(const std::filesystem::path& path, const ChannelStats& stats);

/// Whether a file begins as such a file does; texts never do.
[[nodiscard]] bool LooksLikeChannelStats(Bytes file);

/// Fails: as ParseSafetensors; kCorrupt for another format, other types and shapes, numbers that are negative
/// or not finite (tensor named).
Result<ChannelStats> ReadChannelStats(const std::filesystem::path& path);

}  // namespace cmforge
