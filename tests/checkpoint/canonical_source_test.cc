// Plain names and split tensors.
#include "checkpoint/canonical_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/fake_source.h"

namespace cmforge {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

HfConfig Config(const std::string& model_type = "llama") {
  HfConfig config;
  config.model_type = config.model.arch_name = model_type;
  config.model.num_layers = 2;
  config.model.hidden_size = 3;
  config.model.num_attention_heads = 2;
  config.model.num_kv_heads = 1;
  config.model.head_dim = 2;
  config.model.intermediate_size = 2;
  return config;
}

std::shared_ptr<const TensorSource> Make(const std::shared_ptr<FakeSource>& raw, const HfConfig& config) {
  auto source = MakeCanonicalSource(raw, config);
  EXPECT_TRUE(source) << source.error().message;
  return source ? *source : nullptr;
}
Error MakeError(const std::shared_ptr<FakeSource>& raw, const HfConfig& config) {
  auto source = MakeCanonicalSource(raw, config);
  EXPECT_FALSE(source);
  return source ? Error{} : source.error();
}

TEST(CanonicalSource, MapsEveryWrapperToThePlainName) {
  const std::tuple<const char*, const char*, const char*> rows[] = {
      {"llama", "model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.up_proj.weight"},
      {"llama", "layers.1.mlp.up_proj.weight", "model.layers.1.mlp.up_proj.weight"},
      {"llama", "model.language_model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.up_proj.weight"},
      {"llama", "language_model.model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.up_proj.weight"},
      {"llama", "language_model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.up_proj.weight"},
      {"llama", "model.language_model.model.norm.weight", "model.norm.weight"},
      {"llama", "module.model.embed_tokens.weight", "model.embed_tokens.weight"},
      {"llama", "language_model.lm_head.weight", "lm_head.weight"},
      {"llama", "lm_head.weight", "lm_head.weight"},
      {"qwen3_5", "mtp.fc.weight", "model.mtp.eh_proj.weight"},
      {"qwen3_5", "model.mtp.pre_fc_norm_embedding.weight", "model.mtp.enorm.weight"},
      {"qwen3_5", "language_model.mtp.pre_fc_norm_hidden.weight", "model.mtp.hnorm.weight"},
      {"qwen3_5", "mtp.norm.weight", "model.mtp.norm.weight"},
      {"qwen3_5", "mtp.layers.0.self_attn.q_proj.weight", "model.mtp.layers.0.self_attn.q_proj.weight"},
      {"laguna", "model.layers.0.mlp.experts.e_score_correction_bias", "model.layers.0.mlp.expert_bias"},
      {"laguna", "model.layers.0.mlp.gate.e_score_correction_bias", "model.layers.0.mlp.expert_bias"},
      {"laguna", "model.layers.0.mlp.shared_experts.up_proj.weight",
       "model.layers.0.mlp.shared_expert.up_proj.weight"},
      {"lfm2", "model.embedding_norm.weight", "model.norm.weight"},
      {"lfm2", "model.layers.0.operator_norm.weight", "model.layers.0.input_layernorm.weight"},
      {"lfm2", "model.layers.0.ffn_norm.weight", "model.layers.0.post_attention_layernorm.weight"},
      {"lfm2", "model.layers.0.self_attn.out_proj.weight", "model.layers.0.self_attn.o_proj.weight"},
      {"lfm2", "model.layers.0.self_attn.q_layernorm.weight", "model.layers.0.self_attn.q_norm.weight"},
      {"lfm2", "model.layers.0.conv.conv.weight", "model.layers.0.short_conv.conv.weight"},
      {"lfm2", "model.layers.0.conv.in_proj.weight", "model.layers.0.short_conv.in_proj.weight"},
      {"lfm2", "model.layers.0.feed_forward.w1.weight", "model.layers.0.mlp.gate_proj.weight"},
      {"lfm2", "model.layers.0.feed_forward.w2.weight", "model.layers.0.mlp.down_proj.weight"},
      {"lfm2_moe", "model.layers.1.feed_forward.experts.0.w3.weight",
       "model.layers.1.mlp.experts.0.up_proj.weight"},
      {"lfm2_moe", "model.layers.1.feed_forward.gate.weight", "model.layers.1.mlp.gate.weight"},
      {"lfm2_moe", "model.layers.1.feed_forward.expert_bias", "model.layers.1.mlp.expert_bias"},
  };
  for (const auto& [family, name, plain] : rows) {
    const auto raw = std::make_shared<FakeSource>();
    raw->Add(name, {3});
    const auto source = Make(raw, Config(family));
    ASSERT_EQ(source->tensors().size(), 1u) << name;
    EXPECT_EQ(source->tensors()[0].name, plain) << name;
    EXPECT_TRUE(source->Read(plain)) << name;
  }
}

TEST(CanonicalSource, ListsTowersAndForeignPartsAsSkipped) {
  const auto raw = std::make_shared<FakeSource>();
  const std::vector<std::string> foreign = {"model.visual.patch_embed.proj.weight",
                                            "visual.blocks.0.norm1.weight",
                                            "vision_tower.x.weight",
                                            "model.audio_tower.layers.0.self_attn.q_proj.weight",
                                            "multi_modal_projector.mm_input_projection_weight",
                                            "model.embed_vision.embedding_projection.weight",
                                            "score.weight",
                                            "model.layers.0.self_attn.rotary_emb.inv_freq",
                                            "model.layers.2.input_layernorm.weight"};
  for (const std::string& name : foreign) raw->Add(name, {1});
  raw->Add("model.norm.weight", {3});
  const auto source = Make(raw, Config());
  EXPECT_EQ(source->tensors().size(), 1u);
  EXPECT_THAT(source->skipped(), testing::ElementsAreArray(foreign));
}

TEST(CanonicalSource, RefusesWhatItCannotRunByName) {
  HfConfig unknown = Config("novel");
  unknown.known_family = false;
  const auto raw = std::make_shared<FakeSource>();
  raw->Add("model.embed_positions.weight", {8, 3});
  const Error part = MakeError(raw, unknown);
  EXPECT_EQ(part.kind, ErrorKind::kUnsupported);
  EXPECT_THAT(part.message,
              testing::AllOf(HasSubstr("'model.embed_positions.weight'"), HasSubstr("'novel'")));

  for (const std::string name :
       {"model.layers.0.self_attn.sinks", "lm_head.bias", "model.embed_tokens.scales",
        "model.layers.0.mlp.experts.x.up_proj.weight"}) {
    const auto strange = std::make_shared<FakeSource>();
    strange->Add(name, {2});
    EXPECT_EQ(MakeError(strange, Config()).kind, ErrorKind::kUnsupported);
    EXPECT_THAT(MakeError(strange, Config()).message, HasSubstr("'" + name + "'"));
  }
}

TEST(CanonicalSource, RefusesTwoTensorsOfOneMeaning) {
  const auto raw = std::make_shared<FakeSource>();
  raw->Add("model.norm.weight", {3});
  raw->Add("language_model.model.norm.weight", {3});
  const Error error = MakeError(raw, Config());
  EXPECT_EQ(error.kind, ErrorKind::kCorrupt);
  EXPECT_THAT(error.message,
              HasSubstr("'model.norm.weight' and 'language_model.model.norm.weight' both mean"));
}

TEST(CanonicalSource, SplitsPhi3RowsWithoutCopying) {
  const auto raw = std::make_shared<FakeSource>();
  raw->Add("model.layers.0.self_attn.qkv_proj.weight", {8, 3});
  raw->Add("model.layers.0.mlp.gate_up_proj.weight", {4, 3});
  raw->Add("model.layers.0.self_attn.qkv_proj.bias", {8});
  const auto source = Make(raw, Config("phi3"));
  const auto q = source->Read("model.layers.0.self_attn.q_proj.weight");
  const auto v = source->Read("model.layers.0.self_attn.v_proj.weight");
  const auto up = source->Read("model.layers.0.mlp.up_proj.weight");
  ASSERT_TRUE(q && v && up);
  EXPECT_EQ(q->shape, (Shape{4, 3}));
  EXPECT_EQ(Numbers(*q).back(), 11);
  EXPECT_EQ(q->owner, nullptr);
  EXPECT_THAT(Numbers(*v), ElementsAre(18, 19, 20, 21, 22, 23));
  EXPECT_EQ(v->owner, nullptr);
  EXPECT_THAT(Numbers(*up), ElementsAre(6, 7, 8, 9, 10, 11));
  EXPECT_THAT(Numbers(*source->Read("model.layers.0.self_attn.k_proj.bias")), ElementsAre(4, 5));
  EXPECT_EQ(source->Find("model.layers.0.self_attn.qkv_proj.weight"), nullptr);
  for (const TensorInfo& info : source->tensors())
    EXPECT_EQ(source->Read(info.name)->bytes.size(), info.nbytes);
}

TEST(CanonicalSource, NamesAFusedTensorThatDoesNotFit) {
  const auto raw = std::make_shared<FakeSource>();
  raw->Add("model.layers.0.self_attn.qkv_proj.weight", {9, 3});
  EXPECT_THAT(MakeError(raw, Config("phi3")).message, HasSubstr("shape [9, 3], the config wants 8 rows"));
  const auto linear = std::make_shared<FakeSource>();
  linear->Add("model.layers.0.linear_attn.in_proj_ba.weight", {8, 3});
  EXPECT_THAT(MakeError(linear, Config("qwen3_next")).message,
              HasSubstr("the config knows no linear attention"));
}

TEST(CanonicalSource, SortsQwen3NextRowsOutOfTheirKeyHeads) {
  HfConfig config = Config("qwen3_next");
  config.model.linear_attention = LinearAttentionConfig{2, 4, 1, 2, 4};  // Nk 2, Nv 4, Dk 1, Dv 2
  const auto raw = std::make_shared<FakeSource>();
  raw->Add("model.layers.0.linear_attn.in_proj_qkvz.weight", {20, 1});  // per head: q, k, 4 v, 4 z
  raw->Add("model.layers.0.linear_attn.in_proj_ba.weight", {8, 1});     // per head: b b a a
  const auto source = Make(raw, config);
  EXPECT_THAT(Numbers(*source->Read("model.layers.0.linear_attn.in_proj_qkv.weight")),
              ElementsAre(0, 10, 1, 11, 2, 3, 4, 5, 12, 13, 14, 15));
  EXPECT_THAT(Numbers(*source->Read("model.layers.0.linear_attn.in_proj_z.weight")),
              ElementsAre(6, 7, 8, 9, 16, 17, 18, 19));
  EXPECT_THAT(Numbers(*source->Read("model.layers.0.linear_attn.in_proj_b.weight")), ElementsAre(0, 1, 4, 5));
  EXPECT_THAT(Numbers(*source->Read("model.layers.0.linear_attn.in_proj_a.weight")), ElementsAre(2, 3, 6, 7));
}

TEST(CanonicalSource, AOneHeadQwen3NextNeedsNoCopy) {
  HfConfig config = Config("qwen3_next");
  config.model.linear_attention = LinearAttentionConfig{1, 2, 1, 2, 4};
  const auto raw = std::make_shared<FakeSource>();
  raw->Add("model.layers.0.linear_attn.in_proj_qkvz.weight", {10, 1});
  const auto qkv = Make(raw, config)->Read("model.layers.0.linear_attn.in_proj_qkv.weight");
  EXPECT_THAT(Numbers(*qkv), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(qkv->owner, nullptr);
}

HfConfig MoeConfigOf(int64_t experts, int64_t hidden, int64_t inner) {
  HfConfig config = Config("qwen3_5_moe");
  config.model.hidden_size = hidden;
  config.model.moe = MoeConfig{.num_experts = experts, .top_k = 1, .intermediate_size = inner};
  return config;
}

TEST(CanonicalSource, UnpacksExpertBanksRoleByRole) {
  const auto raw = std::make_shared<FakeSource>();
  raw->Add("model.layers.0.mlp.experts.gate_up_proj", {2, 4, 3});
  raw->Add("model.layers.0.mlp.experts.down_proj", {2, 3, 2}, 100);
  const auto source = Make(raw, MoeConfigOf(2, 3, 2));
  std::vector<std::string> names;
  for (const TensorInfo& info : source->tensors()) names.push_back(info.name.substr(15));
  EXPECT_THAT(names, ElementsAre("mlp.experts.0.gate_proj.weight", "mlp.experts.1.gate_proj.weight",
                                 "mlp.experts.0.up_proj.weight", "mlp.experts.1.up_proj.weight",
                                 "mlp.experts.0.down_proj.weight", "mlp.experts.1.down_proj.weight"));
  const auto up = source->Read("model.layers.0.mlp.experts.1.up_proj.weight");
  EXPECT_EQ(up->shape, (Shape{2, 3}));
  EXPECT_THAT(Numbers(*up), ElementsAre(18, 19, 20, 21, 22, 23));
  EXPECT_EQ(up->owner, nullptr);
  EXPECT_THAT(Numbers(*source->Read("model.layers.0.mlp.experts.1.down_proj.weight")),
              ElementsAre(106, 107, 108, 109, 110, 111));
}

TEST(CanonicalSource, TransposesBanksThatAreTurned) {
  const auto raw = std::make_shared<FakeSource>();
  raw->Add("model.layers.0.mlp.experts.gate_up_proj", {2, 3, 4});  // [E, H, 2I]
  raw->Add("model.layers.0.mlp.experts.down_proj", {2, 2, 3});     // [E, I, H]
  const auto source = Make(raw, MoeConfigOf(2, 3, 2));
  EXPECT_THAT(Numbers(*source->Read("model.layers.0.mlp.experts.0.gate_proj.weight")),
              ElementsAre(0, 4, 8, 1, 5, 9));
  EXPECT_THAT(Numbers(*source->Read("model.layers.0.mlp.experts.0.up_proj.weight")),
              ElementsAre(2, 6, 10, 3, 7, 11));
  EXPECT_THAT(Numbers(*source->Read("model.layers.0.mlp.experts.1.down_proj.weight")),
              ElementsAre(6, 9, 7, 10, 8, 11));
}

TEST(CanonicalSource, ASquareBankAsksItsPartner) {
  // H = 2I: gate_up is square, down tells.
  for (const bool is_turned : {false, true}) {
    const auto raw = std::make_shared<FakeSource>();
    raw->Add("model.layers.0.mlp.experts.gate_up_proj", {1, 4, 4});
    raw->Add("model.layers.0.mlp.experts.down_proj", is_turned ? Shape{1, 2, 4} : Shape{1, 4, 2});
    const auto gate = Make(raw, MoeConfigOf(1, 4, 2))->Read("model.layers.0.mlp.experts.0.gate_proj.weight");
    if (is_turned) {
      EXPECT_THAT(Numbers(*gate), ElementsAre(0, 4, 8, 12, 1, 5, 9, 13));
    } else {
      EXPECT_THAT(Numbers(*gate), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
    }
  }
  // H = I: down is square, gate_up tells.
  for (const bool is_turned : {false, true}) {
    const auto raw = std::make_shared<FakeSource>();
    raw->Add("model.layers.0.mlp.experts.gate_up_proj", is_turned ? Shape{1, 2, 4} : Shape{1, 4, 2});
    raw->Add("model.layers.0.mlp.experts.down_proj", {1, 2, 2});
    const auto down = Make(raw, MoeConfigOf(1, 2, 2))->Read("model.layers.0.mlp.experts.0.down_proj.weight");
    if (is_turned) {
      EXPECT_THAT(Numbers(*down), ElementsAre(0, 2, 1, 3));
    } else {
      EXPECT_THAT(Numbers(*down), ElementsAre(0, 1, 2, 3));
    }
  }
}

TEST(CanonicalSource, ReadsTheLayoutsOfMlx) {
  HfConfig config = MoeConfigOf(2, 3, 2);
  const auto raw = std::make_shared<FakeSource>();
  raw->Add("language_model.model.layers.0.mlp.switch_mlp.up_proj.weight", {2, 2, 3});
  raw->Add("language_model.model.layers.0.linear_attn.conv1d.weight", {8, 4, 1});
  const auto source = Make(raw, config);
  EXPECT_THAT(Numbers(*source->Read("model.layers.0.mlp.experts.1.up_proj.weight")),
              ElementsAre(6, 7, 8, 9, 10, 11));
  EXPECT_EQ(source->Find("model.layers.0.linear_attn.conv1d.weight")->shape, (Shape{8, 1, 4}));
  EXPECT_EQ(source->Read("model.layers.0.linear_attn.conv1d.weight")->shape, (Shape{8, 1, 4}));
}

TEST(CanonicalSource, NamesABankThatDoesNotFit) {
  const auto raw = std::make_shared<FakeSource>();
  raw->Add("model.layers.0.mlp.experts.down_proj", {2, 3, 5});
  EXPECT_THAT(MakeError(raw, MoeConfigOf(2, 3, 2)).message,
              HasSubstr("shape [2, 3, 5], the config wants [2, 3, 2]"));
  EXPECT_THAT(MakeError(raw, Config()).message, HasSubstr("the config knows no experts"));
}

}  // namespace
}  // namespace cmforge
