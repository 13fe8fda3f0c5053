// cmforge coreml convert and check, and packages as the MODEL of other commands.
#include <map>

#include "cli/program.h"

namespace cmforge {
namespace {

class CoremlPackage : public CliTest {
 protected:
  static std::string Checkpoint(const std::string& name) {
    return std::string(CMFORGE_TEST_DATA) + "/engine/" + name;
  }
  std::string Convert(const std::string& model, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"coreml",        "convert",      "--model", model,    "--output",
                                          Path("package"), "--batch-size", "8",       "--form", "mlpackage"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Ran ran = Run(arguments);
    EXPECT_EQ(ran.status, 0) << ran.err;
    return Path("package");
  }
};

TEST_F(CoremlPackage, ConvertsAndChecks) {
  const std::string package = Convert(Checkpoint("qwen3_yarn"), {"--context-length", "96", "--chunks", "3"});
  const Ran f32 = Run({"coreml", "check", package, "--hf", Checkpoint("qwen3_yarn"), "--precision", "f32",
                       "--prompt-tokens", "17", "-n", "5", "--bench", "--plan", "--json"});
  EXPECT_EQ(f32.status, 0) << f32.out << f32.err;
  const Json json = f32.json();
  EXPECT_EQ(json.at("positions"), 22 + 2 + 1 + 5);  // all singly; two batches, one token, five generated
  EXPECT_GT(json.at("cosine_min").get<double>(), 0.9999);
  EXPECT_EQ(json.at("prefill_infer_max_abs"), 0);
  EXPECT_EQ(json.at("ok"), true);
  for (const char* key : {"cosine_mean", "max_abs", "top1_agreement", "kl_mean", "bench", "plan"})
    EXPECT_TRUE(json.contains(key)) << key;
  EXPECT_EQ(json.at("plan").size(), 1 + 3 * 2 + 1u);
  EXPECT_EQ(Run({"coreml", "check", package, "--hf", Checkpoint("qwen3_yarn"), "-n", "3"}).status, 0);
  // Another model's package, and a threshold nothing meets.
  EXPECT_EQ(Run({"coreml", "check", package, "--hf", Checkpoint("qwen3_linear"), "-n", "3"}).status, 1);
  EXPECT_EQ(Run({"coreml", "check", package, "--hf", Checkpoint("qwen3_yarn"), "--min-cosine", "1"}).status,
            1);
  // A reference of another vocabulary is no question of degree.
  EXPECT_EQ(Run({"coreml", "check", Checkpoint("qwen3_yarn"), "--hf", package}).status, 2);
}

TEST_F(CoremlPackage, RunsInEveryCommandThatRunsModels) {
  const std::string package =
      Convert(std::string(CMFORGE_SOURCE_DIR) + "/models/tiny-qwen3", {"--context-length", "128"});
  const std::string checkpoint = std::string(CMFORGE_SOURCE_DIR) + "/models/tiny-qwen3";
  const auto greedy = [&](const std::string& model) {
    const Ran ran = Run({"generate", model, "--tokens", "5,6,7,8,9,10,11,12,13,14", "-n", "12", "--greedy",
                         "--compute", "exact", "--json"});
    EXPECT_EQ(ran.status, 0) << ran.err;
    return ran.json().at("tokens");
  };
  EXPECT_EQ(greedy(package), greedy(checkpoint));
  const Ran answer =
      Run({"run", package, "--raw", "--prompt", "Once upon a time", "-n", "8", "--greedy", "--json"});
  EXPECT_EQ(answer.status, 0) << answer.err;
  EXPECT_FALSE(answer.json().at("text").get<std::string>().empty());
  const Ran logits = Run({"logits", package, "--tokens", "1,2,3", "--all", "--top", "2"});
  EXPECT_EQ(logits.json().at("positions").size(), 3u);
  std::ofstream(Path("text.txt"))
      << "Tom had a red ball. He liked to play with the ball in the park all day.";
  const Ran ppl = Run({"ppl", package, "--file", Path("text.txt"), "--context", "64", "--json"});
  EXPECT_EQ(ppl.status, 0) << ppl.err;
  const Ran reference = Run({"ppl", checkpoint, "--file", Path("text.txt"), "--context", "64", "--json"});
  EXPECT_NEAR(ppl.json().at("nll").get<double>(), reference.json().at("nll").get<double>(), 0.02);
  const Ran bench =
      Run({"bench", package, "--prompt-tokens", "16", "--gen-tokens", "2", "--repeat", "1", "--json"});
  EXPECT_EQ(bench.status, 0) << bench.err;
  EXPECT_GT(bench.json().at("bytes_per_token").get<double>(), 1e6);
  // The context is the package's: a longer prompt is refused with both numbers.
  std::string many = "1";
  for (int i = 0; i < 128; ++i) many += ",1";
  EXPECT_EQ(Run({"generate", package, "--tokens", many, "-n", "1"}).status, 7);
  const Ran full =
      Run({"generate", package, "--tokens", many.substr(2), "-n", "5", "--ignore-eos", "--greedy", "--json"});
  EXPECT_EQ(full.status, 0) << full.err;
  EXPECT_EQ(full.json().at("tokens").size(), 1u);  // what the last position answers
  EXPECT_EQ(full.json().at("finish"), "length");
}

TEST_F(CoremlPackage, TakesCmfFilesToo) {
  for (const char* name : {"qwen3_yarn", "qwen3_5", "gemma4"}) {
    const Ran cmf = Run({"convert", "--model", Checkpoint(name), "--quant", "f32", "--output", Path("m.cmf"),
                         "--no-tokenizer"});
    ASSERT_EQ(cmf.status, 0) << cmf.err;
    const std::string package = Convert(Path("m.cmf"), {"--context-length", "64"});
    const Ran check =
        Run({"coreml", "check", package, "--hf", Checkpoint(name), "--precision", "f32", "-n", "4"});
    EXPECT_EQ(check.status, 0) << name << check.out << check.err;
  }
}

TEST_F(CoremlPackage, RunsWithoutConfigJsonAndSaysSo) {
  const std::string package = Convert(Checkpoint("qwen3_yarn"), {"--context-length", "64"});
  const std::string config = package + "/config.json", meta = package + "/meta.yaml";
  const std::vector<std::string> ask = {"logits", package, "--tokens", "1,2,130", "--top", "3"};
  const Ran whole = Run(ask);
  ASSERT_EQ(whole.status, 0) << whole.err;
  const std::string said = Slurp(meta);
  const size_t vocab = said.find("vocab_size");
  ASSERT_NE(vocab, said.npos);
  for (const bool meta_tells : {true, false}) {
    if (!meta_tells) {  // then the parts do
      std::string without = said;
      std::ofstream(meta, std::ios::binary) << without.erase(vocab, said.find('\n', vocab) - vocab);
    }
    for (const char* bad : {"", "{\"model_type\":", "[1]"}) {
      std::ofstream(config, std::ios::binary) << bad;
      if (!*bad) std::filesystem::remove(config);
      const Ran ran = Run(ask);
      EXPECT_EQ(ran.status, 0) << ran.err;
      EXPECT_EQ(ran.out, whole.out);
      EXPECT_NE(ran.err.find("config.json"), std::string::npos) << ran.err;
      const Ran outside = Run({"logits", package, "--tokens", "1,131"});
      EXPECT_EQ(outside.status, 2) << outside.err;
      EXPECT_NE(outside.err.find("131"), std::string::npos) << outside.err;
      const Ran verify = Run({"verify", package});
      EXPECT_EQ(verify.status, *bad ? 4 : 3) << verify.err;
      EXPECT_NE(verify.err.find("config.json"), std::string::npos) << verify.err;
    }
  }
}

TEST_F(CoremlPackage, InfoTellsTheShapeOfEveryFeature) {
  const std::string package = Convert(Checkpoint("qwen3_yarn"), {"--context-length", "64"});
  const Ran ran = Run({"coreml", "info", package, "--json"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  std::map<std::string, Json> outputs;  // of "infer", or of a model with one function
  const Json json = ran.json();
  for (const Json& model : json.at("models")) {
    for (const Json& function : model.at("functions")) {
      for (const char* side : {"inputs", "outputs", "states"}) {
        for (const Json& feature : function.at(side)) EXPECT_FALSE(feature.at("shape").empty()) << feature;
      }
      if (function.at("name") == "prefill") continue;
      for (const Json& feature : function.at("outputs")) outputs[feature.at("name")] = feature.at("shape");
    }
  }
  const int64_t hidden = Json::parse(Slurp(package + "/config.json")).at("hidden_size");
  EXPECT_EQ(outputs.at("output_hidden_states"), (Json{1, 1, hidden}));
  EXPECT_EQ(outputs.at("hidden_states"), (Json{1, -1, hidden}));  // one row for each token
  EXPECT_NE(Run({"coreml", "info", package}).out.find(fmt::format("fp16 [1, ?, {}]", hidden)),
            std::string::npos);
}

TEST_F(CoremlPackage, KeepsWhatElseAFolderHolds) {
  const std::string package = Convert(Checkpoint("qwen3_yarn"), {"--context-length", "64"});
  std::ofstream(package + "/notes.txt") << "mine";
  const Ran ran = Run({"coreml", "convert", "--model", Checkpoint("qwen3_yarn"), "--output", package,
                       "--context-length", "64", "--form", "mlpackage"});
  EXPECT_EQ(ran.status, 2) << ran.err;
  EXPECT_NE(ran.err.find("'notes.txt'"), std::string::npos) << ran.err;
  EXPECT_EQ(Slurp(package + "/notes.txt"), "mine");
}

TEST_F(CoremlPackage, RefusesWithAReason) {
  const auto fails = [&](std::vector<std::string> arguments, int status, const char* what) {
    arguments.insert(arguments.begin(), {"coreml", "convert", "--output", Path("out")});
    const Ran ran = Run(arguments);
    EXPECT_EQ(ran.status, status) << ran.err;
    EXPECT_NE(ran.err.find(what), std::string::npos) << ran.err;
    EXPECT_FALSE(std::filesystem::exists(Path("out")));
  };
  fails({"--model", Checkpoint("qwen3_yarn"), "--lut-ffn", "6"}, 5, "--lut-ffn 6");
  fails({"--model", Checkpoint("qwen3_yarn"), "--quant-ffn", "int8"}, 5, "--quant-ffn int8");
  fails({"--model", Checkpoint("llama"), "--context-length", "64"}, 5, "'llama'");
  fails({"--model", Checkpoint("qwen3_yarn"), "--context-length", "9999"}, 2, "context-length 9999");
  fails({"--model", Path("nowhere")}, 3, "nowhere");
  // A package runs, but nothing can be made of it.
  const std::string package = Convert(Checkpoint("qwen3_yarn"), {"--context-length", "64"});
  fails({"--model", package}, 5, "Core ML package");
  EXPECT_EQ(Run({"info", package}).status, 5);
  // What can be verified of it is that its files are whole.
  const Ran whole = Run({"verify", package, "--json"});
  EXPECT_EQ(whole.status, 0) << whole.err;
  EXPECT_EQ(whole.json().at("files").size(), 3u);
  EXPECT_GT(whole.json().at("checked").at("tensors"), 20);
  std::filesystem::resize_file(package + "/qwen_lm_head.mlpackage/Data/com.apple.CoreML/weights/weight.bin",
                               300);
  EXPECT_EQ(Run({"verify", package}).status, 4);
  std::filesystem::remove_all(package + "/qwen_lm_head.mlpackage");
  EXPECT_EQ(Run({"verify", package}).status, 3);
}

}  // namespace
}  // namespace cmforge
