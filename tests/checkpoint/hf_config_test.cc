// What config.json and its companions mean: fields in all their spellings, family by family.
#include "checkpoint/hf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/json.h"

namespace cmforge {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr LayerKind kFull = LayerKind::kFullAttention;
constexpr LayerKind kSlide = LayerKind::kSlidingAttention;
constexpr LayerKind kLinear = LayerKind::kLinearAttention;
constexpr LayerKind kConv = LayerKind::kShortConv;

/// A small complete config of that family, with `changes` merged in (null stays null).
std::string Config(const std::string& model_type, const char* changes = "{}") {
  Json config = Json::parse(R"({"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 100, "intermediate_size": 96,
    "max_position_embeddings": 1024, "rope_theta": 10000.0})");
  config["model_type"] = model_type;
  const Json extra = Json::parse(changes);
  for (const auto& [key, value] : extra.items()) config[key] = value;
  return DumpJson(config);
}

HfConfig Parse(const HfConfigFiles& files) {
  auto config = ParseHfConfig(files);
  EXPECT_TRUE(config) << config.error().message << "\n" << files.config;
  return config ? std::move(*config) : HfConfig{};
}
HfConfig Parse(const std::string& text) {
  HfConfigFiles files;
  files.config = text;
  return Parse(files);
}
Error ParseError(const std::string& text) {
  HfConfigFiles files;
  files.folder = "dir";
  files.config = text;
  auto config = ParseHfConfig(files);
  EXPECT_FALSE(config) << text;
  return config ? Error{} : config.error();
}

TEST(HfConfig, NullIsAbsentForEveryOptionalField) {
  const HfConfig config =
      Parse(Config("llama", R"({"head_dim": null, "num_key_value_heads": null, "rope_scaling": null,
    "rope_parameters": null, "sliding_window": null, "layer_types": null, "eos_token_id": null, "bos_token_id": null,
    "tie_word_embeddings": null, "quantization_config": null, "text_config": null, "num_experts": null,
    "partial_rotary_factor": null, "hidden_act": null, "rms_norm_eps": null, "query_pre_attn_scalar": null,
    "attn_logit_softcapping": null, "final_logit_softcapping": null, "use_sliding_window": null, "torch_dtype": null,
    "max_window_layers": null, "attention_bias": null, "mtp_num_hidden_layers": null, "clip_qkv": null})"));
  EXPECT_EQ(config.model.head_dim, 16);
  EXPECT_EQ(config.model.num_kv_heads, 4);
  EXPECT_EQ(config.model.rope, RopeConfig{});
  EXPECT_EQ(config.model.rms_norm_eps, 1e-6);
  EXPECT_FALSE(config.model.tie_word_embeddings);
  EXPECT_TRUE(config.tie_is_default);
  EXPECT_THAT(config.chat.eos_token_ids, IsEmpty());
  EXPECT_THAT(config.warnings, IsEmpty());
}

TEST(HfConfig, ReadsRopeInAllThreeLayouts) {
  const char* layouts[] = {
      R"({"rope_theta": 5e5, "rope_scaling": {"rope_type": "linear", "factor": 4.0}})",
      R"({"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 4}})",
      R"({"rope_theta": null, "rope_parameters": {"rope_type": "linear", "rope_theta": 500000, "factor": 4.0}})",
      R"({"rope_theta": 1e4, "rope_parameters": {"type": "linear", "rope_theta": 5e5, "factor": 4.0}})",
      R"({"rope_theta": 5e5, "rope_parameters": {"rope_type": "linear"}, "rope_scaling": {"factor": 4.0}})",
  };
  for (const char* layout : layouts) {
    const RopeConfig rope = Parse(Config("llama", layout)).model.rope;
    EXPECT_EQ(rope.kind, RopeKind::kLinear) << layout;
    EXPECT_EQ(rope.theta, 5e5) << layout;
    EXPECT_EQ(rope.factor, 4.0) << layout;
  }
}

TEST(HfConfig, SaysWhenNoFileNamesTheta) {
  const HfConfig config = Parse(Config("qwen2", R"({"rope_theta": null})"));
  EXPECT_EQ(config.model.rope.theta, 10000.0);
  EXPECT_THAT(config.warnings, ElementsAre(HasSubstr("no rope_theta anywhere")));
}

TEST(HfConfig, ReadsEachRopeKind) {
  const RopeConfig llama3 = Parse(Config("llama", R"({"rope_scaling": {"rope_type": "llama3", "factor": 32.0,
    "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 256}})"))
                                .model.rope;
  EXPECT_EQ(llama3.kind, RopeKind::kLlama3);
  EXPECT_EQ(llama3.original_max_position_embeddings, 256);

  const RopeConfig yarn =
      Parse(Config("llama", R"({"rope_scaling": {"type": "yarn", "factor": 8.0, "truncate": false,
    "mscale": 1.0, "mscale_all_dim": 0.5, "beta_fast": 16}})"))
          .model.rope;
  EXPECT_EQ(yarn.kind, RopeKind::kYarn);
  EXPECT_EQ(yarn.beta_fast, 16.0);
  EXPECT_EQ(yarn.beta_slow, 1.0);
  EXPECT_EQ(yarn.mscale_all_dim, 0.5);
  EXPECT_FALSE(yarn.truncate);
  EXPECT_FALSE(yarn.attention_factor);

  EXPECT_EQ(Parse(Config("qwen2_vl", R"({"rope_scaling": {"type": "mrope", "mrope_section": [1, 2, 3]}})"))
                .model.rope,
            RopeConfig{});
}

TEST(HfConfig, ReadsLongRopeWithTheOriginalLengthOutside) {
  const HfConfig config = Parse(Config("phi3", R"({"original_max_position_embeddings": 64, "head_dim": 8,
    "partial_rotary_factor": 0.75, "sliding_window": 99,
    "rope_scaling": {"type": "longrope", "long_factor": [1, 2, 3], "short_factor": [1.0, 1.0, 1.0]}})"));
  const RopeConfig& rope = config.model.rope;
  EXPECT_EQ(rope.kind, RopeKind::kLongRope);
  EXPECT_EQ(rope.factor, 16.0);
  EXPECT_DOUBLE_EQ(*rope.attention_factor, std::sqrt(1 + std::log(16.0) / std::log(64.0)));
  EXPECT_THAT(rope.long_factor, ElementsAre(1, 2, 3));
  EXPECT_EQ(config.model.sliding_window, 99);
  EXPECT_EQ(config.model.layer_types, std::vector<LayerKind>(4, kSlide));
  EXPECT_THAT(ParseError(Config("phi3", R"({"original_max_position_embeddings": 64,
    "rope_scaling": {"type": "su", "long_factor": [1, 2, 3], "short_factor": [1, 1, 1]}})"))
                  .message,
              HasSubstr("long_factor: not a list of 16 factors"));
}

TEST(HfConfig, ReadsARopeForEachKindOfLayer) {
  const HfConfig config = Parse(Config("laguna", R"({"layer_types": ["full_attention", "sliding_attention",
    "sliding_attention", "full_attention"], "sliding_window": 8, "num_attention_heads_per_layer": [4, 6, 6, 4],
    "rope_theta": null, "rope_parameters": {
      "full_attention": {"rope_type": "yarn", "rope_theta": 5e5, "factor": 8.0, "partial_rotary_factor": 0.5,
                         "original_max_position_embeddings": 64},
      "sliding_attention": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 1.0}}})"));
  EXPECT_EQ(config.model.rope.kind, RopeKind::kYarn);
  EXPECT_EQ(config.model.rope.partial_rotary_factor, 0.5);
  ASSERT_TRUE(config.model.rope_local);
  EXPECT_EQ(config.model.rope_local->kind, RopeKind::kDefault);
  EXPECT_EQ(config.model.rope_local->theta, 1e4);
  EXPECT_EQ(config.model.rope_local->partial_rotary_factor, 1.0);
  EXPECT_THAT(config.model.attention_heads_per_layer, ElementsAre(4, 6, 6, 4));
  EXPECT_FALSE(config.model.sliding_window_pattern);  // full, slide, slide, full is no such pattern
}

TEST(HfConfig, TheWindowFollowsTheFamilysRule) {
  const std::vector<LayerKind> all_full(4, kFull), all_slide(4, kSlide);
  const std::tuple<const char*, const char*, std::vector<LayerKind>> rows[] = {
      {"llama", R"({"sliding_window": 8})", all_full},
      {"mistral", R"({"sliding_window": 8})", all_slide},
      {"mistral", R"({"sliding_window": null})", all_full},
      {"mistral", R"({})", all_slide},  // its library's default is 4096
      {"phi3", R"({"sliding_window": 8})", all_slide},
      {"phi3", R"({})", all_full},
      {"qwen2", R"({"sliding_window": 8, "use_sliding_window": false, "max_window_layers": 1})", all_full},
      {"qwen2", R"({"sliding_window": 8})", all_full},
      {"qwen2",
       R"({"sliding_window": 8, "use_sliding_window": true, "max_window_layers": 1})",
       {kFull, kSlide, kSlide, kSlide}},
      {"qwen3",
       R"({"sliding_window": 8, "use_sliding_window": true, "max_window_layers": 2})",
       {kFull, kFull, kSlide, kSlide}},
      {"qwen2_moe",
       R"({"sliding_window": 8, "use_sliding_window": true, "max_window_layers": 3})",
       {kSlide, kFull, kSlide, kFull}},
      {"qwen3_moe", R"({"sliding_window": 8, "use_sliding_window": true, "max_window_layers": 1})",
       all_slide},
      {"gemma2", R"({"sliding_window": 8})", {kSlide, kFull, kSlide, kFull}},
      {"gemma3_text",
       R"({"sliding_window": 8, "sliding_window_pattern": 3})",
       {kSlide, kSlide, kFull, kSlide}},
      {"gemma4_text",
       R"({"sliding_window": 8, "sliding_window_pattern": 3, "hidden_size_per_layer_input": 0})",
       {kSlide, kSlide, kFull, kFull}},
      {"qwen2",
       R"({"sliding_window": 8, "layer_types": ["full_attention", "sliding_attention", "full_attention",
        "full_attention"]})",
       {kFull, kSlide, kFull, kFull}},
  };
  for (const auto& [family, changes, want] : rows) {
    const ModelConfig model = Parse(Config(family, changes)).model;
    EXPECT_EQ(model.layer_types, want) << family << " " << changes;
    const bool slides = std::find(want.begin(), want.end(), kSlide) != want.end();
    EXPECT_EQ(model.sliding_window.has_value(), slides) << family << " " << changes;
  }
  EXPECT_THAT(
      ParseError(Config("llama", R"({"layer_types": ["sliding_attention", "full_attention", "full_attention",
    "full_attention"]})"))
          .message,
      HasSubstr("key 'sliding_window' is missing"));
}

TEST(HfConfig, HybridsHaveLinearLayersAndAQuarterOfRotation) {
  const char* linear = R"({"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
    "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4, "mtp_num_hidden_layers": 1})";
  const ModelConfig model = Parse(Config("qwen3_5_text", linear)).model;
  EXPECT_THAT(model.layer_types, ElementsAre(kLinear, kLinear, kLinear, kFull));
  EXPECT_EQ(model.norm_style, NormStyle::kOnePlus);
  EXPECT_EQ(model.rope.partial_rotary_factor, 0.25);
  EXPECT_EQ(model.linear_attention, (LinearAttentionConfig{2, 4, 8, 16, 4}));
  ASSERT_TRUE(model.mtp);
  EXPECT_EQ(model.mtp->num_layers, 1);
  EXPECT_THAT(ParseError(Config("qwen3_next")).message, HasSubstr("key 'linear_num_key_heads' is missing"));
}

TEST(HfConfig, MoeDefaultsDifferByFamily) {
  const char* moe = R"({"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
    "intermediate_size": null, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
    "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4, "conv_L_cache": 3, "full_attn_idxs": [1]})";
  const std::tuple<const char*, bool, bool> rows[] = {
      {"qwen2_moe", false, false},  {"qwen3_moe", false, false}, {"qwen3_next", true, false},
      {"qwen3_5_moe", true, false}, {"laguna", true, true},      {"lfm2_moe", true, true}};
  for (const auto& [family, renormalizes, is_sigmoid] : rows) {
    const ModelConfig model = Parse(Config(family, moe)).model;
    ASSERT_TRUE(model.moe) << family;
    EXPECT_EQ(model.moe->norm_topk_prob, renormalizes) << family;
    EXPECT_EQ(model.moe->router_sigmoid, is_sigmoid) << family;
    EXPECT_EQ(model.intermediate_size, 16) << family;
  }
  EXPECT_TRUE(
      Parse(Config("qwen3_5_moe", R"({"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
    "norm_topk_prob": false, "layer_types": ["full_attention","full_attention","full_attention","full_attention"]})"))
          .model.moe->norm_topk_prob);
  EXPECT_THAT(ParseError(Config("qwen3_moe", R"({"num_experts": 8, "moe_intermediate_size": 16})")).message,
              HasSubstr("key 'num_experts_per_tok' is missing"));
  EXPECT_THAT(ParseError(Config("qwen3_moe", R"({"num_experts": 8, "num_experts_per_tok": 9,
    "moe_intermediate_size": 16})"))
                  .message,
              HasSubstr("9 of 8 experts"));
  const ModelConfig laguna = Parse(Config("laguna", R"({"num_experts": 8, "num_experts_per_tok": 2,
    "moe_intermediate_size": 16, "n_shared_experts": 2, "moe_routed_scaling_factor": 2.5,
    "moe_router_logit_softcapping": 30})"))
                                 .model;
  EXPECT_EQ(laguna.moe->shared_expert_intermediate_size, 32);
  EXPECT_EQ(laguna.moe->routed_scaling_factor, 2.5);
  EXPECT_EQ(laguna.moe->router_logit_softcapping, 30.0);
}

TEST(HfConfig, GemmaScalesCapsAndTies) {
  const HfConfig gemma2 = Parse(Config("gemma2", R"({"query_pre_attn_scalar": 48, "sliding_window": 8})"));
  EXPECT_TRUE(gemma2.model.tie_word_embeddings);
  EXPECT_EQ(gemma2.model.embed_multiplier, 8.0);
  EXPECT_EQ(gemma2.model.query_pre_attn_scalar, 48.0);
  EXPECT_EQ(gemma2.model.hidden_act, Activation::kGeluTanh);
  EXPECT_EQ(gemma2.model.attn_logit_softcapping, 50.0);  // absent: the library's
  EXPECT_EQ(gemma2.model.final_logit_softcapping, 30.0);
  const HfConfig uncapped =
      Parse(Config("gemma2", R"({"attn_logit_softcapping": null, "final_logit_softcapping": null})"));
  EXPECT_FALSE(uncapped.model.attn_logit_softcapping);  // null: none
  EXPECT_FALSE(uncapped.model.final_logit_softcapping);

  // The smallest files name little more than the sizes.
  const HfConfig gemma3 = Parse(R"({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text",
    "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 7, "sliding_window": 1024,
    "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}, "vision_config": {"hidden_size": 9}})");
  EXPECT_EQ(gemma3.model.arch_name, "gemma3");
  EXPECT_EQ(gemma3.model.num_attention_heads, 8);
  EXPECT_EQ(gemma3.model.head_dim, 256);
  EXPECT_EQ(gemma3.model.vocab_size, 262208);
  EXPECT_EQ(gemma3.model.rope.theta, 1e6);
  EXPECT_EQ(gemma3.model.rope.kind, RopeKind::kLinear);
  ASSERT_TRUE(gemma3.model.rope_local);
  EXPECT_EQ(gemma3.model.rope_local->theta, 1e4);
  EXPECT_EQ(gemma3.model.rope_local->kind, RopeKind::kDefault);
  EXPECT_EQ(gemma3.model.sliding_window_pattern, 6);
  EXPECT_FALSE(gemma3.model.attn_logit_softcapping);
  EXPECT_TRUE(gemma3.is_multimodal);
  EXPECT_THAT(gemma3.warnings, IsEmpty());
}

TEST(HfConfig, Gemma4KnowsGlobalHeadsAndPerLayerInputs) {
  const ModelConfig small =
      Parse(Config("gemma4_text", R"({"global_head_dim": 64, "num_global_key_value_heads": 1,
    "num_kv_shared_layers": 2, "hidden_size_per_layer_input": 16, "vocab_size_per_layer_input": 90, "rope_theta": null,
    "use_bidirectional_attention": "vision"})"))
          .model;
  EXPECT_EQ(small.norm_style, NormStyle::kPlain);
  EXPECT_EQ(small.query_pre_attn_scalar, 1.0);
  EXPECT_TRUE(small.attn_v_norm);
  EXPECT_EQ(small.global_head_dim, 64);
  EXPECT_EQ(small.num_global_kv_heads, 2);  // its own count is for layers without v_proj
  EXPECT_EQ(small.hidden_size_per_layer_input, 16);
  EXPECT_EQ(small.vocab_size_per_layer_input, 90);
  EXPECT_EQ(small.num_kv_shared_layers, 2);
  EXPECT_EQ(small.rope.kind, RopeKind::kProportional);
  EXPECT_EQ(small.rope.partial_rotary_factor, 0.25);
  EXPECT_EQ(small.rope.theta, 1e6);
  EXPECT_EQ(small.rope_local->theta, 1e4);

  const ModelConfig dense =
      Parse(Config("gemma4_text", R"({"global_head_dim": 64, "num_global_key_value_heads": 1,
    "attention_k_eq_v": true, "hidden_size_per_layer_input": null})"))
          .model;
  EXPECT_EQ(dense.num_global_kv_heads, 1);
  EXPECT_EQ(dense.hidden_size_per_layer_input, 0);
  EXPECT_EQ(ParseError(Config("gemma4_text", R"({"enable_moe_block": true})")).kind, ErrorKind::kUnsupported);
}

TEST(HfConfig, Lfm2RoundsItsWidthAndNamesItsLayers) {
  const ModelConfig model = Parse(Config("lfm2", R"({"block_ff_dim": 12288, "block_auto_adjust_ff_dim": true,
    "block_multiple_of": 256, "conv_L_cache": 3, "norm_eps": 1e-5, "rms_norm_eps": null,
    "layer_types": ["conv", "short_conv", "full_attention", "conv"]})"))
                                .model;
  EXPECT_EQ(model.intermediate_size, 8192);
  EXPECT_THAT(model.layer_types, ElementsAre(kConv, kConv, kFull, kConv));
  EXPECT_EQ(model.linear_attention->conv_kernel, 3);
  EXPECT_EQ(model.rms_norm_eps, 1e-5);
  EXPECT_TRUE(model.tie_word_embeddings);
}

TEST(HfConfig, LoopedModelsCountTheirPasses) {
  const ModelConfig model =
      Parse(Config("nanbeige", R"({"num_loops": 2, "skip_loop_final_norm": false})")).model;
  EXPECT_EQ(model.num_loops, 2);
  EXPECT_TRUE(model.loop_final_norm);
  EXPECT_FALSE(Parse(Config("nanbeige", R"({"num_loops": 2})")).model.loop_final_norm);
}

TEST(HfConfig, TheTieFlagMayLiveAtEitherLevel) {
  const auto nested = [](const char* outer, const char* inner) {
    Json config = Json::parse(outer);
    config["model_type"] = "qwen3_vl";
    config["text_config"] = Json::parse(Config("qwen3", inner));
    return Parse(DumpJson(config));
  };
  EXPECT_TRUE(nested(R"({"tie_word_embeddings": true})", "{}").model.tie_word_embeddings);
  EXPECT_TRUE(nested("{}", R"({"tie_word_embeddings": true})").model.tie_word_embeddings);
  EXPECT_FALSE(nested(R"({"tie_word_embeddings": false})", R"({"tie_word_embeddings": true})")
                   .model.tie_word_embeddings);
  EXPECT_TRUE(nested("{}", "{}").tie_is_default);
  EXPECT_EQ(nested("{}", "{}").model.arch_name, "qwen3_vl");
}

// ---- refusals

TEST(HfConfig, RefusesFamiliesActivationsAndPackedWeightsByName) {
  const std::tuple<std::string, const char*> rows[] = {
      {Config("mixtral"), "model_type 'mixtral'"},
      {Config("gemma3n"), "model_type 'gemma3n'"},
      {Config("gpt_oss"), "model_type 'gpt_oss'"},
      {Config("llama", R"({"hidden_act": "relu2"})"), "hidden_act: 'relu2'"},
      {Config("llama", R"({"rope_scaling": {"type": "ntk-yarn", "factor": 2}})"), "'ntk-yarn'"},
      {Config("llama", R"({"quantization_config": {"quant_method": "fp8"}})"), "packed as 'fp8'"},
      {Config("llama", R"({"quantization_config": {"quant_method": "mxfp4"}})"), "packed as 'mxfp4'"},
      {Config("llama", R"({"quantization": {"group_size": 64, "bits": 4}})"), "packed as 'mlx'"},
      {Config("llama", R"({"compression_config": {"format": "pack-quantized"}})"),
       "packed as 'pack-quantized'"},
      {Config(
           "llama",
           R"({"layer_types": ["chunked_attention", "full_attention", "full_attention", "full_attention"]})"),
       "\"chunked_attention\""},
      {Config("laguna", R"({"swa_attention_sink_enabled": true})"), "swa_attention_sink_enabled is true"},
      {Config("novel", R"({"residual_multiplier": 0.22})"), "residual_multiplier is 0.22"},
      {Config("gemma3_text", R"({"use_bidirectional_attention": true})"),
       "use_bidirectional_attention is true"},
  };
  for (const auto& [config, words] : rows) {
    const Error error = ParseError(config);
    EXPECT_EQ(error.kind, ErrorKind::kUnsupported) << words;
    EXPECT_THAT(error.message, AllOf(HasSubstr("dir/config.json"), HasSubstr(words)));
  }
}

TEST(HfConfig, NamesFileAndKeyOfWhatIsWrong) {
  const std::tuple<std::string, const char*> rows[] = {
      {"{", "dir/config.json: not valid JSON"},
      {"[]", "dir/config.json: not an object"},
      {"{}", "dir/config.json: key 'model_type' is missing"},
      {R"({"model_type": 3})", "model_type: 3 is not a string"},
      {R"({"model_type": "llama"})", "dir/config.json: key 'hidden_size' is missing"},
      {R"({"model_type": "x", "text_config": {"model_type": "llama"}})",
       "text_config: key 'hidden_size' is missing"},
      {Config("llama", R"({"hidden_size": "64"})"), "hidden_size: \"64\" is not a whole number"},
      {Config("llama", R"({"hidden_size": 64.5})"), "hidden_size: 64.5 is not a whole number"},
      {Config("llama", R"({"hidden_size": 0})"), "hidden_size: 0 is not between 1 and"},
      {Config("llama", R"({"num_hidden_layers": 1000000000000})"),
       "num_hidden_layers: 1000000000000 is not between 1 and 65536"},
      {Config("llama", R"({"num_hidden_layers": -1})"), "num_hidden_layers: -1 is not between"},
      {Config("llama", R"({"hidden_size": 1e300})"), "hidden_size: 1e+300 is not between"},
      {Config("llama", R"({"num_key_value_heads": 3})"),
       "4 heads are not a multiple of num_key_value_heads = 3"},
      {Config("llama", R"({"head_dim": null, "num_attention_heads": 3, "num_key_value_heads": 3})"),
       "head_dim: absent"},
      {Config("llama", R"({"rms_norm_eps": 0})"), "rms_norm_eps: 0 is not above 0"},
      {Config("llama", R"({"rope_theta": -1})"), "rope_theta: -1 is not above 0"},
      {Config("llama", R"({"rope_scaling": "linear"})"), "rope_scaling: not an object"},
      {Config("llama", R"({"rope_scaling": {"type": "linear"}})"), "rope_scaling: key 'factor' is missing"},
      {Config("llama", R"({"layer_types": ["full_attention"]})"),
       "layer_types: not a list of num_hidden_layers = 4"},
      {Config("llama", R"({"partial_rotary_factor": 2})"), "partial_rotary_factor: 2 is not in (0, 1]"},
      {Config("llama", R"({"tie_word_embeddings": "yes"})"),
       "tie_word_embeddings: \"yes\" is not true or false"},
      {Config("laguna", R"({"num_attention_heads_per_layer": [4, 4, 3, 4]})"), "3 heads are not a multiple"},
      {Config("gemma4_text", R"({"num_kv_shared_layers": 4})"), "4 of 4 layers"},
  };
  for (const auto& [config, words] : rows) {
    const Error error = ParseError(config);
    EXPECT_EQ(error.kind, ErrorKind::kCorrupt) << config;
    EXPECT_THAT(error.message, HasSubstr(words));
    EXPECT_EQ(error.message.find('\n'), error.message.npos);
  }
}

TEST(HfConfig, AWholeNumberMayBeWrittenAsAFloat) {
  EXPECT_EQ(Parse(Config("llama", R"({"hidden_size": 64.0})")).model.hidden_size, 64);
}

TEST(HfConfig, BlanksAndLineEndsAroundTheDocumentAreFine) {
  EXPECT_EQ(Parse("\xEF\xBB\xBF\r\n" + Config("llama") + "\r\n\r\n").model.num_layers, 4);
}

// ---- chat, stop ids, sampling

TEST(HfConfig, MergesStopIdsFromEveryFile) {
  HfConfigFiles files;
  files.config =
      R"({"model_type": "qwen3_5", "eos_token_id": [5, 6], "text_config": )" +
      Config("qwen3_5_text", R"({"eos_token_id": 7, "bos_token_id": null, "linear_num_key_heads": 2,
                   "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 16,
                   "linear_conv_kernel_dim": 4})") +
      "}";
  files.generation_config = R"({"eos_token_id": [6, 9], "bos_token_id": 3, "pad_token_id": 0})";
  files.tokenizer_config =
      R"({"eos_token": "<end>", "bos_token": {"content": "<begin>"}, "pad_token": "<pad>"})";
  files.tokenizer_json = R"({"version": "1.0", "added_tokens": [{"id": 11, "content": "<end>"}, {"id": 12,
    "content": "<begin>"}], "model": {"vocab": {}}})";
  const HfConfig config = Parse(files);
  EXPECT_THAT(config.chat.eos_token_ids, ElementsAre(6, 9, 5, 7, 11));
  EXPECT_EQ(config.chat.bos_token_id, 3);
  EXPECT_EQ(config.chat.pad_token_id, 0);
  EXPECT_THAT(config.warnings, IsEmpty());
}

TEST(HfConfig, ZeroIsAStopIdAndNonsenseIsAWarning) {
  EXPECT_THAT(Parse(Config("llama", R"({"eos_token_id": 0})")).chat.eos_token_ids, ElementsAre(0));
  const HfConfig odd = Parse(Config("llama", R"({"eos_token_id": [1, "</s>", -5, 1e30, null]})"));
  EXPECT_THAT(odd.chat.eos_token_ids, ElementsAre(1));
  EXPECT_EQ(odd.warnings.size(), 4u);
  EXPECT_THAT(odd.warnings, Contains(HasSubstr("eos_token_id: \"</s>\" makes no sense here")));
}

TEST(HfConfig, ABrokenSideFileIsAWarning) {
  HfConfigFiles files;
  files.folder = "dir";
  files.config = Config("llama", R"({"eos_token_id": 2})");
  files.generation_config = "{\"eos_token_id\": 3,, }";
  files.tokenizer_config = "[]";
  const HfConfig config = Parse(files);
  EXPECT_THAT(config.chat.eos_token_ids, ElementsAre(2));
  EXPECT_THAT(config.warnings, ElementsAre(HasSubstr("dir/generation_config.json: not valid JSON near byte"),
                                           "dir/tokenizer_config.json: not an object: ignored"));
}

TEST(HfConfig, FindsTheChatTemplateByPrecedence) {
  HfConfigFiles files;
  files.config = Config("llama");
  files.chat_template_json = R"({"chat_template": "from json"})";
  EXPECT_EQ(Parse(files).chat.chat_template, "from json");
  files.tokenizer_config = R"({"chat_template": [{"name": "tool_use", "template": "tools"},
    {"name": "default", "template": "plain"}], "extra_special_tokens": ["<a>"], "model_max_length": 1e30})";
  EXPECT_EQ(Parse(files).chat.chat_template, "plain");
  files.tokenizer_config = R"({"chat_template": "one", "extra_special_tokens": {"a": "<a>"}})";
  EXPECT_EQ(Parse(files).chat.chat_template, "one");
  files.chat_template = " \n";
  EXPECT_EQ(Parse(files).chat.chat_template, "one");
  files.chat_template = "{{ x }}\n";
  EXPECT_EQ(Parse(files).chat.chat_template, "{{ x }}\n");
}

TEST(HfConfig, RecommendedSamplingComesFromGenerationConfigAlone) {
  HfConfigFiles files;
  files.config = Config("llama", R"({"temperature": 1.0, "top_k": 50})");
  EXPECT_EQ(Parse(files).sampling, RecommendedSampling{});
  files.generation_config =
      R"({"do_sample": true, "temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": null,
    "repetition_penalty": 1.05, "typical_p": "much"})";
  const HfConfig config = Parse(files);
  RecommendedSampling want;
  want.do_sample = true;
  want.temperature = 0.6;
  want.top_p = 0.95;
  want.top_k = 20;
  want.repetition_penalty = 1.05;
  EXPECT_EQ(config.sampling, want);
  EXPECT_THAT(config.warnings, ElementsAre(HasSubstr("typical_p: \"much\" makes no sense here")));
}

TEST(AddedTokens, AreFoundWithoutReadingTheRest) {
  using testing::Pair;
  EXPECT_THAT(
      AddedTokens(R"({"a": {"added_tokens": [1]}, "b": "\"added_tokens\": [", "added_tokens" : [ {"id": 3,
    "content": "]}\""}, {"id": "x", "content": "y"}, {"id": 4, "content": "z"}], then garbage)"),
      ElementsAre(Pair("]}\"", 3), Pair("z", 4)));
  for (const char* text :
       {"", "{", "[]", "{\"added_tokens\"", "{\"added_tokens\": [", "{\"added_tokens\": 3}",
        "{\"added_tokens\": [}", "\"", "{\"\\", "}}}}", "{\"added_tokens\": [[[[["}) {
    EXPECT_THAT(AddedTokens(text), IsEmpty()) << text;
  }
}

}  // namespace
}  // namespace cmforge
