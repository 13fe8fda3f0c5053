// The sparse index: reading, deriving it from the masks, comparing the two.
#include "cmf/sparse_index.h"

#include <algorithm>
#include <map>

namespace cmforge::cmf {
namespace {

constexpr size_t kCounts = 8;  // [n_entries u32][0 u32]
constexpr size_t kEntryHead = 16;
constexpr int64_t kGroup = 32;

}  // namespace

Result<std::vector<SparseIndexEntry>> ReadSparseIndex(Bytes section) {
  const auto parse_error = [](std::string fact) {
    return Fail(ErrorKind::kCorrupt, fmt::format("index: {}", fact), "Parse");
  };
  if (section.size() < kCounts)
    return parse_error(fmt::format("{} bytes, the counts alone need {}", section.size(), kCounts));
  const auto count = LoadLe<uint32_t>(section.data());
  if (count > (section.size() - kCounts) / kEntryHead) {
    return parse_error(fmt::format("{} entries do not fit into {} bytes", count, section.size()));
  }
  std::vector<SparseIndexEntry> entries(count);
  size_t at = kCounts;
  for (uint32_t i = 0; i < count; ++i) {
    if (section.size() - at < kEntryHead) return parse_error(fmt::format("entry {} leaves the section", i));
    SparseIndexEntry& entry = entries[i];
    entry.task_id = LoadLe<uint32_t>(section.data() + at);
    entry.layer = LoadLe<uint32_t>(section.data() + at + 4);
    const uint64_t groups = LoadLe<uint32_t>(section.data() + at + 8);
    const uint64_t heads = LoadLe<uint32_t>(section.data() + at + 12);
    at += kEntryHead;
    if (2 * groups + heads > section.size() - at)
      return parse_error(fmt::format("entry {} leaves the section", i));
    entry.groups.resize(groups);
    for (uint64_t g = 0; g < groups; ++g) entry.groups[g] = LoadLe<uint16_t>(section.data() + at + 2 * g);
    at += 2 * groups;
    entry.heads.resize(heads);
    std::transform(section.begin() + static_cast<std::ptrdiff_t>(at),
                   section.begin() + static_cast<std::ptrdiff_t>(at + heads), entry.heads.begin(),
                   [](std::byte b) { return static_cast<uint8_t>(b); });
    at = std::min<size_t>(AlignUp(at + heads, 4), section.size());  // the last padding may be missing
  }
  return entries;
}

Result<std::vector<SparseIndexEntry>> BuildSparseIndex(const MaskCatalog& catalog,
                                                       const MaskGeometry& geometry) {
  if (geometry.ffn_width > int64_t{65536} * kGroup || geometry.heads > 256) {
    return Fail(
        ErrorKind::kUsage,
        fmt::format(
            "index: {} neurons or {} heads do not fit its 16-bit groups and 8-bit heads: leave it out",
            geometry.ffn_width, geometry.heads));
  }
  std::vector<SparseIndexEntry> entries;
  for (const TaskMask& mask : catalog.masks) {
    for (int64_t layer = 0; layer < geometry.layers; ++layer) {
      const ActiveSet& bits = mask.bits;
      if (!bits.layer_gates.empty() && !TestBit(bits.layer_gates, layer)) continue;
      SparseIndexEntry entry{mask.task_id, static_cast<uint32_t>(layer), {}, {}};
      for (int64_t group = 0; group * kGroup < geometry.ffn_width; ++group) {
        bool is_active = bits.ffn.empty();
        for (size_t row = static_cast<size_t>(layer); row < bits.ffn.size();
             row += static_cast<size_t>(geometry.layers)) {
          for (int64_t j = group * kGroup; j < std::min((group + 1) * kGroup, geometry.ffn_width); ++j) {
            is_active = is_active || TestBit(bits.ffn[row], j);
          }
        }
        if (is_active) entry.groups.push_back(static_cast<uint16_t>(group));
      }
      for (int64_t head = 0; head < geometry.heads; ++head) {
        if (bits.heads.empty() || TestBit(bits.heads[static_cast<size_t>(layer)], head))
          entry.heads.push_back(static_cast<uint8_t>(head));
      }
      entries.push_back(std::move(entry));
    }
  }
  return entries;
}

std::vector<std::byte> PackSparseIndex(std::span<const SparseIndexEntry> entries) {
  std::vector<std::byte> section(kCounts);
  StoreLe<uint32_t>(section.data(), static_cast<uint32_t>(entries.size()));
  for (const SparseIndexEntry& entry : entries) {
    size_t at = section.size();
    section.resize(AlignUp(at + kEntryHead + 2 * entry.groups.size() + entry.heads.size(), 4));
    StoreLe<uint32_t>(section.data() + at, entry.task_id);
    StoreLe<uint32_t>(section.data() + at + 4, entry.layer);
    StoreLe<uint32_t>(section.data() + at + 8, static_cast<uint32_t>(entry.groups.size()));
    StoreLe<uint32_t>(section.data() + at + 12, static_cast<uint32_t>(entry.heads.size()));
    at += kEntryHead;
    for (const uint16_t group : entry.groups) {
      StoreLe<uint16_t>(section.data() + at, group);
      at += 2;
    }
    for (const uint8_t head : entry.heads) section[at++] = static_cast<std::byte>(head);
  }
  return section;
}

std::vector<std::string> CompareIndexWithMasks(std::span<const SparseIndexEntry> entries,
                                               const MaskCatalog& catalog, const MaskGeometry& geometry) {
  std::vector<std::string> problems;
  const auto expected = BuildSparseIndex(catalog, geometry);
  if (!expected) return {expected.error().message};
  using Key = std::pair<uint32_t, uint32_t>;
  std::map<Key, const SparseIndexEntry*> stored;
  for (const SparseIndexEntry& entry : entries) {
    if (!stored.emplace(Key{entry.task_id, entry.layer}, &entry).second) {
      problems.push_back(fmt::format("task {} layer {} occurs twice", entry.task_id, entry.layer));
    }
  }
  for (const SparseIndexEntry& want : *expected) {
    const auto found = stored.find({want.task_id, want.layer});
    if (found == stored.end()) {
      problems.push_back(fmt::format("task {} layer {} is missing", want.task_id, want.layer));
      continue;
    }
    if (*found->second != want) {
      problems.push_back(
          fmt::format("task {} layer {} lists {} groups and {} heads, the mask has {} and {} or others",
                      want.task_id, want.layer, found->second->groups.size(), found->second->heads.size(),
                      want.groups.size(), want.heads.size()));
    }
    stored.erase(found);
  }
  for (const auto& [key, entry] : stored)
    problems.push_back(fmt::format("task {} layer {} has no mask that is open there", key.first, key.second));
  return problems;
}

}  // namespace cmforge::cmf
