// The header JSON: every architecture key both ways, foreign keys kept, words from closed sets.
#include "cmf/header.h"

#include <gtest/gtest.h>

#include <cmath>

#include "cmf/file.h"
#include "files.h"
#include "tiny_model.h"

namespace cmforge::cmf {
namespace {

ModelConfig RoundTrip(const ModelConfig& config) {
  Header header;
  header.config = config;
  const auto parsed = ParseHeader(DumpHeader(header));
  EXPECT_TRUE(parsed) << parsed.error().message;
  return parsed ? parsed->config : ModelConfig{};
}

TEST(Header, EveryArchitectureFieldSurvives) {
  ModelConfig config = TinyConfig();
  EXPECT_EQ(RoundTrip(config), config);
  config.norm_style = NormStyle::kOnePlus;
  config.hidden_act = Activation::kGeluTanh;
  config.tie_word_embeddings = true;
  config.rms_norm_eps = 1e-5;
  config.layer_types = {LayerKind::kLinearAttention, LayerKind::kSlidingAttention};
  config.rope.theta = 1e6;
  config.rope.partial_rotary_factor = 0.25;
  config.rope_local = RopeConfig{};
  config.rope_local->theta = 1234;
  config.sliding_window = 4;
  config.sliding_window_pattern = 6;
  config.attention_heads_per_layer = {2, 4};
  config.embed_multiplier = 8.5;
  config.query_pre_attn_scalar = 24;
  config.attn_logit_softcapping = 50;
  config.final_logit_softcapping = 30;
  config.logit_multiplier = 0.5;
  config.num_loops = 2;
  config.loop_final_norm = true;
  config.global_head_dim = 16;
  config.num_global_kv_heads = 1;
  config.global_partial_rotary_factor = 0.5;
  config.attn_v_norm = true;
  config.hidden_size_per_layer_input = 4;
  config.vocab_size_per_layer_input = 10;
  config.num_kv_shared_layers = 1;
  config.moe = MoeConfig{.num_experts = 8,
                         .top_k = 2,
                         .intermediate_size = 6,
                         .norm_topk_prob = true,
                         .shared_expert_intermediate_size = 12,
                         .router_sigmoid = true,
                         .routed_scaling_factor = 2.5,
                         .router_logit_softcapping = 30.0};
  config.mtp = MtpConfig{.num_layers = 1, .share_lm_head = false, .share_embed = true};
  config.linear_attention = LinearAttentionConfig{2, 4, 3, 5, 4};
  EXPECT_EQ(RoundTrip(config), config);
  config.norm_style = NormStyle::kUnknown;  // readable; an engine refuses it
  EXPECT_EQ(RoundTrip(config), config);
}

TEST(Header, EveryKindOfRopeSurvives) {
  for (const RopeKind kind : {RopeKind::kLinear, RopeKind::kDynamic, RopeKind::kLlama3, RopeKind::kYarn,
                              RopeKind::kLongRope, RopeKind::kProportional}) {
    ModelConfig config = TinyConfig();
    config.rope.kind = kind;
    config.rope.factor = 8;
    config.rope.original_max_position_embeddings = 32;
    config.rope.attention_factor = 1.25;
    if (kind == RopeKind::kLlama3) config.rope.low_freq_factor = 2;
    if (kind == RopeKind::kLongRope) config.rope.long_factor = config.rope.short_factor = {1.5, 2};
    if (kind == RopeKind::kYarn) {
      config.rope.mscale = config.rope.mscale_all_dim = 0.7;
      config.rope.truncate = false;
      config.rope.beta_fast = 16;
    }
    EXPECT_EQ(RoundTrip(config), config) << static_cast<int>(kind);
    // Sliding layers that follow the same rope, and such that have a plain one of their own.
    config.layer_types[1] = LayerKind::kSlidingAttention;
    EXPECT_EQ(RoundTrip(config), config) << static_cast<int>(kind);
    config.rope_local = RopeConfig{};
    EXPECT_EQ(RoundTrip(config), config) << static_cast<int>(kind);
  }
}

TEST(Header, AYarnProfileIsSpeltOutForReadersWithOtherDefaults) {
  ModelConfig config = TinyConfig();
  config.rope.kind = RopeKind::kYarn;
  config.rope.factor = 8;
  const Json arch = ArchToJson(config);
  EXPECT_DOUBLE_EQ(arch["yarn"]["attention_factor"].get<double>(), 0.1 * std::log(8.0) + 1);
  EXPECT_EQ(arch["yarn"]["original_max_position_embeddings"], 64);
  EXPECT_EQ(arch["yarn"]["factor"], 8.0);
  const auto bare =
      ParseArch(Json::parse(R"({"arch_name":"x","hidden_size":8,"intermediate_size":12,"num_layers":1,
      "num_attention_heads":2,"vocab_size":10,"yarn":{"factor":8,"original_max_position_embeddings":32}})"));
  ASSERT_TRUE(bare) << bare.error().message;
  EXPECT_EQ(bare->rope.attention_factor, 1.0) << "a missing attention_factor in the format means 1";
}

TEST(Header, MissingOptionalKeysGetTheirDefaults) {
  const auto config =
      ParseArch(Json::parse(R"({"arch_name":"x","hidden_size":8,"intermediate_size":12,"num_layers":2,
      "num_attention_heads":2,"vocab_size":10,"moe":null,"linear_num_key_heads":0,"linear_core":null})"));
  ASSERT_TRUE(config) << config.error().message;
  ModelConfig expected = TinyConfig();
  expected.arch_name = "x";
  expected.num_kv_heads = 2;
  expected.max_position_embeddings = 32768;
  expected.norm_style = NormStyle::kUnknown;
  EXPECT_EQ(*config, expected);
}

TEST(Header, TheFormatsYarnSparesSlidingLayers) {
  const auto file = File::Open(DataFolder() / "rs-laguna-q8.cmf");
  ASSERT_TRUE(file);
  const ModelConfig& config = file->config();
  EXPECT_EQ(config.rope.kind, RopeKind::kYarn);
  EXPECT_DOUBLE_EQ(*config.rope.attention_factor, 1.2079442);
  EXPECT_EQ(config.rope.partial_rotary_factor, 0.5);
  ASSERT_TRUE(config.rope_local);
  EXPECT_EQ(config.rope_local->kind, RopeKind::kDefault);
  EXPECT_EQ(config.rope_local->theta, 10000);
  EXPECT_EQ(config.attention_heads_per_layer, (std::vector<int64_t>{4, 8, 8}));
  ASSERT_TRUE(config.moe);
  EXPECT_TRUE(config.moe->router_sigmoid);
  EXPECT_EQ(config.moe->routed_scaling_factor, 2.5);
}

TEST(Header, FixturesAreRewrittenWordForWord) {
  for (const fs::path& path : AllFixtures()) {
    const auto file = File::Open(path);
    ASSERT_TRUE(file);
    EXPECT_EQ(DumpHeader(file->header()), DumpJson(file->header().document)) << path;
    const auto arch = ParseArch(ArchToJson(file->config()));
    ASSERT_TRUE(arch) << path << ": " << arch.error().message;
    EXPECT_EQ(*arch, file->config()) << path;
  }
}

TEST(Header, ForeignKeysSurviveEdits) {
  const char* const text =
      R"({"format":"cmf","version":2,"future":{"a":[1,2]},"arch":{"arch_name":"x","hidden_size":8,
      "intermediate_size":12,"num_layers":1,"num_attention_heads":2,"vocab_size":10,"mla":{"rank":4},"moe":null},
      "quant_type":"Q9_MAGIC","calibration":{"temperature":1.5},
      "tokenizer_config":{"eos_token_ids":[1],"theirs":true},
      "skills":[{"id":"a","layers":[0,1,"...",9],"extra":7}]})";
  auto header = ParseHeader(text);
  ASSERT_TRUE(header) << header.error().message;
  header->config.max_position_embeddings = 99;
  header->chat->pad_token_id = 5;
  header->skills[0].task = "specialist";
  header->shard = ShardBlock{.no = 1, .count = 2, .dir_hashes = {}};
  const Json json = Json::parse(DumpHeader(*header));
  EXPECT_EQ(json["future"], Json::parse(R"({"a":[1,2]})"));
  EXPECT_EQ(json["arch"]["mla"]["rank"], 4);
  EXPECT_EQ(json["arch"]["max_position_embeddings"], 99);
  EXPECT_EQ(json["calibration"]["temperature"], 1.5);
  EXPECT_EQ(json["tokenizer_config"]["theirs"], true);
  EXPECT_EQ(json["tokenizer_config"]["pad_token_id"], 5);
  EXPECT_EQ(json["skills"][0]["extra"], 7);
  EXPECT_EQ(json["skills"][0]["task"], "specialist");
  EXPECT_EQ(json["shard"]["count"], 2);
  const auto again = ParseHeader(json.dump());
  ASSERT_TRUE(again);
  EXPECT_EQ(again->skills, header->skills);
  EXPECT_EQ(again->skills[0].layers, (std::vector<int64_t>{0, 1, 9}));
  header->shard.reset();
  header->chat.reset();
  header->skills.clear();
  const Json bare = Json::parse(DumpHeader(*header));
  for (const char* key : {"shard", "tokenizer_config", "skills"}) EXPECT_FALSE(bare.contains(key)) << key;
}

TEST(Header, ChatSamplingAndHashesSurvive) {
  Header header;
  header.config = TinyConfig();
  header.chat = ChatBundle{"{{ \"x\" }}\n", {1, 2}, 3, std::nullopt};
  header.sampling.temperature = 0.6;
  header.sampling.top_k = 20;
  header.sampling.do_sample = true;
  header.section_hashes.vocab = 0xFEDCBA9876543210;
  header.shard = ShardBlock{.no = 2, .count = 3, .dir_hashes = {"a", "b", "c"}};
  const auto parsed = ParseHeader(DumpHeader(header));
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->chat, header.chat);
  EXPECT_EQ(parsed->sampling, header.sampling);
  EXPECT_EQ(parsed->section_hashes, header.section_hashes);
  EXPECT_EQ(parsed->shard, header.shard);
  EXPECT_FALSE(parsed->is_skill_file());
}

TEST(Header, MalformedSectionHashesAreLeftToVerify) {
  auto header = ParseHeader(R"({"arch":{"arch_name":"x","hidden_size":8,"intermediate_size":12,"num_layers":1,
      "num_attention_heads":2,"vocab_size":10},"section_hashes":{"masks":"xyz","vocab":17,"index":null}})");
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_EQ(header->section_hashes.malformed, (std::vector<std::string>{"masks", "vocab"}));
}

TEST(Header, QuantTypeComesFromAClosedSet) {
  for (int id = 0; id < kCmfDTypeCount; ++id)
    EXPECT_TRUE(IsQuantTypeWord(QuantTypeWord(static_cast<DType>(id)))) << id;
  EXPECT_FALSE(IsQuantTypeWord("Q4_TILED"));
  EXPECT_FALSE(IsQuantTypeWord(""));
}

TEST(Skills, SelectionsOfFixturesDecode) {
  const auto file = File::Open(DataFolder() / "py-tiny-skills.cmf");
  ASSERT_TRUE(file);
  ASSERT_EQ(file->header().skills.size(), 2u);
  for (const SkillRecord& skill : file->header().skills) {
    ASSERT_TRUE(skill.selection) << skill.selection_problem;
    EXPECT_EQ(skill.selection->rank, 2);
    EXPECT_EQ(skill.selection->mean.size(), 32u);
    EXPECT_EQ(skill.selection->basis.size(), 64u);
    for (int row = 0; row < 2; ++row) {  // orthonormal, up to f16
      double norm = 0;
      for (int i = 0; i < 32; ++i)
        norm += std::pow(skill.selection->basis[static_cast<size_t>(row * 32 + i)], 2);
      EXPECT_NEAR(norm, 1, 2e-3);
    }
    EXPECT_EQ(ParseSkill(SkillToJson(skill), 32).value(), skill);
  }
}

TEST(Skills, ASelectionThatDoesNotFitIsKeptButNotUsed) {
  const Json json =
      Json::parse(R"({"id":"a","selection":{"metric":"mse","phi_layer":1,"mean":"AAAA","basis":"AAAA"}})");
  const auto skill = ParseSkill(json, 8);
  ASSERT_TRUE(skill);
  EXPECT_FALSE(skill->selection);
  EXPECT_FALSE(skill->selection_problem.empty());
  EXPECT_EQ(SkillToJson(*skill)["selection"], json["selection"]);
}

TEST(Skills, RankIsDerivedWhenTheFileDoesNotSay) {
  Json json = Json::parse(R"({"id":"a","selection":{"metric":"mse","phi_layer":1}})");
  json["selection"]["mean"] = EncodeF16Base64(std::vector<float>(4, 1.0f));
  json["selection"]["basis"] = EncodeF16Base64(std::vector<float>(12, 0.5f));
  const auto skill = ParseSkill(json, 4);
  ASSERT_TRUE(skill && skill->selection);
  EXPECT_EQ(skill->selection->rank, 3);
  EXPECT_EQ(SkillToJson(*skill)["selection"]["rank"], 3) << "other readers demand it";
}

TEST(Skills, Base64GoesBothWaysAndRefusesOthers) {
  for (size_t n = 0; n < 9; ++n) {
    std::vector<float> values;
    for (size_t i = 0; i < n; ++i) values.push_back(static_cast<float>(i) - 2.5f);
    EXPECT_EQ(DecodeF16Base64(EncodeF16Base64(values)).value(), values);
  }
  for (const char* bad : {"A", "AA", "A*AA", "AA A", "AAAAA"}) EXPECT_FALSE(DecodeF16Base64(bad)) << bad;
}

TEST(Skills, NamesAndIds) {
  EXPECT_EQ(SkillTensorName("sql", "a.weight"), "skill.sql.a.weight");
  SkillRecord plain, dotted;
  plain.id = "v1";
  dotted.id = "v1.5";
  const std::vector<SkillRecord> skills = {plain, dotted};
  EXPECT_EQ(SplitSkillTensorName("skill.v1.5.a", skills)->id, "v1.5");
  EXPECT_EQ(SplitSkillTensorName("skill.v1.6.a", skills)->replaced, "6.a");
  EXPECT_FALSE(SplitSkillTensorName("skill.v2.a", skills));
  EXPECT_FALSE(SplitSkillTensorName("skill.v1.", skills));
  EXPECT_FALSE(SplitSkillTensorName("model.norm", skills));
  EXPECT_TRUE(CheckSkillId("gfx-html_2"));
  for (const char* bad : {"", "../x", "a b", "a/b", "ü"}) EXPECT_FALSE(CheckSkillId(bad)) << bad;
}

}  // namespace
}  // namespace cmforge::cmf
