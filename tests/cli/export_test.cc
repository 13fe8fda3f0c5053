// export: what comes out opens again as the same model.
#include "cli/program.h"

namespace cmforge {
namespace {

namespace fs = std::filesystem;

class Export : public CliTest {
 protected:
  static fs::path Data(const std::string& name) { return fs::path(CMFORGE_TEST_DATA) / name; }
  std::string Logits(const std::string& model) {
    const Ran ran = Run({"logits", model, "--tokens", "1,2,3,4,5", "--compute", "exact"});
    EXPECT_EQ(ran.status, 0) << model << ": " << ran.err;
    return ran.out;
  }
  Json Diff(const std::string& a, const std::string& b) { return Run({"diff", a, b, "--json"}).json(); }
};

TEST_F(Export, EveryFamilyComesBackWithTheSameTensorsAndLogits) {
  int families = 0;
  for (const auto& entry : fs::directory_iterator(Data("engine"))) {
    if (!fs::exists(entry.path() / "config.json") || !fs::exists(entry.path() / "model.safetensors"))
      continue;
    const std::string name = entry.path().filename().string();
    const std::string source = entry.path().string(), cmf = Path(name + ".cmf"), out = Path(name);
    ASSERT_EQ(Run({"convert", "-q", "--model", source, "--output", cmf, "--quant", "f32"}).status, 0) << name;
    const Ran exported = Run({"export", cmf, "--output", out, "--dtype", "f32", "--json"});
    ASSERT_EQ(exported.status, 0) << name << ": " << exported.err;
    EXPECT_TRUE(exported.err.empty()) << exported.err;
    ASSERT_EQ(Run({"convert", "-q", "--model", out, "--output", Path("again.cmf"), "--quant", "f32"}).status,
              0)
        << name;
    const Json diff = Diff(cmf, Path("again.cmf"));
    EXPECT_TRUE(diff["tensors"]["changed"].empty()) << name << diff["tensors"]["changed"][0];
    EXPECT_TRUE(diff["tensors"]["only_a"].empty() && diff["tensors"]["only_b"].empty()) << name;
    const std::string logits = Logits(source);
    EXPECT_EQ(Logits(out), logits) << name;
    EXPECT_EQ(Logits(Path("again.cmf")), logits) << name;
    // Names and shapes are those of the family's own files; a multimodal one's text part has no wrapper around it.
    if (!ParseJson(Slurp(source + "/config.json"), name).value().contains("text_config")) {
      const Json raw = Diff(source + "/model.safetensors", out + "/model.safetensors");
      EXPECT_TRUE(raw["tensors"]["only_b"].empty()) << name << ": " << raw["tensors"]["only_b"];
    }
    ++families;
    fs::remove_all(out);
  }
  EXPECT_GE(families, 10);
}

TEST_F(Export, EveryFileOfAnotherWriterIsExportedOrRefusedInOneLine) {
  int done = 0;
  for (const auto& entry : fs::directory_iterator(Data("cmf"))) {
    const std::string path = entry.path().string();
    if (entry.path().extension() != ".cmf") continue;
    fs::remove_all(Path("out"));
    const Ran exported = Run({"export", path, "--output", Path("out"), "--dtype", "f32"});
    if (exported.status != 0) {
      EXPECT_EQ(exported.status, 5) << path << exported.err;
      EXPECT_EQ(std::count(exported.err.begin(), exported.err.end(), '\n'), 1) << exported.err;
      EXPECT_FALSE(fs::exists(Path("out"))) << path;
      continue;
    }
    EXPECT_EQ(Logits(Path("out")), Logits(path)) << path;
    ++done;
  }
  EXPECT_GE(done, 25);
}

TEST_F(Export, WritesTokenizerTemplateAndIds) {
  const Ran exported = Run({"export", "--output", Path("out")});  // the built-in model
  ASSERT_EQ(exported.status, 0) << exported.err;
  const Ran text = Run({"generate", Path("out"), "--tokens", "11,12", "-n", "3", "--greedy", "--json"});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_EQ(Run({"tokenize", Path("out"), "--text", "Once upon a time"}).out,
            Run({"tokenize", "--text", "Once upon a time"}).out);
  const std::string messages = Path("messages.json");
  std::ofstream(messages) << R"([{"role":"user","content":"hello"}])";
  EXPECT_EQ(Run({"template", Path("out"), "--messages", messages}).out,
            Run({"template", "--messages", messages}).out);
  const Json config = ParseJson(Slurp(Path("out/config.json")), "config").value();
  EXPECT_EQ(config["torch_dtype"], "bfloat16");
}

// Every payload and every section with a hash.
TEST_F(Export, PassesNoDamageOn) {
  for (const char* name : {"cmf/rs-qwen3-q8.cmf", "cmf/rs-qwen3_5-q8.cmf"}) {
    const std::string bytes = Slurp(Data(name));
    const Json info = Run({"info", Data(name).string(), "--json"}).json();
    std::vector<std::pair<std::string, size_t>> places;
    for (const Json& tensor : info["tensors"])
      places.emplace_back("tensor '" + tensor["name"].get<std::string>() + "'",
                          tensor["offset"].get<size_t>());
    for (const Json& section : info["sections"])
      if (section["name"] == "vocab") places.emplace_back("vocab", section["offset"].get<size_t>());
    ASSERT_EQ(places.size(), info["tensors"].size() + 1) << "with a tokenizer";
    for (const auto& [what, offset] : places) {
      std::string damaged = bytes;
      damaged.at(offset) = static_cast<char>(damaged[offset] ^ 1);
      std::ofstream(Path("bad.cmf"), std::ios::binary) << damaged;
      const Ran bad = Run({"export", Path("bad.cmf"), "--output", Path("out")});
      EXPECT_EQ(bad.status, 4) << what << bad.err;
      EXPECT_NE(bad.err.find(what), std::string::npos) << bad.err;
      EXPECT_FALSE(fs::exists(Path("out"))) << what;
    }
  }
}

TEST_F(Export, SkillsAndTasksComeOutAsTheModelsTheyAre) {
  const auto logits = [&](const std::string& model, const std::vector<std::string>& flags = {}) {
    std::vector<std::string> arguments = {"logits", model, "--tokens", "3,17,42", "--compute", "exact"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const Ran ran = Run(arguments);
    EXPECT_EQ(ran.status, 0) << model << ran.err;
    return ran.status == 0 ? ran.json()["positions"][0]["logits"].get<std::vector<double>>()
                           : std::vector<double>();
  };
  for (const auto& [name, flag, value] : {std::tuple{"py-tiny-skills.cmf", "--skill", "sql"},
                                          {"py-tiny-skills.cmf", "--skill", "poet"},
                                          {"py-tiny-f32-masks.cmf", "--task", "coding"},
                                          {"py-tiny-q8_row-masks.cmf", "--task", "coding"},
                                          {"rs-llama-headmask.cmf", "--task", "thin"},
                                          {"rs-llama-headmask.cmf", "--task", "gate"}}) {
    const std::string model = Data("cmf").string() + "/" + name;
    fs::remove_all(Path("out"));
    const Ran exported = Run({"export", model, "--output", Path("out"), "--dtype", "f32", flag, value});
    ASSERT_EQ(exported.status, 0) << name << exported.err;
    const auto expected = logits(model, {flag, value}), actual = logits(Path("out")), plain = logits(model);
    ASSERT_EQ(actual.size(), expected.size());
    double most = 0;
    for (size_t i = 0; i < actual.size(); ++i) {
      EXPECT_NEAR(actual[i], expected[i], 1e-4) << name << " " << value << " " << i;
      most = std::max(most, std::abs(plain[i] - expected[i]));
    }
    EXPECT_GT(most, 1e-3) << name << ": the plain model is another";
    EXPECT_EQ(Run({"export", model, "--output", Path("no"), flag, "nobody"}).status, 3);
  }
  const std::string folder = Data("checkpoint/odd-ffn-width").string();
  EXPECT_EQ(Run({"export", folder, "--output", Path("no"), "--skill", "sql"}).status, 3);
  EXPECT_EQ(Run({"export", folder, "--output", Path("no"), "--task", "coding"}).status, 3);
  EXPECT_FALSE(fs::exists(Path("no")));
}

TEST_F(Export, NeverMixesWithWhatIsThere) {
  fs::create_directory(Path("out"));
  std::ofstream(Path("out/notes.txt")) << "mine";
  EXPECT_EQ(Run({"export", "--output", Path("out")}).status, 2);
  EXPECT_EQ(Slurp(Path("out/notes.txt")), "mine");
  const auto refused = [&](const std::string& output, int status, const std::string& remedy) {
    const Ran ran = Run({"export", "--output", output});
    EXPECT_EQ(ran.status, status) << ran.err;
    EXPECT_NE(ran.err.find(remedy), std::string::npos) << ran.err;
  };
  refused(Path("no/such/out"), 3, "make it first");
  refused(Path("out/notes.txt"), 2, "name a new one");
  std::ofstream(Path("empty"));
  refused(Path("empty"), 2, "name a new one");
  refused(Path("empty/out"), 3, "check the path");
  if (getuid() != 0) {
    fs::create_directory(Path("locked"));
    fs::permissions(Path("locked"), fs::perms::owner_read | fs::perms::owner_exec);
    refused(Path("locked/out"), 6, "change its permissions");
  }
  EXPECT_EQ(Run({"export", Data("cmf/rs-skillfile.cmf").string(), "--output", Path("skill")}).status, 5);
  EXPECT_FALSE(fs::exists(Path("skill")));
}

}  // namespace
}  // namespace cmforge
