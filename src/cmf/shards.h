// Names of shards (spec 10): `{base}-{no:05}-of-{count:05}.cmf`, and how tensors are dealt out to them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/tensor_source.h"

namespace cmforge::cmf {

inline constexpr int64_t kMaxShards = 99999;

struct ShardName {
  std::string base;  // "model" of "model-00002-of-00005.cmf"
  int64_t no = 1, count = 1;
};

/// The parts of a shard's file name (no folder), or nothing for an ordinary name.
[[nodiscard]] std::optional<ShardName> ParseShardName(std::string_view filename);
[[nodiscard]] std::string FormatShardName(std::string_view base, int64_t no, int64_t count);

/// The path of shard `no` beside `any_shard` (which must have a shard's name).
[[nodiscard]] std::filesystem::path SiblingPath(const std::filesystem::path& any_shard, int64_t no);

/// Names in canonical order: embeddings, model.norm, lm_head, layers by index and name, model.mtp.*, the rest
/// by name.
[[nodiscard]] std::vector<std::string> CanonicalOrder(std::span<const TensorInfo> tensors);

/// Greedy split of tensors in canonical order: a shard is closed when the next tensor, weighed as 4 bytes an
/// element, would pass `max_gb` * 1e9 and the shard is not empty. Fails: kUsage (max_gb <= 0), kLimit (more
/// than 99999).
Result<std::vector<std::vector<std::string>>> PlanShards(std::span<const TensorInfo> tensors, double max_gb);

}  // namespace cmforge::cmf
