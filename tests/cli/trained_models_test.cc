// The trained models: their published perplexities, time per operator, and saved states that are bound to one
// model.
#include "cli/program.h"

namespace cmforge {
namespace {

namespace fs = std::filesystem;

using Trained = CliTest;

TEST_F(Trained, PerplexitiesAreThePublishedOnes) {
  const std::string models = std::string(CMFORGE_SOURCE_DIR) + "/../shared/models";
  if (!fs::exists(models)) GTEST_SKIP() << "the trained models are not here";
  struct Published {
    const char *model, *text;
    double ppl;
  };
  // models/README.md: windows of 256 tokens over the whole file.
  for (const Published& row : {Published{"tiny-qwen3", "simple", 1.768},
                               {"tiny-qwen35", "simple", 1.697},
                               {"tiny-moe", "simple", 2.138}}) {
    const Ran ran = Run({"ppl", models + "/" + row.model, "--file", models + "/heldout/" + row.text + ".txt",
                         "--context", "256", "--json"});
    ASSERT_EQ(ran.status, 0) << ran.err;
    EXPECT_NEAR(ran.json()["ppl"].get<double>(), row.ppl, 0.005 * row.ppl) << row.model;
    EXPECT_EQ(ran.json()["windows"], 69);
    EXPECT_EQ(ran.json()["tokens"], 17595);
  }
}

TEST_F(Trained, ASavedStateIsBoundToItsModel) {
  const fs::path folder = CMFORGE_SOURCE_DIR "/models/tiny-qwen3", other = folder_ / "other";
  fs::create_directories(other);
  for (const auto& entry : fs::directory_iterator(folder))
    fs::copy(entry.path(), other / entry.path().filename());
  Json config = Json::parse(Slurp(folder / "config.json"));
  config["rms_norm_eps"] = 1e-5;
  std::ofstream(other / "config.json") << config;
  const auto go_on = [&](const std::string& model) {
    return Run({"run", model, "--raw", "--greedy", "--prompt", "", "-n", "3", "--state", Path("s")});
  };
  const Ran saved = Run({"run", folder.string(), "--raw", "--greedy", "--prompt", "Once upon", "-n", "3",
                         "--save-state", Path("s")});
  ASSERT_EQ(saved.status, 0) << saved.err;
  EXPECT_EQ(go_on(folder.string()).status, 0);
  const Ran refused = go_on(other.string());
  EXPECT_EQ(refused.status, 2) << refused.err;
  EXPECT_NE(refused.err.find("saved from model"), std::string::npos) << refused.err;
}

TEST_F(Trained, TheProfileAddsUpToTheWholeTime) {
  const Ran ran =
      Run({"bench", "--profile", "--prompt-tokens", "64", "--gen-tokens", "8", "--repeat", "1", "--json"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  for (const auto& [phase, tokens] : {std::pair{"prefill", 64}, {"decode", 8}}) {
    const Json row = ran.json()[phase][0];
    double share = 0, micros = 0;
    for (const Json& op : row["operators"]) {
      share += op["share"].get<double>();
      micros += op["us_per_token"].get<double>();
      EXPECT_GT(op["calls"].get<int64_t>(), 0);
    }
    EXPECT_NEAR(share, 1, 1e-9);
    EXPECT_LE(micros, 1e6 / row["tok_s"].get<double>()) << phase << tokens;
    EXPECT_GE(row["operators"].size(), 6u);
  }
  EXPECT_FALSE(Run({"bench", "--prompt-tokens", "8", "--gen-tokens", "2", "--repeat", "1", "--json"})
                   .json()["decode"][0]
                   .contains("operators"));
}

}  // namespace
}  // namespace cmforge
