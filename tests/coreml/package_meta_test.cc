// meta.yaml in the forms that exist, and what is wrong with one.
#include "coreml/package_meta.h"

#include "coreml/tensors.h"

namespace cmforge::coreml {
namespace {

// Keys below model_info.parameters, as packages have them.
const std::string kNested = R"(model_info:
  name: anemll-Qwen-Qwen3-0.6B-ctx512
  version: 0.3.5
  description: |
    A model
      with: colons
  license: MIT
  framework: Core ML
  architecture: qwen3
  parameters:
    context_length: 512
    batch_size: 64
    lut_embeddings: none
    lut_ffn: 6
    lut_ffn_per_channel: 8
    lut_lmhead: 6
    num_chunks: 2
    model_prefix: qwen
    embeddings: qwen_embeddings.mlmodelc
    lm_head: qwen_lm_head_lut6.mlmodelc
    ffn: qwen_FFN_PF_lut6_chunk_01of02.mlmodelc
    split_lm_head: 16
    vocab_size: 151936
    lm_head_chunk_sizes: [9496, 9496, ...]
    prefill_dynamic_slice: true
    prefill_last_token_output: true
    recommended_sampling: {do_sample: true, temperature: 0.6, top_p: 0.95, top_k: 20}
    a_key_of_the_future: {deep: [1, 2, {x: y}]}
)";

// The same level for all: how a listing prints it that lost its indentation.
const std::string kFlat = R"(model_info:
name: anemll-Qwen-Qwen3.5-0.8B-ctx512
version: 0.3.5 # ANEMLL format version
context_length: 512 # KV cache length = largest position + 1
batch_size: 64
lut_ffn: 6
num_chunks: 1
model_prefix: qwen35
split_lm_head: 16
vocab_size: 248320
lm_head_chunk_sizes: [15520, 15520, ...]
hidden_size: 1024
num_layers: 24
recurrent_state: true # states that cannot be rewound
prefill_full_batches_only: true
gdn_chunk_size: 64
moe: {experts: 16, experts_per_token: 4, evaluation: dense}
layer_types: [linear, linear, linear, full, ...]
local_cache_length: 640
final_logit_softcap: 30.0
per_layer_inputs: 8960
kv_shared_layers: {15: 13, 16: 14, ...}
states:
- name: model_model_kv_cache_0
  shape: [12, 2, 512, 256]
  dtype: float16
  layers: [3, 7, 11, 15, 19, 23]
- name: model_model_gdn_state_0
  shape: [288, 128, 128]
  dtype: float16
  layers: [0, 1, 2, 4, ...]
)";

TEST(PackageMeta, IsReadNestedAsPackagesHaveIt) {
  const auto meta = ParsePackageMeta(kNested);
  ASSERT_TRUE(meta) << meta.error().message;
  EXPECT_EQ(meta->name, "anemll-Qwen-Qwen3-0.6B-ctx512");
  EXPECT_EQ(meta->version, "0.3.5");
  EXPECT_EQ(meta->architecture, "qwen3");
  EXPECT_EQ(meta->context_length, 512);
  EXPECT_EQ(meta->batch_size, 64);
  EXPECT_EQ(meta->num_chunks, 2);
  EXPECT_EQ(meta->weights.at("lut_ffn"), "6");
  EXPECT_EQ(meta->weights.at("lut_embeddings"), "none");
  EXPECT_EQ(meta->split_lm_head, 16);
  EXPECT_EQ(meta->vocab_size, 151936);
  EXPECT_EQ(meta->lm_head_chunk_sizes, (std::vector<int64_t>{9496, 9496}));
  EXPECT_TRUE(meta->prefill_dynamic_slice);
  EXPECT_TRUE(meta->prefill_last_token_output);
  EXPECT_FALSE(meta->recurrent_state);
  EXPECT_EQ(meta->recommended_sampling.temperature, 0.6);
  EXPECT_EQ(meta->recommended_sampling.top_k, 20);
  EXPECT_FALSE(meta->recommended_sampling.min_p);
}

TEST(PackageMeta, IsReadFlatAsTheSpecificationPrintsIt) {
  const auto meta = ParsePackageMeta(kFlat);
  ASSERT_TRUE(meta) << meta.error().message;
  EXPECT_EQ(meta->name, "anemll-Qwen-Qwen3.5-0.8B-ctx512");
  EXPECT_EQ(meta->model_prefix, "qwen35");
  EXPECT_TRUE(meta->recurrent_state);
  EXPECT_TRUE(meta->prefill_full_batches_only);
  EXPECT_EQ(meta->layer_types, (std::vector<std::string>{"linear", "linear", "linear", "full"}));
  EXPECT_EQ(meta->local_cache_length, 640);
  EXPECT_EQ(meta->final_logit_softcap, 30.0);
  EXPECT_EQ(meta->kv_shared_layers, (std::map<int64_t, int64_t>{{15, 13}, {16, 14}}));
  ASSERT_EQ(meta->states.size(), 2u);
  EXPECT_EQ(meta->states[1].name, "model_model_gdn_state_0");
  EXPECT_EQ(meta->states[1].shape, (Shape{288, 128, 128}));
  EXPECT_EQ(meta->states[0].layers.size(), 6u);
  // One level: everything directly below model_info.
  const auto middle = ParsePackageMeta("model_info:\n  context_length: 7\n  num_chunks: 3\n");
  ASSERT_TRUE(middle);
  EXPECT_EQ(middle->context_length, 7);
  EXPECT_EQ(middle->num_chunks, 3);
}

TEST(PackageMeta, HasDefaultsAndPrefersTheInnermostPlace) {
  const auto empty = ParsePackageMeta("{}");
  ASSERT_TRUE(empty) << empty.error().message;
  EXPECT_EQ(empty->num_chunks, 1);
  EXPECT_EQ(empty->split_lm_head, 8);
  const auto both = ParsePackageMeta(
      "batch_size: 1\nmodel_info:\n  batch_size: 2\n  parameters:\n    batch_size: 3\n    vocab_size: "
      "null\n");
  ASSERT_TRUE(both);
  EXPECT_EQ(both->batch_size, 3);
  EXPECT_FALSE(both->vocab_size);
}

TEST(PackageMeta, NamesTheKeyThatIsWrong) {
  const auto message = [](const std::string& text) {
    const auto meta = ParsePackageMeta(text);
    return meta ? std::string() : meta.error().message;
  };
  EXPECT_EQ(message("- a\n- b\n"), "no map of keys");
  EXPECT_EQ(message("context_length: many\n"), "'context_length': 'many' is not what belongs there");
  EXPECT_EQ(message("batch_size: [1]\n"), "'batch_size': 'a list or map' is not what belongs there");
  EXPECT_EQ(message("num_chunks: 0\n"), "'num_chunks' is 0, 1 to 999 makes sense");
  EXPECT_EQ(message("num_chunks: 1000000\n"), "'num_chunks' is 1000000, 1 to 999 makes sense");
  EXPECT_EQ(message("split_lm_head: -1\n"), "'split_lm_head' is -1, 1 to 4096 makes sense");
  EXPECT_EQ(message("context_length: 99999999999999999999\n"),
            "'context_length': '99999999999999999999' is not what belongs there");
  EXPECT_EQ(message("states: [1]\n"), "'states' holds something that is no map");
  EXPECT_EQ(message("a: b\n  c: d\n").rfind("line 2, column ", 0), 0u) << message("a: b\n  c: d\n");
  EXPECT_NE(message("a: [1, 2\n"), "");
  EXPECT_NE(message(std::string(2 << 20, ' ')), "");
}

TEST(PackageMeta, OfHostileShapeEndsInAnError) {
  std::string deep(100'000, '['), bomb = "a0: &a0 [x, x]\n";
  EXPECT_FALSE(ParsePackageMeta(deep));
  EXPECT_FALSE(ParsePackageMeta(std::string(100'000, '{')));
  for (int i = 1; i < 60; ++i)  // aliases of aliases: 2^60 elements, were they copied
    bomb += fmt::format("a{0}: &a{0} [*a{1}, *a{1}]\n", i, i - 1);
  const auto meta = ParsePackageMeta(bomb + "layer_types: *a0\n");
  ASSERT_TRUE(meta) << meta.error().message;
  EXPECT_EQ(meta->layer_types.size(), 2u);
  for (size_t cut = 0; cut < kNested.size(); cut += 3) (void)ParsePackageMeta(kNested.substr(0, cut));
  for (size_t at = 0; at < kFlat.size(); at += 11) {
    std::string bad = kFlat;
    for (const char c : {'\0', '\t', '[', '{', '&', '*', ':', '\xff'}) {
      bad[at] = c;
      (void)ParsePackageMeta(bad);
    }
  }
}

void MakePart(const std::filesystem::path& folder) { std::filesystem::create_directories(folder); }

TEST(FindParts, TakesEitherFormAndNamesWhatIsMissing) {
  const auto folder = FreshFolder();
  const auto meta = ParsePackageMeta(kNested);
  ASSERT_TRUE(meta);
  const auto message = [&] {
    const auto parts = FindParts(folder, *meta);
    return parts ? std::string() : parts.error().message;
  };
  EXPECT_EQ(message(),
            folder.string() +
                ": meta.yaml names parts that are not there: qwen_FFN_PF_lut6_chunk_01of02.mlmodelc, "
                "qwen_FFN_PF_lut6_chunk_02of02.mlmodelc, qwen_embeddings.mlmodelc, "
                "qwen_lm_head_lut6.mlmodelc: " +
                std::string(remedies::kMissingPart));
  MakePart(folder / "qwen_FFN_PF_lut6_chunk_01of02.mlmodelc");
  MakePart(folder / "qwen_embeddings.mlpackage");  // the other form
  MakePart(folder / "qwen_lm_head_lut6.mlmodelc");
  EXPECT_EQ(message(),
            folder.string() +
                ": meta.yaml names a part that is not there: qwen_FFN_PF_lut6_chunk_02of02.mlmodelc: " +
                std::string(remedies::kMissingPart));
  MakePart(folder / "qwen_FFN_PF_lut6_chunk_02of02.mlpackage");
  const auto parts = FindParts(folder, *meta);
  ASSERT_TRUE(parts) << parts.error().message;
  EXPECT_EQ(parts->embeddings, folder / "qwen_embeddings.mlpackage");
  EXPECT_EQ(parts->chunks[0], folder / "qwen_FFN_PF_lut6_chunk_01of02.mlmodelc");
  EXPECT_EQ(parts->chunks[1], folder / "qwen_FFN_PF_lut6_chunk_02of02.mlpackage");
}

TEST(FindParts, MakesNamesFromThePrefixAndStaysInTheFolder) {
  const auto folder = FreshFolder() / "package";
  for (const char* name :
       {"qwen_embeddings.mlmodelc", "qwen_lm_head_lut6.mlmodelc", "qwen_FFN_PF_lut4_chunk_01of01.mlmodelc"})
    MakePart(folder / name);
  MakePart(folder.parent_path() / "outside.mlmodelc");
  auto meta = ParsePackageMeta("model_prefix: qwen\nlut_ffn: 4\nlut_lmhead: 6\nlut_embeddings: none\n");
  ASSERT_TRUE(meta);
  EXPECT_TRUE(FindParts(folder, *meta));
  for (const char* name : {"../outside.mlmodelc", "..", "/etc", "a/b"}) {
    meta->lm_head = name;
    EXPECT_FALSE(FindParts(folder, *meta)) << name;
  }
  meta->lm_head = "";
  meta->num_chunks = 2;
  meta->ffn = "qwen_FFN_PF_lut4.mlmodelc";
  const auto parts = FindParts(folder, *meta);
  ASSERT_FALSE(parts);
  EXPECT_NE(parts.error().message.find("has no _chunk_01of in its name, num_chunks is 2"), std::string::npos);
}

TEST(ReadPackageMeta, NamesTheFile) {
  const auto folder = FreshFolder();
  const auto none = ReadPackageMeta(folder);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().kind, ErrorKind::kNotFound);
  WriteAll(folder / "meta.yaml", "num_chunks: x\n");
  const auto bad = ReadPackageMeta(folder);
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().message,
            (folder / "meta.yaml").string() +
                ": 'num_chunks': 'x' is not what belongs there: correct it, or convert the model again");
}

}  // namespace
}  // namespace cmforge::coreml
