// The sparse index (spec 7): per task and layer the FFN groups of 32 and the heads that have any active bit.
// Deprecated by the spec: read, shown and compared with the masks, never used to compute; written on request.
//
//   [n_entries u32][0 u32] then entries at multiples of 4:
//   [task_id u32][layer u32][n_groups u32][n_heads u32][u16 x n_groups][u8 x n_heads][zeros to a multiple of
//   4]
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "cmf/masks.h"

namespace cmforge::cmf {

struct SparseIndexEntry {
  uint32_t task_id = 0;
  uint32_t layer = 0;
  std::vector<uint16_t> groups;  // ascending
  std::vector<uint8_t> heads;    // ascending

  bool operator==(const SparseIndexEntry&) const = default;
};

/// Fails: kCorrupt "Parse" when an entry leaves the section.
Result<std::vector<SparseIndexEntry>> ReadSparseIndex(Bytes section);

/// One entry for every task and layer whose gate is open, physical layers only, tasks in catalog order.
/// A layer of a looped model has a group when any of its visits has.
/// Fails: kUsage when the masks have ids beyond u16 groups or u8 heads.
Result<std::vector<SparseIndexEntry>> BuildSparseIndex(const MaskCatalog& catalog,
                                                       const MaskGeometry& geometry);

[[nodiscard]] std::vector<std::byte> PackSparseIndex(std::span<const SparseIndexEntry> entries);

/// What in the index contradicts the masks, one line each; empty = it agrees.
[[nodiscard]] std::vector<std::string> CompareIndexWithMasks(std::span<const SparseIndexEntry> entries,
                                                             const MaskCatalog& catalog,
                                                             const MaskGeometry& geometry);

}  // namespace cmforge::cmf
