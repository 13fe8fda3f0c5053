// Checkpoints with known answers (float64, computed by an independent numpy reference): from the folder and
// through `convert --quant f32`, logits within 2e-4 of the largest and equal greedy ids.
#include <cmath>

#include "cli/program.h"

namespace cmforge {
namespace {

namespace fs = std::filesystem;

class Parity : public CliTest {
 protected:
  static std::string Ids(const Json& tokens) {
    std::string text;
    for (const Json& t : tokens) text += (text.empty() ? "" : ",") + std::to_string(t.get<int>());
    return text;
  }

  void CheckPrompt(const std::string& model, const Json& prompt) {
    const Ran logits = Run({"logits", model, "--tokens", Ids(prompt["tokens"]), "--compute", "exact"});
    ASSERT_EQ(logits.status, 0) << logits.err;
    const Json got = logits.json()["positions"][0]["logits"];
    const Json& want = prompt["last_logits"];
    ASSERT_EQ(got.size(), want.size());
    double largest = 0, worst = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      largest = std::max(largest, std::abs(want[i].get<double>()));
      worst = std::max(worst, std::abs(want[i].get<double>() - got[i].get<double>()));
    }
    EXPECT_LE(worst, 2e-4 * largest) << model;
    std::vector<int> greedy;
    for (const Json& step : prompt["greedy"]) greedy.push_back(step["id"]);
    const Ran generated =
        Run({"generate", model, "--tokens", Ids(prompt["tokens"]), "-n", std::to_string(greedy.size()),
             "--greedy", "--ignore-eos", "--json", "--compute", "exact"});
    ASSERT_EQ(generated.status, 0) << generated.err;
    EXPECT_EQ(generated.json()["tokens"].get<std::vector<int>>(), greedy) << model;
  }

  void CheckFolder(const fs::path& folder) {
    const Json expected = ParseJson(Slurp(folder / "expected.json"), "expected.json").value();
    const std::string file = Path(folder.filename().string() + ".cmf");
    const Ran convert = Run({"convert", "--model", folder.string(), "--quant", "f32", "--output", file});
    ASSERT_EQ(convert.status, 0) << convert.err;
    EXPECT_EQ(Run({"verify", file}).status, 0);
    for (const Json& prompt : expected["prompts"]) {
      CheckPrompt(folder.string(), prompt);
      CheckPrompt(file, prompt);
    }
  }
};

TEST_F(Parity, CopiesOfTheWeightsAnswerAsTheMappedFileDoes) {
  const std::string file = Path("model.cmf");
  const Ran convert =
      Run({"convert", "--model", CMFORGE_TEST_DATA "/engine/llama", "--quant", "q8", "--output", file});
  ASSERT_EQ(convert.status, 0) << convert.err;
  const auto tokens = [&](std::vector<std::string> flags) {
    std::vector<std::string> arguments = {"generate", file,       "--tokens",     "1,2,3", "-n",
                                          "8",        "--greedy", "--ignore-eos", "--json"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const Ran ran = Run(arguments);
    EXPECT_EQ(ran.status, 0) << ran.err;
    return ran.json()["tokens"];
  };
  const Json mapped = tokens({});
  EXPECT_EQ(mapped.size(), 8u);
  EXPECT_EQ(tokens({"--no-mmap"}), mapped);
  EXPECT_EQ(tokens({"--hot"}), mapped);
}

TEST_F(Parity, CheckpointsAnswerAsTheReferenceDoes) {
  int folders = 0;
  for (const char* name : {"llama", "qwen2_window", "qwen3_linear", "qwen3_yarn", "llama_rope3", "qwen3_5",
                           "qwen3_moe", "gemma3"}) {
    const fs::path folder = fs::path(CMFORGE_TEST_DATA) / "engine" / name;
    ASSERT_TRUE(fs::exists(folder)) << folder;
    CheckFolder(folder);
    ++folders;
  }
  EXPECT_EQ(folders, 8);
}

}  // namespace
}  // namespace cmforge
