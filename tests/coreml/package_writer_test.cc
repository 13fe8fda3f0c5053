// What a written package consists of: names, meta.yaml, side files, programs pinned as text, equal bytes for
// equal input, and refusals by name.
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <set>

#include "base/json.h"
#include "coreml/graph_text.h"
#include "coreml/package_fixture.h"
#include "mil/package.h"

namespace cmforge::coreml {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> FilesIn(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string GoldenPath(const std::string& name) {
  return std::string(CMFORGE_TEST_DATA) + "/coreml/graphs/" + name;
}

/// Compares with a committed file; CMFORGE_UPDATE_GOLDEN writes it anew.
void ExpectGolden(const std::string& name, const std::string& text) {
  if (std::getenv("CMFORGE_UPDATE_GOLDEN")) {
    fs::create_directories(fs::path(GoldenPath(name)).parent_path());
    std::ofstream(GoldenPath(name), std::ios::binary) << text;
  }
  EXPECT_EQ(text, ReadText(GoldenPath(name))) << name;
}

TEST(WritePackage, NamesItsFilesAsReadersLookForThem) {
  const fs::path folder = ScratchFolder() / "package";
  const auto report = WriteFixture("qwen3_yarn", {64, 8, 2, 4}, folder, PackageForms::kBoth);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(FilesIn(folder),
            (std::vector<std::string>{
                "config.json", "generation_config.json", "meta.yaml", "qwen_FFN_PF_chunk_01of02.mlmodelc",
                "qwen_FFN_PF_chunk_01of02.mlpackage", "qwen_FFN_PF_chunk_02of02.mlmodelc",
                "qwen_FFN_PF_chunk_02of02.mlpackage", "qwen_embeddings.mlmodelc", "qwen_embeddings.mlpackage",
                "qwen_lm_head.mlmodelc", "qwen_lm_head.mlpackage"}));
  EXPECT_EQ(FilesIn(folder.parent_path()), std::vector<std::string>{"package"});  // nothing left over
}

TEST(WritePackage, TellsMetaYamlWhatReadersAsk) {
  for (const auto& [name, graph] :
       std::vector<std::pair<std::string, GraphOptions>>{{"qwen3_yarn", {64, 8, 2, 4}},
                                                         {"qwen3_5", {96, 16, 1, 16}},
                                                         {"qwen3_5_moe", {64, 8, 1, 4}},
                                                         {"gemma4", {16, 4, 1, 4}},
                                                         {"gemma4", {64, 4, 2, 4}}}) {
    const fs::path folder = ScratchFolder() / "package";
    const auto report = WriteFixture(name, graph, folder, PackageForms::kBoth);
    ASSERT_TRUE(report) << report.error().message;
    const std::string text = ReadText(folder / "meta.yaml");
    ExpectGolden(fmt::format("{}_ctx{}.meta.yaml", name, graph.context_length), text);
    const YAML::Node parameters = YAML::Load(text)["model_info"]["parameters"];
    EXPECT_EQ(parameters["context_length"].as<int>(), graph.context_length);
    EXPECT_EQ(parameters["recurrent_state"].IsDefined(), name.starts_with("qwen3_5"));
    EXPECT_EQ(parameters["local_cache_length"].IsDefined(), name == "gemma4" && graph.context_length == 64);
    // Our own reader understands all of it.
    const PackageMeta meta = MetaOf(folder);
    EXPECT_EQ(meta.num_chunks, graph.num_chunks);
    EXPECT_EQ(meta.embeddings, meta.model_prefix + "_embeddings.mlmodelc");
    EXPECT_TRUE(meta.prefill_last_token_output);
    EXPECT_EQ(std::accumulate(meta.lm_head_chunk_sizes.begin(), meta.lm_head_chunk_sizes.end(), int64_t{0}),
              131);
  }
}

TEST(WritePackage, PinsTheGraphsOfSmallModels) {
  for (const auto& [name, graph] :
       std::vector<std::pair<std::string, GraphOptions>>{{"qwen3_yarn", {32, 4, 3, 3}},
                                                         {"qwen3_5", {32, 8, 4, 1}},
                                                         {"qwen3_5_moe", {32, 4, 4, 1}},
                                                         {"gemma4", {16, 4, 6, 2}},
                                                         {"gemma4", {64, 4, 6, 2}}}) {
    const fs::path folder = ScratchFolder() / "package";
    ASSERT_TRUE(WriteFixture(name, graph, folder));
    std::string text;
    const auto parts = FindParts(folder, MetaOf(folder));
    ASSERT_TRUE(parts) << parts.error().message;
    // The ends, a chunk that begins and one that ends: what lies between repeats.
    for (const fs::path& part :
         {parts->embeddings, parts->chunks.front(), parts->chunks.back(), parts->lm_head}) {
      const auto package = mil::OpenPackage(part);
      ASSERT_TRUE(package) << package.error().message;
      text += "== " + part.stem().string() + "\n";
      for (const auto& [function_name, function] : package->model.program.functions)
        text += GraphText(function_name, function);
    }
    ExpectGolden(fmt::format("{}_ctx{}.txt", name, graph.context_length), text);
  }
}

TEST(WritePackage, WritesTheSameBytesWhateverTheThreads) {
  const fs::path one = ScratchFolder() / "one", two = one.parent_path() / "two";
  ASSERT_TRUE(WriteFixture("qwen3_5", {64, 8, 2, 4}, one, PackageForms::kBoth, 1));
  ASSERT_TRUE(WriteFixture("qwen3_5", {64, 8, 2, 4}, two, PackageForms::kBoth, 3));
  size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(one)) {
    if (!entry.is_regular_file()) continue;
    ++files;
    const fs::path other = two / fs::relative(entry.path(), one);
    EXPECT_EQ(ReadText(entry.path()), ReadText(other)) << other;
  }
  EXPECT_GT(files, 20u);
}

TEST(WritePackage, TheCompiledFormRunsLikeThePackage) {
  const fs::path folder = ScratchFolder() / "package";
  ASSERT_TRUE(WriteFixture("qwen3_yarn", {64, 8, 2, 4}, folder, PackageForms::kBoth));
  const auto tokens = SomeTokens(11, 131);
  const PackageMeta meta = MetaOf(folder);
  const auto compiled = LoadPackage(folder, meta);
  ASSERT_TRUE(compiled) << compiled.error().message;
  const auto a = NewSequence(**compiled);
  const auto expected = LastLogits(**compiled, *a, tokens);
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".mlmodelc") fs::remove_all(entry.path());
  }
  const auto package = LoadPackage(folder, meta);  // readers fall back to what is there
  ASSERT_TRUE(package) << package.error().message;
  const auto b = NewSequence(**package);
  EXPECT_EQ(LastLogits(**package, *b, tokens), expected);
  EXPECT_EQ((*package)->identity(), (*compiled)->identity());
}

TEST(WritePackage, SharesWeightsAndStatesBetweenFunctions) {
  const fs::path folder = ScratchFolder() / "package";
  ASSERT_TRUE(WriteFixture("qwen3_5", {64, 8, 4, 4}, folder));
  const auto package = mil::OpenPackage(folder / "qwen35_FFN_PF_chunk_01of04.mlpackage");
  ASSERT_TRUE(package) << package.error().message;
  std::map<std::string, std::set<std::string>> states;  // by function
  std::map<std::string, std::set<std::string>> read;
  std::map<std::string, std::set<uint64_t>> blobs_of;  // by weight name
  for (const auto& [name, function] : package->model.program.functions) {
    for (const mil::NamedType& input : function.inputs) {
      if (input.type.is_state()) states[name].insert(input.name);
    }
    for (const mil::Operation& op : function.body.operations) {
      if (op.type == "read_state") read[name].insert(std::get<std::string>(op.inputs.at("input")[0]));
      if (op.type == "const" && op.attributes.at("val").blob())
        blobs_of[op.outputs[0].name].insert(op.attributes.at("val").blob()->offset);
    }
  }
  EXPECT_EQ(states["infer"].size(), 3u);
  EXPECT_EQ(states["infer"], states["prefill"]);
  EXPECT_EQ(read["infer"], states["infer"]);  // also those of layers that lie in other chunks
  EXPECT_EQ(read["prefill"], states["prefill"]);
  for (const auto& [weight, offsets] : blobs_of) EXPECT_EQ(offsets.size(), 1u) << weight;
  EXPECT_EQ(package->model.description.metadata.user_defined.at("com.anemll.layers"), "0-0");
  EXPECT_EQ(package->model.description.default_function, "infer");
}

TEST(WritePackage, MakesSideFilesWhenTheSourceIsNoFolder) {
  const Checkpoint checkpoint = OpenFixture("qwen3_5");
  PackageSource source = SourceOf(checkpoint, "qwen3_5");
  source.checkpoint.clear();
  source.tokenizer_json = R"({"version":"1.0","added_tokens":[{"id":2,"content":"<eos>"}]})";
  source.chat = ChatBundle{"{{ messages }}", {2, 3}, TokenId{1}, std::nullopt};
  source.sampling.temperature = 0.6;
  const fs::path folder = ScratchFolder() / "package";
  PackageOptions options;
  options.graph = {64, 8, 1, 4};
  options.forms = PackageForms::kPackage;
  ThreadPool pool(1);
  const auto report = WritePackage(source, options, folder, pool, {});
  ASSERT_TRUE(report) << report.error().message;
  // What was written means the same model again.
  const auto files = ReadHfConfigFiles(folder, source.tokenizer_json);
  ASSERT_TRUE(files) << files.error().message;
  const auto config = ParseHfConfig(*files);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->model.rope, source.config.rope);
  EXPECT_EQ(config->model.layer_types, source.config.layer_types);
  EXPECT_EQ(config->model.linear_attention, source.config.linear_attention);
  EXPECT_EQ(config->chat.eos_token_ids, (std::vector<TokenId>{2, 3}));
  EXPECT_EQ(config->chat.chat_template, "{{ messages }}");
  EXPECT_EQ(config->sampling.temperature, 0.6);
  EXPECT_NE(ReadText(folder / "tokenizer_config.json").find("\"eos_token\": \"<eos>\""), std::string::npos);
  EXPECT_NE(ReadText(folder / "meta.yaml")
                .find("recommended_sampling: {do_sample: false, temperature: 0.6, top_p: 1.0, top_k: 50}"),
            std::string::npos);
}

TEST(WritePackage, ReplacesAPackageAndNothingElse) {
  const GraphOptions graph{64, 8, 1, 4};
  const fs::path folder = ScratchFolder() / "package";
  ASSERT_TRUE(WriteFixture("qwen3_yarn", {64, 8, 2, 4}, folder, PackageForms::kBoth));
  ASSERT_TRUE(WriteFixture("qwen3_yarn", graph, folder));  // another form and other chunks
  std::ofstream(folder / "tokenizer.model") << "as published packages have it";
  ASSERT_TRUE(WriteFixture("qwen3_yarn", graph, folder));
  EXPECT_EQ(FilesIn(folder),
            (std::vector<std::string>{"config.json", "generation_config.json", "meta.yaml",
                                      "qwen_FFN_PF_chunk_01of01.mlpackage", "qwen_embeddings.mlpackage",
                                      "qwen_lm_head.mlpackage"}));
  // Everything foreign is kept, and named.
  const auto refused = [&](const std::string& named) {
    const auto before = FilesIn(folder);
    const auto report = WriteFixture("qwen3_yarn", graph, folder);
    ASSERT_FALSE(report) << named;
    EXPECT_EQ(report.error().kind, ErrorKind::kUsage);
    EXPECT_NE(report.error().message.find(named), std::string::npos) << report.error().message;
    EXPECT_EQ(FilesIn(folder), before);
    EXPECT_EQ(FilesIn(folder.parent_path()), std::vector<std::string>{"package"});
  };
  for (const char* name :
       {"notes.txt", ".hidden", "model.safetensors", "qwen_lm_head.txt", "qwen_lm_head.mlmodelc"}) {
    std::ofstream(folder / name) << "mine";
    refused(fmt::format("'{}'", name));
    fs::remove(folder / name);
  }
  for (const char* name : {"photos", "tokenizer.json", "other_lm_head.mlpackage", "qwen.mlpackage"}) {
    fs::create_directories(folder / name / "inner");
    refused(fmt::format("'{}'", name));
    fs::remove_all(folder / name);
  }
  std::ofstream(folder / "z.txt") << "mine";
  std::ofstream(folder / "a.txt") << "mine";
  refused("'a.txt'");
  fs::remove(folder / "z.txt");
  fs::remove(folder / "a.txt");
  // A meta.yaml of something else makes no package.
  const std::string meta = ReadText(folder / "meta.yaml");
  for (const char* other : {"title: holiday", "- a\n- b\n", ""}) {
    std::ofstream(folder / "meta.yaml", std::ios::trunc) << other;
    refused("no package that could be replaced");
  }
  std::ofstream(folder / "meta.yaml", std::ios::trunc) << meta;
  EXPECT_TRUE(WriteFixture("qwen3_yarn", graph, folder));
}

TEST(WritePackage, CompletesConfigJson) {
  const fs::path folder = ScratchFolder() / "package";
  ASSERT_TRUE(WriteFixture("qwen3_5", {64, 8, 1, 4}, folder));
  const auto config = ParseJson(ReadText(folder / "config.json"), "config.json");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->at("eos_token_id"), 2);  // the checkpoint has it in text_config
  EXPECT_EQ(config->at("tokenizer_class"), "Qwen2Tokenizer");
  EXPECT_TRUE(config->contains("text_config"));  // nothing is taken away
}

TEST(WritePackage, RefusesByName) {
  const fs::path folder = ScratchFolder() / "package";
  const auto refuses = [&](const char* name, GraphOptions graph, ErrorKind kind, const char* what) {
    const auto report = WriteFixture(name, graph, folder);
    ASSERT_FALSE(report) << name;
    EXPECT_EQ(report.error().kind, kind) << report.error().message;
    EXPECT_NE(report.error().message.find(what), std::string::npos) << report.error().message;
    EXPECT_FALSE(fs::exists(folder));
  };
  const GraphOptions fine = {64, 8, 1, 4};
  refuses("llama", fine, ErrorKind::kUnsupported, "'llama'");
  refuses("gemma3", fine, ErrorKind::kUnsupported, "'gemma3'");
  refuses("gemma4_dense", fine, ErrorKind::kUnsupported, "attention_k_eq_v");
  refuses("qwen3_moe", fine, ErrorKind::kUnsupported, "'qwen3_moe'");
  refuses("laguna", fine, ErrorKind::kUnsupported, "'laguna'");
  refuses("qwen3_yarn", {64, 65, 1, 4}, ErrorKind::kUsage, "batch-size 65");
  refuses("qwen3_yarn", {64, 0, 1, 4}, ErrorKind::kUsage, "batch-size 0");
  refuses("qwen3_yarn", {4096, 8, 1, 4}, ErrorKind::kUsage, "context-length 4096");
  refuses("qwen3_yarn", {64, 8, 4, 4}, ErrorKind::kUsage, "chunks 4");
  refuses("qwen3_yarn", {64, 8, 1, 132}, ErrorKind::kUsage, "split-lm-head 132");
}

TEST(WritePackage, ReplacesAnOlderPackageAndNothingElse) {
  const fs::path folder = ScratchFolder() / "package";
  ASSERT_TRUE(WriteFixture("qwen3_yarn", {64, 8, 2, 4}, folder));
  ASSERT_TRUE(WriteFixture("qwen3_yarn", {64, 8, 1, 4}, folder));
  EXPECT_FALSE(fs::exists(folder / "qwen_FFN_PF_chunk_01of02.mlpackage"));
  const fs::path other = folder.parent_path() / "other";
  fs::create_directories(other);
  std::ofstream(other / "letter.txt") << "mine";
  const auto report = WriteFixture("qwen3_yarn", {64, 8, 1, 4}, other);
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().kind, ErrorKind::kUsage);
  EXPECT_EQ(ReadText(other / "letter.txt"), "mine");
}

TEST(EvenParts, PutsTheRemainderInFront) {
  EXPECT_EQ(EvenParts(131, 4), (std::vector<int64_t>{33, 33, 33, 32}));
  EXPECT_EQ(EvenParts(28, 4), (std::vector<int64_t>{7, 7, 7, 7}));
  EXPECT_EQ(EvenParts(3, 3), (std::vector<int64_t>{1, 1, 1}));
}

}  // namespace
}  // namespace cmforge::coreml
