// Package folders: those that the converter writes are clean, and each planted fault is found.
#include "base/mapped_file.h"
#include "coreml/lint/planted.h"

namespace cmforge::coreml::lint {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::IsSubsetOf;
using testing::Not;

/// A package of a small checkpoint with tokenizer files beside it.
fs::path Written(const std::string& name, const GraphOptions& graph,
                 PackageForms forms = PackageForms::kPackage) {
  const fs::path folder = ScratchFolder() / "package";
  const auto report = WriteFixture(name, graph, folder, forms);
  EXPECT_TRUE(report) << report.error().message;
  fs::copy_file(std::string(CMFORGE_TEST_DATA) + "/text/tokenizers/synth-wordlevel/tokenizer.json",
                folder / "tokenizer.json");
  std::ofstream(folder / "tokenizer_config.json") << "{}";
  return folder;
}

Report InspectFolder(const fs::path& folder) {
  auto report = Inspect(folder);
  EXPECT_TRUE(report) << report.error().message;
  return report ? std::move(*report) : Report();
}

void Replace(const fs::path& file, const std::string& from, const std::string& to) {
  std::string text = ReadText(file);
  const size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  std::ofstream(file, std::ios::binary) << text.replace(at, from.size(), to);
}

/// Opens a part, changes its model and writes it back.
void Change(const fs::path& part, const std::function<void(mil::Model&)>& change) {
  auto package = mil::OpenPackage(part);
  ASSERT_TRUE(package) << package.error().message;
  change(package->model);
  std::ofstream(package->model_path / "model.mlmodel", std::ios::binary)
      << mil::SerializeModel(package->model);
}

TEST(LintPackage, IsCleanForEveryFamily) {
  struct Case {
    const char* name;
    GraphOptions graph;
    std::set<std::string> warnings;
  };
  // Heads of 16 are narrower than the Neural Engine's alignment; those of 32 have nothing to warn of.
  const Case cases[] = {
      {"qwen3_yarn", {256, 32, 2, 4}, {}},           {"qwen3_5_kernel3", {256, 32, 1, 4}, {}},
      {"qwen3_5", {256, 32, 2, 4}, {"state-width"}}, {"qwen3_5_moe", {256, 32, 1, 4}, {"state-width"}},
      {"gemma4", {256, 32, 2, 4}, {"state-width"}},  {"gemma4", {512, 16, 2, 4}, {"state-width"}}};
  const std::set<std::string> notes = {"cpu-edge", "cpu-only", "mixed-states", "state-length", "extension"};
  for (const Case& c : cases) {
    SCOPED_TRACE(fmt::format("{} {}", c.name, c.graph.context_length));
    const Report report = InspectFolder(Written(c.name, c.graph, PackageForms::kBoth));
    EXPECT_EQ(RulesOf(report, Severity::kWarning), c.warnings) << TextOf(report);
    std::set<std::string> allowed = notes;
    allowed.insert(c.warnings.begin(), c.warnings.end());
    EXPECT_THAT(RulesOf(report), IsSubsetOf(allowed)) << TextOf(report);
    EXPECT_EQ(report.parts.size(), static_cast<size_t>(c.graph.num_chunks) + 2);
    EXPECT_EQ(report.memory.size(), static_cast<size_t>(c.graph.num_chunks) * 2 + 2);
    EXPECT_GT(report.state_bytes, 0u);
  }
}

TEST(LintPackage, IsCleanInBothForms) {
  const fs::path folder = Written("qwen3_yarn", {256, 32, 1, 4}, PackageForms::kBoth);
  for (const char* extension : {".mlpackage", ".mlmodelc"}) {
    const Report report = InspectFolder(folder / (std::string("qwen_FFN_PF_chunk_01of01") + extension));
    EXPECT_THAT(RulesOf(report, Severity::kWarning), IsEmpty()) << TextOf(report);
  }
  // meta.yaml names the compiled form: the other one is looked at too, and counted once.
  std::ofstream(folder / "qwen_lm_head.mlpackage/Data/com.apple.CoreML/model.mlmodel") << "no model";
  const Report report = InspectFolder(folder);
  EXPECT_EQ(Of(report, "unreadable-part").part, "qwen_lm_head.mlpackage");
  EXPECT_EQ(report.parts.size(), 3u);
  EXPECT_EQ(report.memory.size(), 4u);
}

TEST(LintPackage, SeesWhatMetaYamlLacksOrSaysWrongly) {
  struct Case {
    const char *from, *to, *rule;
    Severity severity;
  };
  const Case cases[] = {
      {"  parameters:\n", "  parameter:\n", "meta-place", Severity::kError},
      {"    lut_lmhead: none\n", "", "meta-key", Severity::kError},
      {"    batch_size: 32\n", "", "meta-key", Severity::kError},
      {"batch_size: 32", "batch_size: many", "meta-value", Severity::kError},
      {"batch_size: 32", "batch_size: 16", "contract", Severity::kError},
      {"context_length: 256", "context_length: 512", "contract", Severity::kError},
      {"lut_ffn: none", "lut_ffn: 5", "meta-value", Severity::kError},
      {"context_length: 256", "context_length: 0", "meta-value", Severity::kError},
      {"vocab_size: 131", "vocab_size: -131", "meta-value", Severity::kError},
      {"num_layers: ", "num_layers: 0 # ", "meta-value", Severity::kError},
      {"num_layers: ", "num_layers: 9 # ", "meta-value", Severity::kError},
      {"    num_chunks", "    layer_types: [full_attention]\n    num_chunks", "meta-value", Severity::kError},
      {"lut_ffn: none", "lut_ffn: 6", "meta-weights", Severity::kNote},
      {"    split_lm_head: 4\n", "", "head-split-unsaid", Severity::kWarning},
      {"    split_lm_head: 4\n", "", "contract", Severity::kError},
      {"vocab_size: 131", "vocab_size: 132", "head-sizes", Severity::kError},
      {"lm_head_chunk_sizes: [33, 33, 33, 32]", "lm_head_chunk_sizes: [33, 33, 65]", "head-sizes",
       Severity::kError},
      {"lm_head_chunk_sizes: [33, 33, 33, 32]", "lm_head_chunk_sizes: [32, 33, 33, 33]", "contract",
       Severity::kError},
      {"num_chunks: 2", "num_chunks: 3", "missing-part", Severity::kError},
      {"num_chunks: 2", "num_chunks: 1", "ffn-name", Severity::kError},
      {"num_chunks: 2", "num_chunks: 1", "chunk-files", Severity::kError},
      {"lm_head: qwen", "lm_head: gwen", "missing-part", Severity::kError},
      {"model_prefix: qwen", "model_prefix: gemma3", "window-prefix", Severity::kWarning},
      {"    num_chunks", "    argmax_in_model: true\n    num_chunks", "meta-variant", Severity::kWarning},
      {"prefill_last_token_output: true", "prefill_last_token_output: false", "stock-prefill",
       Severity::kNote},
      {"    num_chunks", "    recommended_sampling: {temperature: 0.6}\n    num_chunks", "sampling",
       Severity::kNote},
  };
  const fs::path folder = Written("qwen3_yarn", {256, 32, 2, 4});
  const std::string text = ReadText(folder / "meta.yaml");
  for (const Case& c : cases) {
    SCOPED_TRACE(fmt::format("{} -> {}", c.from, c.to));
    std::ofstream(folder / "meta.yaml") << text;
    Replace(folder / "meta.yaml", c.from, c.to);
    const Report report = InspectFolder(folder);
    const Finding finding = Of(report, c.rule);
    EXPECT_EQ(finding.rule, c.rule) << TextOf(report);
    EXPECT_EQ(finding.severity, c.severity);
  }
}

TEST(LintPackage, SeesKeysThatMetaYamlHasTwice) {
  const fs::path folder = Written("qwen3_5", {256, 32, 1, 4});
  const std::string text = ReadText(folder / "meta.yaml");
  const std::pair<const char*, const char*> cases[] = {
      {"    num_chunks", "'model_info.parameters.batch_size'"},
      {"  name: ", "'model_info.batch_size'"},
      {"model_info:", "'batch_size'"},
      {"      dtype: ", "'model_info.parameters.states.batch_size'"}};
  for (const auto& [at, key] : cases) {
    const std::string line =
        std::string(at).substr(0, std::string(at).find_first_not_of(' ')) + "batch_size: 32\n";
    std::ofstream(folder / "meta.yaml") << text;
    Replace(folder / "meta.yaml", at, line + line + at);
    const Finding finding = Of(InspectFolder(folder), "meta-twice");
    EXPECT_EQ(finding.part, "meta.yaml");
    EXPECT_EQ(finding.severity, Severity::kError);
    EXPECT_THAT(finding.reason, HasSubstr(key));
  }
}

TEST(LintPackage, CountsTheLayersThatStatesHaveRoomFor) {
  const std::pair<const char*, const char*> cases[] = {
      {"qwen3_yarn", "6 rows"}, {"qwen3_5", "convolutions"}, {"gemma4", "'kv_shared_layers' lists"}};
  for (const auto& [name, reason] : cases) {
    const fs::path folder = Written(name, {256, 32, 1, 4});
    std::ofstream(folder / "config.json") << R"({"eos_token_id": 2})";  // which says nothing of layers
    const Report clean = InspectFolder(folder);
    EXPECT_THAT(RulesOf(clean, Severity::kError), IsEmpty()) << name << TextOf(clean);
    Replace(folder / "meta.yaml", "num_layers: ", "num_layers: 1");
    std::string text = ReadText(folder / "meta.yaml");
    if (const size_t types = text.find("    layer_types:"); types != text.npos)
      std::ofstream(folder / "meta.yaml") << text.erase(types, text.find('\n', types) + 1 - types);
    const Report report = InspectFolder(folder);
    const Finding finding = Of(report, "meta-value");
    EXPECT_THAT(finding.reason, HasSubstr("'num_layers' is 1")) << name << TextOf(report);
    EXPECT_THAT(finding.reason, HasSubstr(reason));
  }
}

TEST(LintPackage, SeesStatesThatMetaYamlGetsWrong) {
  const fs::path folder = Written("qwen3_5", {256, 32, 1, 4});
  Replace(folder / "meta.yaml", "model_model_gdn_state_0", "model_model_gdn_state_1");
  const Report report = InspectFolder(folder);
  EXPECT_EQ(Of(report, "meta-states").severity, Severity::kWarning);
  EXPECT_THAT(TextOf(report), HasSubstr("'model_model_gdn_state_1' is in no chunk"));
  EXPECT_THAT(TextOf(report), HasSubstr("'model_model_gdn_state_0' of the chunks is not listed"));
}

TEST(LintPackage, SeesFilesThatAreMissingBrokenOrTooMany) {
  const fs::path folder = Written("qwen3_yarn", {256, 32, 2, 4});
  fs::create_directory(folder / "qwen_FFN_PF_chunk_01of03.mlpackage");
  EXPECT_THAT(Of(InspectFolder(folder), "chunk-files").reason, HasSubstr("3 files"));
  fs::remove(folder / "qwen_FFN_PF_chunk_01of03.mlpackage");
  fs::remove(folder / "tokenizer.json");
  EXPECT_THAT(RulesOf(InspectFolder(folder)), Contains("no-tokenizer"));

  const fs::path head = folder / "qwen_lm_head.mlpackage/Data/com.apple.CoreML/model.mlmodel";
  std::ofstream(head) << "no model";
  const Finding broken = Of(InspectFolder(folder), "unreadable-part");
  EXPECT_EQ(broken.part, "qwen_lm_head.mlpackage");
  fs::remove_all(folder / "qwen_lm_head.mlpackage");
  const Report report = InspectFolder(folder);
  EXPECT_THAT(Of(report, "missing-part").reason, HasSubstr("qwen_lm_head"));
  EXPECT_EQ(report.parts.size(), 3u);  // the others are inspected all the same
}

TEST(LintPackage, SeesWeightFilesThatAreMissingEmptyOrCut) {
  const fs::path folder = Written("qwen3_yarn", {256, 32, 1, 4});
  const fs::path file = folder / "qwen_lm_head.mlpackage/Data/com.apple.CoreML/weights/weight.bin";
  for (const uint64_t size : {uint64_t{300}, uint64_t{0}, UINT64_MAX}) {
    if (size == UINT64_MAX) {
      fs::remove(file);
    } else {
      fs::resize_file(file, size);
    }
    const Report report = InspectFolder(folder);
    const Finding finding = Of(report, "weight-file");
    EXPECT_EQ(finding.part, "qwen_lm_head.mlpackage") << size << TextOf(report);
    EXPECT_FALSE(finding.operation.empty());
    EXPECT_THAT(finding.remedy, HasSubstr("copy the file again"));
    EXPECT_THAT(RulesOf(report), Not(Contains("program")));
  }
}

TEST(LintPackage, SeesConfigurationsWithoutAnEnd) {
  const fs::path folder = Written("qwen3_yarn", {256, 32, 1, 4});
  for (const char* config : {"{}", R"({"text_config": {"eos_token_id": 5}})", R"({"eos_token_id": null})"}) {
    std::ofstream(folder / "config.json") << config;
    EXPECT_THAT(RulesOf(InspectFolder(folder), Severity::kWarning), Contains("no-end")) << config;
  }
  std::ofstream(folder / "config.json") << R"({"eos_token_id": [5, 6]})";
  EXPECT_THAT(RulesOf(InspectFolder(folder), Severity::kWarning), IsEmpty());
  std::ofstream(folder / "config.json") << "{";
  EXPECT_EQ(Of(InspectFolder(folder), "unreadable-part").part, "config.json");
}

TEST(LintPackage, SeesEntriesThatTheirFileDoesNotCountOrThatAreEmpty) {
  const fs::path folder = Written("qwen3_yarn", {256, 32, 1, 4});
  const fs::path part = folder / "qwen_lm_head.mlpackage",
                 file = part / "Data/com.apple.CoreML/weights/weight.bin";
  const std::string whole = ReadText(file);
  ASSERT_EQ(whole[0], 4);  // one for each part of the head
  for (const char count : {0, 1, 3}) {
    std::string bytes = whole;
    bytes[0] = count;
    std::ofstream(file, std::ios::binary) << bytes;
    const Report report = InspectFolder(folder);
    const Finding finding = Of(report, "weight-file");
    EXPECT_EQ(finding.part, "qwen_lm_head.mlpackage") << TextOf(report);
    EXPECT_THAT(finding.operation, HasSubstr("const '"));
    EXPECT_THAT(finding.reason, HasSubstr(fmt::format("its header counts {} entries", int{count})));
    EXPECT_THAT(finding.reason, HasSubstr(fmt::format("{} of the 4", 4 - count)));
  }
  // A tensor without elements is of the right size, and no weight.
  std::string bytes = whole;
  const uint64_t none = 0;
  bytes.replace(64 + 8, 8, reinterpret_cast<const char*>(&none), 8);
  std::ofstream(file, std::ios::binary) << bytes;
  Change(part, [](mil::Model& model) {
    for (mil::Operation& op : model.program.functions["main"].body.operations) {
      const auto value = op.attributes.find("val");
      if (value != op.attributes.end() && value->second.blob() && value->second.blob()->offset == 64)
        value->second.type.tensor.shape[0] = op.outputs[0].type.tensor.shape[0] = 0;
    }
  });
  EXPECT_THAT(TextOf(InspectFolder(folder)), HasSubstr("entry at 64: it holds no numbers"));
}

TEST(LintPackage, SeesTokenizersThatAreCutShort) {
  const fs::path folder = Written("qwen3_yarn", {256, 32, 1, 4});
  EXPECT_THAT(RulesOf(InspectFolder(folder), Severity::kWarning), IsEmpty());
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) {
    const std::string whole = ReadText(folder / name);
    for (const std::string& text : {std::string(), whole.substr(0, whole.size() / 2), whole + "}"}) {
      std::ofstream(folder / name) << text;
      const Finding finding = Of(InspectFolder(folder), "tokenizer");
      EXPECT_EQ(finding.part, name) << text;
      EXPECT_EQ(finding.severity, Severity::kError);
      EXPECT_THAT(finding.reason, Not(HasSubstr(folder.string())));
      EXPECT_THAT(finding.remedy, HasSubstr("copy"));
    }
    std::ofstream(folder / name) << whole;
  }
  std::ofstream(folder / "tokenizer.json") << "{}";  // without a model
  EXPECT_EQ(Of(InspectFolder(folder), "tokenizer").part, "tokenizer.json");
}

TEST(LintPackage, SeesEndsOutsideTheVocabulary) {
  const fs::path folder = Written("qwen3_yarn", {256, 32, 1, 4});
  for (const bool meta_tells : {true, false}) {  // else config.json does
    if (!meta_tells) Replace(folder / "meta.yaml", "    vocab_size: 131\n", "");
    for (const char* ids :
         {"131", "[2, 131]", "-1", "4294967298", "18446744073709551615", "[]", "[null]", "2.0", "\"2\""}) {
      std::ofstream(folder / "config.json")
          << fmt::format(R"({{"vocab_size": 131, "eos_token_id": {}}})", ids);
      const Report report = InspectFolder(folder);
      const Finding finding = Of(report, std::string_view(ids) == "[]" ? "no-end" : "end-outside");
      EXPECT_EQ(finding.part, "config.json") << ids << "\n" << TextOf(report);
      EXPECT_THAT(finding.reason, HasSubstr("eos_token_id"));
    }
    for (const char* ids : {"130", "0", "[0, 130]"}) {
      std::ofstream(folder / "config.json")
          << fmt::format(R"({{"vocab_size": 131, "eos_token_id": {}}})", ids);
      EXPECT_THAT(RulesOf(InspectFolder(folder), Severity::kWarning), IsEmpty()) << ids;
    }
  }
  std::ofstream(folder / "generation_config.json") << R"({"eos_token_id": 131})";
  EXPECT_EQ(Of(InspectFolder(folder), "end-outside").part, "generation_config.json");
  std::ofstream(folder / "generation_config.json") << "{";
  EXPECT_EQ(Of(InspectFolder(folder), "unreadable-part").part, "generation_config.json");
}

TEST(LintPackage, SeesPrefillsThatGiveTheFirstToken) {
  const fs::path folder = Written("qwen3_yarn", {256, 32, 1, 4});
  const fs::path part = folder / "qwen_FFN_PF_chunk_01of01.mlpackage";
  Change(part, [](mil::Model& model) {
    for (mil::Operation& op : model.program.functions["prefill"].body.operations) {
      const mil::Value* value = op.type == "const" ? &op.attributes.at("val") : nullptr;
      const auto numbers = value ? mil::IntegersOf(*value) : std::nullopt;
      if (numbers == std::vector<int64_t>{0, 31, 0}) op.attributes["val"] = mil::Int32s({0, 0, 0});
      if (numbers == std::vector<int64_t>{0, 32, 0}) op.attributes["val"] = mil::Int32s({0, 1, 0});
    }
  });
  EXPECT_EQ(Of(InspectFolder(folder), "first-token").severity, Severity::kError);
  Replace(folder / "meta.yaml", "prefill_last_token_output: true", "prefill_last_token_output: false");
  const Report stock = InspectFolder(folder);
  EXPECT_THAT(RulesOf(stock, Severity::kError), IsEmpty());
  EXPECT_THAT(RulesOf(stock), Contains("stock-prefill"));
}

TEST(LintPackage, SeesOutputsWithoutAShape) {
  const fs::path folder = Written("qwen3_yarn", {256, 32, 1, 4});
  Change(folder / "qwen_lm_head.mlpackage", [](mil::Model& model) {
    std::get<mil::ArrayFeature>(model.description.outputs[0].type).shape.clear();
  });
  EXPECT_EQ(Of(InspectFolder(folder), "output-shape").part, "qwen_lm_head.mlpackage");
}

TEST(LintPackage, SeesPartsThatBreakTheContract) {
  const fs::path folder = Written("qwen3_yarn", {256, 32, 2, 4});
  Change(folder / "qwen_FFN_PF_chunk_02of02.mlpackage", [](mil::Model& model) {
    model.program.functions.erase("prefill");
    model.description.functions.erase(model.description.functions.begin() + 1);
  });
  const Finding finding = Of(InspectFolder(folder), "contract");
  EXPECT_EQ(finding.part, "qwen_FFN_PF_chunk_02of02.mlpackage");
  EXPECT_THAT(finding.reason, HasSubstr("prefill"));
}

TEST(LintPackage, FailsForWhatItCannotOpen) {
  const auto kind = [](const fs::path& path) {
    const auto report = Inspect(path);
    return report ? ErrorKind::kInternal : report.error().kind;
  };
  const fs::path folder = ScratchFolder();
  EXPECT_EQ(kind(folder / "nothing"), ErrorKind::kNotFound);
  EXPECT_EQ(kind(folder), ErrorKind::kNotFound);  // no model, no package
  std::ofstream(folder / "meta.yaml") << "a: [1\n";
  EXPECT_EQ(kind(folder), ErrorKind::kCorrupt);
  std::ofstream(folder / "meta.yaml") << "[1]";
  EXPECT_EQ(kind(folder), ErrorKind::kCorrupt);
  std::ofstream(folder / "model.mlmodel") << "no model";
  EXPECT_EQ(kind(folder / "model.mlmodel"), ErrorKind::kCorrupt);
}

}  // namespace
}  // namespace cmforge::coreml::lint
