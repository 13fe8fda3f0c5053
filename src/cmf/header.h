// The header JSON (spec 2): architecture, chat bundle, skills, provenance. Known keys become typed fields;
// the document as it was read stays beside them, so that keys of other programs survive a rewrite.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "cmf/skills.h"
#include "model/dtype.h"
#include "model/model_config.h"

namespace cmforge::cmf {

/// hash64 of the sections behind the data (spec 8.1); absent = not recorded.
struct SectionHashes {
  std::optional<uint64_t> masks, vocab, index;
  std::vector<std::string> malformed;  // keys whose value is not 16 hex digits, as read

  bool operator==(const SectionHashes&) const = default;
};

/// Which part of a sharded model this file is (spec 10).
struct ShardBlock {
  int64_t no = 1;  // 1-based
  int64_t count = 1;
  // Ours, additive, in shard 1: the directory hash of every shard, so that a shard of another model with the
  // same shapes is noticed. Empty in files of other programs.
  std::vector<std::string> dir_hashes;

  bool operator==(const ShardBlock&) const = default;
};

struct Header {
  ModelConfig config;
  std::string quant_type;  // informational; empty when writing: the word of the dtype with the most bytes
  Json provenance;         // free-form object, or null
  std::optional<ChatBundle> chat;
  RecommendedSampling sampling;  // ours, additive: header key `recommended_sampling`
  SectionHashes section_hashes;
  std::vector<SkillRecord> skills;
  std::optional<ShardBlock> shard;
  Json document;  // as read; null for a new header

  [[nodiscard]] bool is_skill_file() const;  // some skill record is bound to a base
};

/// Headers above this are refused (kLimit) before they are parsed.
inline constexpr uint64_t kMaxHeaderBytes = uint64_t{64} << 20;

/// Fails: kCorrupt "Parse" (not UTF-8 or JSON, a key twice, `arch` or a required key of it missing, a value
/// of the wrong type or absurd), kLimit. Unknown keys are ignored. Messages begin with "header: ".
Result<Header> ParseHeader(std::string_view text);

/// Compact JSON. Values that still equal what `document` said keep their spelling there; unknown keys stay.
[[nodiscard]] std::string DumpHeader(const Header& header);

/// The arch block <-> ModelConfig. Optional keys that are missing get the defaults of docs/formats/cmf.md;
/// keys that are not ours go to `unknown`.
Result<ModelConfig> ParseArch(const Json& arch, Json* unknown = nullptr);
[[nodiscard]] Json ArchToJson(const ModelConfig& config);

/// The closed set that other readers accept: Q8_ROW Q4_BLOCK Q8_2F VBIT BF16 F16 F32.
[[nodiscard]] std::string_view QuantTypeWord(DType dtype);
[[nodiscard]] bool IsQuantTypeWord(std::string_view word);

}  // namespace cmforge::cmf
