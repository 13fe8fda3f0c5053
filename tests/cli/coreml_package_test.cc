// cmforge coreml convert and check, and packages as the MODEL of other commands.
#include <cstring>
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
  EXPECT_TRUE(json.at("failed").empty());
  // Of two prompts none is left unused without a word.
  const std::vector<std::pair<std::string, std::string>> prompts = {
      {"--prompt", "x"}, {"--tokens", "1,2"}, {"--prompt-tokens", "5"}};
  for (const auto& [flag, value] : prompts) {
    for (const auto& [other, of_other] : prompts) {
      if (flag == other) continue;
      const Ran two =
          Run({"coreml", "check", package, "--hf", Checkpoint("qwen3_yarn"), flag, value, other, of_other});
      EXPECT_EQ(two.status, 2) << two.out;
      EXPECT_NE(two.err.find("each is a prompt: give one of them"), std::string::npos) << two.err;
      EXPECT_NE(two.err.find(flag), std::string::npos) << two.err;
      EXPECT_NE(two.err.find(other), std::string::npos) << two.err;
    }
  }
  // A prompt is not cut.
  for (const std::vector<std::string>& prompt :
       {std::vector<std::string>{"--prompt-tokens", "97"}, {"--tokens", "@" + Path("ids")}}) {
    std::ofstream ids(Path("ids"));
    for (int i = 0; i < 97; ++i) ids << (i > 0 ? "," : "") << i;
    ids.close();
    const Ran longer =
        Run({"coreml", "check", package, "--hf", Checkpoint("qwen3_yarn"), prompt[0], prompt[1]});
    EXPECT_EQ(longer.status, 7) << longer.out;
    EXPECT_NE(longer.err.find("97 tokens do not fit a context of 96"), std::string::npos) << longer.err;
  }
  // Another model's package, and a threshold nothing meets.
  EXPECT_EQ(Run({"coreml", "check", package, "--hf", Checkpoint("qwen3_linear"), "-n", "3"}).status, 1);
  const Ran strict = Run({"coreml", "check", package, "--hf", Checkpoint("qwen3_yarn"), "--min-cosine", "1"});
  EXPECT_EQ(strict.status, 1);
  EXPECT_NE(strict.out.find("failed   min-cosine: "), std::string::npos) << strict.out;
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
  const Ran bench = Run({"bench", package, "--gen-tokens", "2", "--repeat", "1", "--json"});
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

TEST_F(CoremlPackage, WritesPalettesFittedToAText) {
  const std::string model = std::string(CMFORGE_SOURCE_DIR) + "/models/tiny-qwen3";
  std::ofstream(Path("text.txt"))
      << "Tom had a red ball. He liked to play with the ball in the park all day.";
  const std::string stats = Path("tiny.stats");
  const Ran calibrated = Run({"calibrate", model, "--file", Path("text.txt"), "-o", stats, "--json"});
  ASSERT_EQ(calibrated.status, 0) << calibrated.err;
  EXPECT_NE(calibrated.err.find("statistics of so few mean little"), std::string::npos) << calibrated.err;
  const auto text_size = std::filesystem::file_size(Path("text.txt"));
  EXPECT_EQ(Run({"calibrate", model, "--file", Path("text.txt"), "-o", Path("text.txt")}).status, 2);
  EXPECT_EQ(std::filesystem::file_size(Path("text.txt")), text_size) << "the text is not its own output";
  EXPECT_EQ(calibrated.json().at("weights"), 6 * 7 + 1);  // seven of each layer, and the tied head
  const auto convert = [&](const std::string& name, const std::string& calibrate) {
    const Ran ran = Run({"coreml",           "convert", "--model",      model, "--output",     Path(name),
                         "--context-length", "128",     "--batch-size", "8",   "--form",       "mlpackage",
                         "--lut-ffn",        "3",       "--lut-lmhead", "6",   "--lut-method", "activation",
                         "--calibrate",      calibrate, "--json"});
    EXPECT_EQ(ran.status, 0) << ran.err;
    const Json json = ran.json();
    EXPECT_EQ(json.at("parts").at(1).at("form"), "lut3,8");
    EXPECT_LT(json.at("parts").at(1).at("relative_error"), 0.2);
    return Slurp(Path(name) +
                 "/qwen_FFN_PF_lut3_chunk_01of01.mlpackage/Data/com.apple.CoreML/weights/weight.bin");
  };
  // The text itself, or the statistics of it: the same package.
  EXPECT_EQ(convert("by_text", Path("text.txt")), convert("by_stats", stats));
  const Ran run =
      Run({"run", Path("by_text"), "--raw", "--prompt", "Once upon a time", "-n", "4", "--greedy"});
  EXPECT_EQ(run.status, 0) << run.err;
  const Ran info = Run({"coreml", "info", Path("by_text"), "--json"});
  ASSERT_EQ(info.status, 0) << info.err;
  EXPECT_EQ(info.json().at("meta").at("weights").at("lut_ffn"), "3");
  // Another model's statistics, and a file that only begins like some.
  const Ran other =
      Run({"coreml", "convert", "--model", Checkpoint("qwen3_yarn"), "--output", Path("other"),
           "--context-length", "64", "--lut-ffn", "4", "--lut-method", "activation", "--calibrate", stats});
  EXPECT_EQ(other.status, 2) << other.err;
  EXPECT_NE(other.err.find("calibrate with this model"), std::string::npos) << other.err;
  std::filesystem::resize_file(stats, std::filesystem::file_size(stats) - 4);
  EXPECT_EQ(Run({"coreml", "convert", "--model", model, "--output", Path("other"), "--lut-ffn", "4",
                 "--lut-method", "activation", "--calibrate", stats})
                .status,
            4);
  EXPECT_FALSE(std::filesystem::exists(Path("other")));
}

TEST_F(CoremlPackage, AWarningSaysWhatTheNeuralEngineCannotDo) {
  const auto warned = [&](const char* flag, const char* form, const char* of) {
    const Ran ran =
        Run({"coreml", "convert", "--model", Checkpoint("qwen3_yarn"), "--output", Path("package"),
             "--context-length", "64", "--form", "mlpackage", "--split-lm-head", "1", flag, form});
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_NE(ran.err.find(of), std::string::npos) << ran.err;
  };
  warned("--quant-ffn", "int8", "Neural Engine computes garbage");
  warned("--quant-lmhead", "int4", "cannot compile");
  warned("--lut-embeddings", "8", "decompressed when the model loads");
  warned("--lut-lmhead", "4", "131 channels in groups of 1");
}

TEST_F(CoremlPackage, RefusesWeightsBeyondFp16InEveryForm) {
  const std::string model = Path("model"), file = model + "/model.safetensors";
  std::filesystem::copy(Checkpoint("qwen3_yarn"), model);
  std::string bytes = Slurp(file);
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  const std::string name = "model.layers.0.mlp.up_proj.weight";
  const uint64_t at = Json::parse(bytes.substr(8, header)).at(name).at("data_offsets").at(0);
  bytes.replace(8 + header + at, 2, "\xC3\x47");  // 99840 as bf16
  std::ofstream(file, std::ios::binary) << bytes;
  for (const std::vector<std::string>& form : {std::vector<std::string>{"--lut-ffn", "none"},
                                               {"--lut-ffn", "4"},
                                               {"--lut-ffn", "6,0"},
                                               {"--lut-ffn-mixed", "4.5"},
                                               {"--quant-ffn", "int8"},
                                               {"--quant-ffn", "int4"}}) {
    const Ran ran = Run({"coreml", "convert", "--model", model, "--output", Path("package"),
                         "--context-length", "64", form[0], form[1]});
    EXPECT_EQ(ran.status, 5) << ran.err;
    EXPECT_NE(ran.err.find(fmt::format("'{}': a weight of 99840 is beyond fp16, which ends at 65504", name)),
              std::string::npos)
        << ran.err;
    EXPECT_FALSE(std::filesystem::exists(Path("package")));
  }
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

TEST_F(CoremlPackage, LintTellsPlacesReasonsAndRemedies) {
  const std::string package = Convert(Checkpoint("qwen3_yarn"), {"--context-length", "256", "--chunks", "2"});
  const Ran clean = Run({"coreml", "lint", package});
  EXPECT_EQ(clean.status, 0) << clean.out << clean.err;
  EXPECT_NE(clean.out.find("0 errors"), std::string::npos) << clean.out;
  EXPECT_NE(clean.out.find("wired memory"), std::string::npos) << clean.out;
  EXPECT_EQ(clean.out.find('\033'), std::string::npos);  // no terminal, no colours
  const Json json = Run({"coreml", "lint", package, "--json"}).json();
  EXPECT_EQ(json.at("ok"), true);
  EXPECT_EQ(json.at("parts").size(), 4u);
  EXPECT_EQ(json.at("wired_memory").at("functions").size(), 6u);
  EXPECT_GT(json.at("wired_memory").at("weight_bytes").get<int64_t>(), 10000);

  const std::string meta = Slurp(package + "/meta.yaml");
  std::string broken = meta;
  broken.erase(broken.find("    lut_ffn: none\n"), 18);
  std::ofstream(package + "/meta.yaml", std::ios::binary) << broken;
  const Ran lacking = Run({"coreml", "lint", package, "--json"});
  EXPECT_EQ(lacking.status, 1) << lacking.out;
  const Json finding = lacking.json().at("findings").at(0);
  EXPECT_EQ(finding.at("severity"), "error");
  EXPECT_EQ(finding.at("rule"), "meta-key");
  EXPECT_EQ(finding.at("part"), "meta.yaml");
  EXPECT_NE(finding.at("reason").get<std::string>().find("lut_ffn"), std::string::npos);
  EXPECT_FALSE(finding.at("remedy").get<std::string>().empty());

  EXPECT_EQ(Run({"coreml", "lint", package + "/qwen_lm_head.mlpackage"}).status, 0);
  EXPECT_EQ(Run({"coreml", "lint", Path("nothing")}).status, 3);
  std::ofstream(package + "/meta.yaml", std::ios::binary) << "a: [1";
  const Ran corrupt = Run({"coreml", "lint", package});
  EXPECT_EQ(corrupt.status, 4) << corrupt.err;
  EXPECT_NE(corrupt.err.find("meta.yaml: line 1"), std::string::npos) << corrupt.err;
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
  const auto refuses_form = [&](std::vector<std::string> more, int status, const char* what) {
    std::vector<std::string> arguments = {"--model", Checkpoint("qwen3_yarn"), "--context-length", "64"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    fails(arguments, status, what);
  };
  refuses_form({"--lut-ffn", "5"}, 2, "--lut-ffn: '5'");
  refuses_form({"--lut-lmhead", "1"}, 2, "--lut-lmhead: '1'");
  refuses_form({"--lut-embeddings", "4,x"}, 2, "--lut-embeddings: '4,x'");
  refuses_form({"--quant-ffn", "int2"}, 2, "--quant-ffn: 'int2'");
  refuses_form({"--quant-ffn", "int4,0"}, 2, "--quant-ffn: 'int4,0'");
  refuses_form({"--lut-ffn", "6", "--quant-ffn", "int8"}, 2, "--lut-ffn 6 and --quant-ffn int8");
  refuses_form({"--lut-ffn", "6", "--lut-method", "fisher"}, 5, "the trainer");
  refuses_form({"--lut-ffn", "6", "--lut-method", "best"}, 2, "--lut-method");
  refuses_form({"--lut-ffn", "6", "--lut-method", "activation"}, 2, "--calibrate");
  refuses_form({"--lut-ffn", "6", "--calibrate", Path("text.txt")}, 2, "--calibrate");
  refuses_form({"--lut-method", "activation", "--calibrate", Path("text.txt")}, 2, "--lut-ffn");
  std::ofstream(Path("cut.stats"), std::ios::binary)
      << std::string("\x10\x27\0\0\0", 5);  // of a file of statistics
  refuses_form({"--lut-ffn", "6", "--lut-method", "activation", "--calibrate", Path("cut.stats")}, 4,
               "make the statistics again");
  refuses_form({"--lut-ffn", "6", "--lut-method", "activation", "--calibrate", Path("nowhere")}, 3,
               "nowhere");
  refuses_form({"--lut-ffn-mixed", "4"}, 2, "--lut-ffn-mixed");
  refuses_form({"--lut-ffn-mixed", "9"}, 2, "--lut-ffn-mixed");
  refuses_form({"--lut-ffn-mixed", "nan"}, 2, "above 2 and below 8");
  refuses_form({"--lut-ffn-mixed", "8"}, 2, "above 2 and below 8");
  refuses_form({"--lut-ffn-mixed", "4.5", "--lut-ffn", "8"}, 2, "give a narrower one");
  refuses_form({"--lut-ffn", "4", "--lut-ffn-mixed", "6.5"}, 2, "4 and 6 bits");
  refuses_form({"--quant-ffn", "int8", "--lut-ffn-mixed", "4.5"}, 2, "--lut-ffn-mixed");
  fails({"--model", Checkpoint("llama"), "--context-length", "64"}, 5, "'llama'");
  fails({"--model", Checkpoint("qwen3_yarn"), "--context-length", "9999"}, 2, "context-length 9999");
  fails({"--model", Path("nowhere")}, 3, "nowhere");
  // A package runs, but nothing can be made of it.
  const std::string package = Convert(Checkpoint("qwen3_yarn"), {"--context-length", "64"});
  fails({"--model", package}, 5, "Core ML package");
  const Ran described = Run({"info", package});
  EXPECT_EQ(described.status, 5);
  EXPECT_NE(described.err.find("`cmforge coreml info`"), std::string::npos) << described.err;
  for (const char* command : {"info", "lint"}) {
    std::filesystem::create_directories(Path("empty"));
    const Ran empty = Run({"coreml", command, Path("empty")});
    EXPECT_EQ(empty.status, 3);
    EXPECT_NE(empty.err.find("meta.yaml"), std::string::npos) << empty.err;
  }
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
