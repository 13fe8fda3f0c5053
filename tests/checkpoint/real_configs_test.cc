// Published configuration files and what a right reader concludes from them. The files' licences are unknown,
// so they are not part of this repository; the oddities they teach are in hf_config_test.cc again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/json.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/temp_folder.h"

namespace cmforge {
namespace {

namespace fs = std::filesystem;
const fs::path kFolder = CMFORGE_SOURCE_DIR "/../shared/fixtures/real-configs";
// Families that the expectations call out of scope and that we run on purpose.
const std::set<std::string> kRunAnyway = {"gemma", "lfm2_vl"};

const char* KindName(RopeKind kind) {
  switch (kind) {
    case RopeKind::kDefault:
      return "default";
    case RopeKind::kLinear:
      return "linear";
    case RopeKind::kDynamic:
      return "dynamic";
    case RopeKind::kLlama3:
      return "llama3";
    case RopeKind::kYarn:
      return "yarn";
    case RopeKind::kLongRope:
      return "longrope";
    case RopeKind::kProportional:
      return "proportional";
  }
  return "";
}

void CompareRope(const Json& want, const RopeConfig& rope, int64_t head_dim) {
  EXPECT_EQ(rope.theta, want["theta"].get<double>());
  EXPECT_EQ(KindName(rope.kind), want["type"].get<std::string>());
  EXPECT_EQ(rope.partial_rotary_factor, want["partial_rotary_factor"].get<double>());
  if (rope.kind == RopeKind::kProportional) {
    EXPECT_EQ(head_dim, want["rotary_dims"].get<int64_t>());
  } else {
    EXPECT_EQ(static_cast<int64_t>(static_cast<double>(head_dim) * rope.partial_rotary_factor),
              want["rotary_dims"].get<int64_t>());
  }
  const auto number = [&](const char* key, double got) {
    if (want.contains(key)) {
      EXPECT_DOUBLE_EQ(got, want[key].get<double>()) << key;
    }
  };
  number("factor", rope.factor);
  number("low_freq_factor", rope.low_freq_factor);
  number("high_freq_factor", rope.high_freq_factor);
  number("original_max_position_embeddings", static_cast<double>(rope.original_max_position_embeddings));
  if (rope.kind == RopeKind::kLongRope) {
    number("attention_factor", rope.attention_factor.value_or(0));
    EXPECT_EQ(rope.long_factor.front(), want["long_factor_first_last"][0].get<double>());
    EXPECT_EQ(rope.long_factor.back(), want["long_factor_first_last"][1].get<double>());
  }
}

std::vector<int64_t> LayersOf(const ModelConfig& model, LayerKind kind) {
  std::vector<int64_t> layers;
  for (int64_t i = 0; i < model.num_layers; ++i) {
    if (model.layer_types[static_cast<size_t>(i)] == kind) layers.push_back(i);
  }
  return layers;
}

void CompareLayers(const Json& want, const std::vector<int64_t>& got, int64_t count) {
  if (want.is_array()) {
    EXPECT_EQ(got, want.get<std::vector<int64_t>>());
  } else {
    EXPECT_EQ(static_cast<int64_t>(got.size()), want == "all" ? count : 0) << want;
  }
}

void CompareOptional(const Json& want, const std::optional<double>& got, const char* what) {
  if (want.is_null()) {
    EXPECT_FALSE(got) << what;
  } else {
    ASSERT_TRUE(got) << what;
    EXPECT_DOUBLE_EQ(*got, want.get<double>()) << what;
  }
}

void Compare(const Json& want, const HfConfig& config) {
  const ModelConfig& model = config.model;
  EXPECT_EQ(model.arch_name, want["model_type"].get<std::string>());
  EXPECT_EQ(config.model_type, want["text_model_type"].get<std::string>());
  const auto count = [&](const char* key, int64_t got) { EXPECT_EQ(got, want[key].get<int64_t>()) << key; };
  count("layers", model.num_layers);
  count("hidden", model.hidden_size);
  count("heads", model.num_attention_heads);
  count("kv_heads", model.num_kv_heads);
  count("head_dim", model.head_dim);
  count("vocab", model.vocab_size);
  count("max_positions", model.max_position_embeddings);
  if (want.contains("effective_intermediate")) {
    count("effective_intermediate", model.intermediate_size);
  } else if (!want["intermediate"].is_null()) {
    count("intermediate", model.intermediate_size);
  }
  EXPECT_EQ(model.tie_word_embeddings, want["tied"].get<bool>());
  EXPECT_EQ(config.tie_is_default, want["tied_source"] != "config");
  EXPECT_DOUBLE_EQ(model.rms_norm_eps, want["rms_norm_eps"].get<double>());
  EXPECT_EQ(model.norm_style, want["norm_style"] == "one_plus_w" ? NormStyle::kOnePlus : NormStyle::kPlain);
  EXPECT_EQ(model.hidden_act == Activation::kGeluTanh,
            want["activation"].get<std::string>().starts_with("gelu_tanh"));
  EXPECT_NEAR(model.embed_multiplier, want["embed_scale"].get<double>(), 1e-9);
  const double scalar = model.query_pre_attn_scalar.value_or(static_cast<double>(model.head_dim));
  EXPECT_NEAR(1 / std::sqrt(scalar), want["attention_scale"].get<double>(), 1e-12);
  CompareOptional(want["attn_logit_softcap"], model.attn_logit_softcapping, "attn_logit_softcap");
  CompareOptional(want["final_logit_softcap"], model.final_logit_softcapping, "final_logit_softcap");

  const bool is_gemma4 = want.contains("gemma4");
  CompareRope(want["rope_global"], model.rope, is_gemma4 ? model.global_head_dim : model.head_dim);
  EXPECT_EQ(model.rope_local.has_value(), !want["rope_local"].is_null());
  if (model.rope_local && !want["rope_local"].is_null())
    CompareRope(want["rope_local"], *model.rope_local, model.head_dim);

  CompareLayers(want["full_attention_layers"], LayersOf(model, LayerKind::kFullAttention), model.num_layers);
  CompareLayers(want["sliding_layers"], LayersOf(model, LayerKind::kSlidingAttention), model.num_layers);
  CompareOptional(
      want["sliding_window"],
      model.sliding_window ? std::optional(static_cast<double>(*model.sliding_window)) : std::nullopt,
      "sliding_window");

  ASSERT_EQ(model.moe.has_value(), !want["moe"].is_null());
  if (model.moe) {
    const Json& moe = want["moe"];
    EXPECT_EQ(model.moe->num_experts, moe["experts"].get<int64_t>());
    EXPECT_EQ(model.moe->top_k, moe["top_k"].get<int64_t>());
    EXPECT_EQ(model.moe->intermediate_size, moe["expert_intermediate"].get<int64_t>());
    EXPECT_EQ(model.moe->norm_topk_prob, moe["norm_topk"].get<bool>());
    EXPECT_EQ(model.moe->shared_expert_intermediate_size, moe["shared_expert_intermediate"].get<int64_t>());
    EXPECT_EQ(model.moe->router_sigmoid, moe["router"] == "sigmoid");
    EXPECT_EQ(model.moe->routed_scaling_factor, moe["routed_scaling"].get<double>());
  }
  if (!want["linear_attention"].is_null()) {
    ASSERT_TRUE(model.linear_attention);
    const Json& linear = want["linear_attention"];
    EXPECT_EQ(model.linear_attention->num_key_heads, linear["key_heads"].get<int64_t>());
    EXPECT_EQ(model.linear_attention->num_value_heads, linear["value_heads"].get<int64_t>());
    EXPECT_EQ(model.linear_attention->key_head_dim, linear["key_head_dim"].get<int64_t>());
    EXPECT_EQ(model.linear_attention->value_head_dim, linear["value_head_dim"].get<int64_t>());
    EXPECT_EQ(model.linear_attention->conv_kernel, linear["conv_kernel"].get<int64_t>());
  }
  if (want.contains("conv_kernel")) {
    EXPECT_EQ(model.linear_attention->conv_kernel, want["conv_kernel"].get<int64_t>());
  }
  EXPECT_EQ(model.mtp ? model.mtp->num_layers : 0,
            want["mtp_layers"].is_null() ? 0 : want["mtp_layers"].get<int64_t>());
  if (is_gemma4) {
    const Json& g = want["gemma4"];
    EXPECT_EQ(model.global_head_dim, g["global_head_dim"].get<int64_t>());
    EXPECT_EQ(model.num_global_kv_heads, g["global_kv_heads"].get<int64_t>());
    EXPECT_EQ(model.hidden_size_per_layer_input, g["per_layer_input_dim"].get<int64_t>());
    EXPECT_EQ(model.vocab_size_per_layer_input,
              g["per_layer_vocab"].is_null() ? 0 : g["per_layer_vocab"].get<int64_t>());
    EXPECT_EQ(model.num_kv_shared_layers, g["shared_kv_layers"].get<int64_t>());
    EXPECT_EQ(model.attn_v_norm, g["v_norm_without_weight"].get<bool>());
  }

  const ChatBundle& chat = config.chat;
  EXPECT_THAT(chat.eos_token_ids,
              testing::UnorderedElementsAreArray(want["eos_ids_union"].get<std::vector<TokenId>>()));
  EXPECT_EQ(chat.bos_token_id.value_or(-1), want["bos"].is_null() ? -1 : want["bos"].get<TokenId>());
  EXPECT_EQ(chat.pad_token_id.value_or(-1), want["pad"].is_null() ? -1 : want["pad"].get<TokenId>());
}

TEST(RealConfigs, AreReadAsExpectedOrRefusedByName) {
  if (!fs::exists(kFolder))
    GTEST_SKIP() << "no " << kFolder << ": published configuration files are not part of this repository";
  const auto expected = ParseJson(ReadAll(kFolder / "expected.json"), "expected.json");
  ASSERT_TRUE(expected) << expected.error().message;
  int read = 0, refused = 0;
  for (const auto& [name, want] : expected->items()) {
    SCOPED_TRACE(name);
    if (want.contains("kind")) continue;  // packages and tokenizers, below
    const auto files = ReadHfConfigFiles(kFolder / name);
    ASSERT_TRUE(files) << files.error().message;
    const auto config = ParseHfConfig(*files);
    const std::string type = want["model_type"].get<std::string>();
    const bool in_scope = want["in_scope_family"].get<bool>() || kRunAnyway.contains(type);
    if (!in_scope || !want["quantized_weights"].is_null()) {
      ++refused;
      ASSERT_FALSE(config) << "accepted";
      EXPECT_EQ(config.error().kind, ErrorKind::kUnsupported) << config.error().message;
      const std::string why = in_scope ? want["quantized_weights"].get<std::string>()
                                       : want["text_model_type"].get<std::string>();
      EXPECT_THAT(config.error().message,
                  testing::AllOf(testing::HasSubstr("config.json"), testing::HasSubstr("'" + why + "'")));
      continue;
    }
    ++read;
    ASSERT_TRUE(config) << config.error().message;
    Compare(want, *config);
  }
  EXPECT_GE(read, 30);
  EXPECT_GE(refused, 10);
}

TEST(RealConfigs, WarnWhereAReaderWouldWant) {
  if (!fs::exists(kFolder))
    GTEST_SKIP() << "no " << kFolder << ": published configuration files are not part of this repository";
  const std::pair<const char*, const char*> rows[] = {
      {"qwen1.5-0.5b-chat-clone", "generation_config.json: not valid JSON near byte"},
      {"qwen3.5-397b-a17b", "no rope_theta anywhere"},
      {"llama-2-7b-hf", "no rope_theta anywhere"},
  };
  for (const auto& [name, words] : rows) {
    const auto files = ReadHfConfigFiles(kFolder / name);
    ASSERT_TRUE(files);
    const auto config = ParseHfConfig(*files);
    ASSERT_TRUE(config);
    EXPECT_THAT(config->warnings, testing::Contains(testing::HasSubstr(words))) << name;
  }
}

TEST(RealConfigs, FoldersThatAreNoCheckpointAreRefused) {
  if (!fs::exists(kFolder))
    GTEST_SKIP() << "no " << kFolder << ": published configuration files are not part of this repository";
  const auto package = ReadHfConfigFiles(kFolder / "anemll-qwen3-0.6b");
  ASSERT_TRUE(package);
  const auto config = ParseHfConfig(*package);
  ASSERT_FALSE(config);
  EXPECT_THAT(config.error().message, testing::HasSubstr("key 'hidden_size' is missing"));
  EXPECT_EQ(ReadHfConfigFiles(kFolder / "smollm2-135m-instruct-tokenizer").error().kind,
            ErrorKind::kNotFound);
}

TEST(RealConfigs, TokensOfATokenizerConfigGiveIds) {
  if (!fs::exists(kFolder))
    GTEST_SKIP() << "no " << kFolder << ": published configuration files are not part of this repository";
  const fs::path folder = kFolder / "smollm2-135m-instruct-tokenizer";
  HfConfigFiles files;
  files.config =
      R"({"model_type":"llama","hidden_size":8,"num_hidden_layers":1,"num_attention_heads":1,"vocab_size":9,
                     "intermediate_size":8,"max_position_embeddings":8,"rope_theta":1e4})";
  files.tokenizer_config = ReadAll(folder / "tokenizer_config.json");
  files.special_tokens_map = ReadAll(folder / "special_tokens_map.json");
  const auto config = ParseHfConfig(files);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->chat.bos_token_id, 1);
  EXPECT_EQ(config->chat.pad_token_id, 2);
  EXPECT_THAT(config->chat.eos_token_ids, testing::ElementsAre(2));
  EXPECT_THAT(config->warnings, testing::IsEmpty());
}

}  // namespace
}  // namespace cmforge
