// ParseHeader and DumpHeader.
#include "cmf/header.h"

#include <algorithm>
#include <tuple>
#include <unordered_set>

#include "cmf/envelope.h"
#include "cmf/hash64.h"
#include "cmf/json_fields.h"

namespace cmforge::cmf {
namespace {

constexpr std::string_view kQuantTypeWords[] = {"Q8_ROW", "Q4_BLOCK", "Q8_2F", "VBIT", "BF16", "F16", "F32"};

Result<ChatBundle> ParseChat(const Json& json, Json& unknown) {
  ChatBundle chat;
  JsonFields fields(json, "header: tokenizer_config");
  fields.Read("chat_template", chat.chat_template);
  std::vector<int64_t> eos;
  fields.Read("eos_token_ids", eos);
  const auto read_id = [&](std::string_view key, std::optional<TokenId>& id) {
    std::optional<int64_t> value;
    fields.Read(key, value, int64_t{0}, int64_t{INT32_MAX});
    if (value) id = static_cast<TokenId>(*value);
  };
  read_id("bos_token_id", chat.bos_token_id);
  read_id("pad_token_id", chat.pad_token_id);
  for (const int64_t id : eos) {
    if (id > INT32_MAX) fields.Error("eos_token_ids", fmt::format("{} is not a token id", id));
    chat.eos_token_ids.push_back(static_cast<TokenId>(id));
  }
  CMF_CHECK(fields.status());
  unknown = fields.Rest();
  return chat;
}

Json ChatToJson(const ChatBundle& chat) {
  Json json = Json::object();
  if (!chat.chat_template.empty()) json["chat_template"] = chat.chat_template;
  json["eos_token_ids"] = chat.eos_token_ids;
  if (chat.bos_token_id) json["bos_token_id"] = *chat.bos_token_id;
  if (chat.pad_token_id) json["pad_token_id"] = *chat.pad_token_id;
  return json;
}

Result<RecommendedSampling> ParseSampling(const Json& json, Json& unknown) {
  RecommendedSampling sampling;
  JsonFields fields(json, "header: recommended_sampling");
  fields.Read("do_sample", sampling.do_sample);
  fields.Read("temperature", sampling.temperature);
  fields.Read("top_p", sampling.top_p);
  fields.Read("min_p", sampling.min_p);
  fields.Read("typical_p", sampling.typical_p);
  fields.Read("repetition_penalty", sampling.repetition_penalty);
  fields.Read("top_k", sampling.top_k);
  CMF_CHECK(fields.status());
  unknown = fields.Rest();
  return sampling;
}

// Null when nothing is recommended or hashed: the block is left out then.
Json SamplingToJson(const RecommendedSampling& sampling) {
  Json json;
  const auto put = [&](const char* key, const auto& value) {
    if (value) json[key] = *value;
  };
  put("do_sample", sampling.do_sample);
  put("temperature", sampling.temperature);
  put("top_k", sampling.top_k);
  put("top_p", sampling.top_p);
  put("min_p", sampling.min_p);
  put("typical_p", sampling.typical_p);
  put("repetition_penalty", sampling.repetition_penalty);
  return json;
}

// A hash that is not 16 hex digits is verify's to report: the file still opens.
SectionHashes ParseSectionHashes(const Json& json) {
  SectionHashes hashes;
  if (!json.is_object()) return hashes;
  for (const auto& [key, field] : {std::pair{"masks", &hashes.masks}, std::pair{"vocab", &hashes.vocab},
                                   std::pair{"index", &hashes.index}}) {
    const auto it = json.find(key);
    if (it == json.end() || it->is_null()) continue;
    *field = it->is_string() ? ParseHash64Hex(it->get_ref<const std::string&>()) : std::nullopt;
    if (!*field) hashes.malformed.emplace_back(key);
  }
  return hashes;
}

Json SectionHashesToJson(const SectionHashes& hashes) {
  Json json;
  if (hashes.masks) json["masks"] = Hash64Hex(*hashes.masks);
  if (hashes.vocab) json["vocab"] = Hash64Hex(*hashes.vocab);
  if (hashes.index) json["index"] = Hash64Hex(*hashes.index);
  return json;
}

Result<ShardBlock> ParseShardBlock(const Json& json, Json& unknown) {
  ShardBlock shard;
  JsonFields fields(json, "header: shard");
  fields.Require({"no", "count"});
  fields.Read("no", shard.no, 1);
  fields.Read("count", shard.count, 1);
  if (shard.no > shard.count)
    fields.Error("no", fmt::format("is {}, the count is {}", shard.no, shard.count));
  if (const Json* list = fields.Find("dir_hashes"); list != nullptr && list->is_array()) {
    for (const Json& hash : *list)
      shard.dir_hashes.push_back(hash.is_string() ? hash.get<std::string>() : std::string());
  }
  CMF_CHECK(fields.status());
  unknown = fields.Rest();
  return shard;
}

Json ShardBlockToJson(const ShardBlock& shard) {
  Json json = {{"no", shard.no}, {"count", shard.count}};
  if (!shard.dir_hashes.empty()) json["dir_hashes"] = shard.dir_hashes;
  return json;
}

// A header and the members of its blocks that we do not know.
struct ParsedHeader {
  Header header;
  Json arch_rest, chat_rest, sampling_rest, shard_rest;
};

Result<ParsedHeader> Parse(Json document) {
  ParsedHeader parsed;
  Header& header = parsed.header;
  JsonFields fields(document, "header");
  fields.Require({"arch"});
  fields.Read("quant_type", header.quant_type);
  const Json* skills = fields.Find("skills");
  if (skills != nullptr && !skills->is_array()) fields.Error("skills", "must be a list");
  CMF_CHECK(fields.status());
  CMF_TRY(header.config, ParseArch(*fields.Find("arch"), &parsed.arch_rest));
  if (const Json* provenance = fields.Find("provenance")) header.provenance = *provenance;
  if (const Json* chat = fields.Find("tokenizer_config")) {
    CMF_TRY(header.chat, ParseChat(*chat, parsed.chat_rest));
  }
  if (const Json* sampling = fields.Find("recommended_sampling")) {
    CMF_TRY(header.sampling, ParseSampling(*sampling, parsed.sampling_rest));
  }
  if (const Json* hashes = fields.Find("section_hashes")) header.section_hashes = ParseSectionHashes(*hashes);
  if (const Json* shard = fields.Find("shard")) {
    CMF_TRY(header.shard, ParseShardBlock(*shard, parsed.shard_rest));
  }
  std::unordered_set<std::string> ids;
  for (const Json& json : skills != nullptr ? *skills : Json::array()) {
    auto skill = ParseSkill(json, header.config.hidden_size);
    if (!skill) return Fail(std::move(skill).error().In("header"));
    if (!ids.insert(skill->id).second) {
      return Fail(ErrorKind::kCorrupt, fmt::format("header: skill '{}' occurs twice", skill->id), "Parse");
    }
    header.skills.push_back(std::move(*skill));
  }
  header.document = std::move(document);
  return parsed;
}

// Sets a block of the document: left as it is spelt while it still means the same, else rewritten with the
// members we do not know (`rest`) carried over, or dropped when there is nothing to say.
void PutBlock(Json& document, const char* key, bool unchanged, Json fresh, const Json& rest) {
  if (unchanged && document.contains(key)) return;
  if (fresh.is_null()) {
    document.erase(key);
    return;
  }
  if (rest.is_object()) fresh.update(rest);
  document[key] = std::move(fresh);
}

}  // namespace

bool Header::is_skill_file() const {
  return std::any_of(skills.begin(), skills.end(),
                     [](const SkillRecord& skill) { return skill.base_dir_hash.has_value(); });
}

Result<Header> ParseHeader(std::string_view text) {
  if (text.size() > kMaxHeaderBytes) {
    return Fail(ErrorKind::kLimit,
                fmt::format("header: {} bytes, at most {} are read", text.size(), kMaxHeaderBytes), "Parse");
  }
  if (!IsUtf8(text)) return Fail(ErrorKind::kCorrupt, "header: not UTF-8", "Parse");
  CMF_TRY(Json document, ParseJson(text, "header"));
  CMF_TRY(ParsedHeader parsed, Parse(std::move(document)));
  return std::move(parsed.header);
}

std::string DumpHeader(const Header& header) {
  ParsedHeader before;
  if (header.document.is_object()) {
    if (auto parsed = Parse(header.document)) before = std::move(*parsed);
  }
  const Header& old = before.header;
  Json document = old.document.is_object() ? old.document : Json{{"format", "cmf"}, {"version", kVersion}};
  Json skills;
  for (const SkillRecord& skill : header.skills) skills.push_back(SkillToJson(skill));
  const auto& [chat, sampling, hashes, shard] =
      std::tie(header.chat, header.sampling, header.section_hashes, header.shard);

  PutBlock(document, "arch", header.config == old.config, ArchToJson(header.config), before.arch_rest);
  document["quant_type"] = header.quant_type;
  PutBlock(document, "provenance", header.provenance == old.provenance, header.provenance, {});
  PutBlock(document, "tokenizer_config", chat == old.chat, chat ? ChatToJson(*chat) : Json(),
           before.chat_rest);
  PutBlock(document, "recommended_sampling", sampling == old.sampling, SamplingToJson(sampling),
           before.sampling_rest);
  PutBlock(document, "section_hashes", hashes == old.section_hashes, SectionHashesToJson(hashes), {});
  PutBlock(document, "skills", header.skills == old.skills, std::move(skills), {});
  PutBlock(document, "shard", shard == old.shard, shard ? ShardBlockToJson(*shard) : Json(),
           before.shard_rest);
  return DumpJson(document);
}

std::string_view QuantTypeWord(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kBF16:
      return "BF16";
    case DType::kQ8Row:
      return "Q8_ROW";
    case DType::kQ8TwoField:
      return "Q8_2F";
    case DType::kQ4Block:
    case DType::kQ4Tiled:
    case DType::kQ4tp:
    case DType::kQ2tp:
      return "Q4_BLOCK";
    case DType::kVbit:
    case DType::kVbitRo:
    case DType::kQ1:
    case DType::kQ1s:
    case DType::kQ1t:
      return "VBIT";
    default:
      return "F16";
  }
}

bool IsQuantTypeWord(std::string_view word) {
  return std::find(std::begin(kQuantTypeWords), std::end(kQuantTypeWords), word) != std::end(kQuantTypeWords);
}

}  // namespace cmforge::cmf
