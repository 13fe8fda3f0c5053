// Experts through the program: statistics, the run-time restriction, the mask and the smaller file are one
// and the same choice, so their tokens are equal, and equal to what the format's reference tool recorded.
#include <map>

#include "cli/program.h"

namespace cmforge {
namespace {

class Moe : public CliTest {
 protected:
  static std::string Data(const std::string& name) { return std::string(CMFORGE_TEST_DATA) + "/cmf/" + name; }
  static constexpr const char* kPrompt = "3,17,42,9,88,21";

  void SetUp() override {
    CliTest::SetUp();
    std::ofstream(Path("stats.json"))
        << R"({"0": [5, 90, 3, 60, 1, 0, 22, 8], "1": [40, 2, 33, 7, 70, 6, 0, 50]})";
  }
  Json Tokens(std::vector<std::string> model, const std::string& compute = "exact") {
    model.insert(model.begin(), "generate");
    for (const char* more :
         {"--tokens", kPrompt, "-n", "12", "--greedy", "--ignore-eos", "--json", "--compute"})
      model.emplace_back(more);
    model.push_back(compute);
    const Ran ran = Run(model);
    EXPECT_EQ(ran.status, 0) << ran.err;
    return ran.status == 0 ? ran.json()["tokens"] : Json();
  }
  std::map<std::string, Json> Tensors(const std::string& file) {
    std::map<std::string, Json> tensors;
    for (const Json& tensor : Run({"info", file, "--json"}).json()["tensors"]) {
      tensors[tensor["name"]] = {tensor["dtype"], tensor["shape"], tensor["nbytes"], tensor["hash"]};
    }
    return tensors;
  }
};

TEST_F(Moe, RestrictionMaskAndSmallerFileGiveTheRecordedTokens) {
  const std::string full = Data("rs-qwen3_moe-moemask.cmf");
  const Json want = {54, 96, 90, 90, 90, 90, 99, 99, 99, 4, 96, 96};  // recorded from the reference tool
  EXPECT_EQ(Tokens({full}), (Json{1, 47, 55, 90, 34, 90, 34, 99, 99, 99, 99, 99}));
  EXPECT_EQ(Tokens({full, "--moe-mask-stats", Path("stats.json"), "--cover", "0.8"}), want);

  const Ran defrag = Run({"moe-defrag", full, "--stats", Path("stats.json"), "--cover", "0.8", "--output",
                          Path("small.cmf"), "--json"});
  ASSERT_EQ(defrag.status, 0) << defrag.err;
  EXPECT_EQ(defrag.json()["kept"], Json::parse(R"({"0":[1,3,6],"1":[0,2,4,7]})"));
  EXPECT_EQ(Run({"verify", Path("small.cmf")}).status, 0);
  EXPECT_EQ(Tokens({Path("small.cmf")}), want);
  // Tensor for tensor what the reference tool made of it.
  EXPECT_EQ(Tensors(Path("small.cmf")), Tensors(Data("rs-qwen3_moe-moedefrag.cmf")));
  const Json ours = Run({"info", Path("small.cmf"), "--json"}).json()["header"]["provenance"]["moe_defrag"];
  const Json theirs = Run({"info", Data("rs-qwen3_moe-moedefrag.cmf"), "--json"})
                          .json()["header"]["provenance"]["moe_defrag"];
  for (const char* key : {"cover", "kept_per_layer", "num_experts_pre", "routing_counts", "stats_hash64"})
    EXPECT_EQ(ours[key], theirs[key]) << key;

  const Ran mask = Run({"moe-mask", full, "--stats", Path("stats.json"), "--cover", "0.8", "--name", "again",
                        "--output", Path("masked.cmf"), "--json"});
  ASSERT_EQ(mask.status, 0) << mask.err;
  EXPECT_EQ(Run({"verify", Path("masked.cmf")}).status, 0);
  const Json masks = Run({"info", Path("masked.cmf"), "--json"}).json()["masks"];
  ASSERT_EQ(masks.size(), 2u);
  EXPECT_EQ(masks[1]["name"], "again");
  EXPECT_EQ(masks[1]["task_id"], 2);
  EXPECT_TRUE(masks[1]["quality"].is_null());  // not measured
  EXPECT_EQ(masks[1]["sparsity"], masks[0]["sparsity"]);
  EXPECT_EQ(Tokens({Path("masked.cmf")}), Tokens({full}));  // generate uses no task unless told to

  // Both computations, and every other running command takes the restriction too.
  EXPECT_EQ(Tokens({full, "--moe-mask-stats", Path("stats.json"), "--cover", "0.8"}, "fast"),
            Tokens({Path("small.cmf")}, "fast"));
  const Ran restricted = Run({"logits", full, "--tokens", kPrompt, "--compute", "exact", "--moe-mask-stats",
                              Path("stats.json"), "--cover", "0.8"});
  const Ran smaller = Run({"logits", Path("small.cmf"), "--tokens", kPrompt, "--compute", "exact"});
  ASSERT_EQ(restricted.status, 0) << restricted.err;
  EXPECT_EQ(restricted.out, smaller.out);
}

TEST_F(Moe, SmallerFilesOfSmallerFilesNeedNoStatistics) {
  ASSERT_EQ(
      Run({"moe-defrag", Data("rs-qwen3_moe-moedefrag.cmf"), "--cover", "0.5", "--output", Path("less.cmf")})
          .status,
      0);
  EXPECT_EQ(Tensors(Path("less.cmf")).count("model.layers.0.mlp.experts.1.gate_proj.weight"),
            0u);  // 90 of 172
  EXPECT_EQ(Run({"verify", Path("less.cmf")}).status, 0);
  EXPECT_EQ(Tokens({Path("less.cmf")}).size(), 12u);
}

TEST_F(Moe, WhatDoesNotFitIsOneLineAndTheRightCode) {
  const std::string moe = Data("rs-qwen3_moe-moemask.cmf"), dense = Data("rs-qwen3-q8.cmf");
  const auto refused = [&](int status, std::vector<std::string> arguments) {
    const Ran ran = Run(arguments);
    EXPECT_EQ(ran.status, status) << ran.err;
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
    EXPECT_FALSE(std::filesystem::exists(Path("out")));
  };
  const std::string stats = Path("stats.json"), out = Path("out");
  std::ofstream(Path("bad.json")) << "{\"0\": [1, -1]}";
  std::ofstream(Path("other.json")) << "{\"0\": [1, 1]}";
  refused(2, {"moe-defrag", dense, "--stats", stats, "--output", out});
  refused(2, {"moe-defrag", moe, "--stats", stats, "--cover", "0", "--output", out});
  refused(2, {"moe-defrag", moe, "--stats", Path("other.json"), "--output", out});
  refused(4, {"moe-defrag", moe, "--stats", Path("bad.json"), "--output", out});
  refused(3, {"moe-defrag", moe, "--stats", Path("none.json"), "--output", out});
  refused(3, {"moe-defrag", moe, "--output", out});
  refused(2, {"moe-defrag", moe, "--stats", stats, "--output", moe});
  refused(2, {"moe-mask", moe, "--stats", stats, "--name", "coder", "--output", out});
  refused(2, {"moe-mask", moe, "--stats", stats, "--name", "", "--output", out});
  refused(2, {"moe-mask", dense, "--stats", stats, "--name", "x", "--output", out});
  refused(2, {"generate", dense, "--tokens", "1", "--moe-mask-stats", stats});
  refused(2, {"generate", moe, "--tokens", "1", "--moe-mask-stats", stats, "--cover", "1.5"});
  refused(2, {"generate", moe, "--tokens", "1", "--cover", "0.5"});
  std::ofstream(Path("text")) << "hello";
  refused(2, {"moe-stats", dense, "--file", Path("text"), "-o", out});
  refused(7, {"moe-stats", moe, "--file", Path("text"), "-o", out, "--context", "1000000"});
  refused(2, {"moe-stats", moe, "--file", Path("text"), "-o", Path("text")});
  EXPECT_EQ(std::filesystem::file_size(Path("text")), 5u) << "the text is not its own output";
}

TEST_F(Moe, StatisticsOfTheTrainedModelAreItsRecordedShares) {
  const std::string models = std::string(CMFORGE_SOURCE_DIR) + "/../shared/models";
  if (!std::filesystem::exists(models)) GTEST_SKIP() << "the trained model is not here";
  std::ifstream file(models + "/tiny-moe/routes.json");
  const Json routes = Json::parse(file);
  for (const char* domain : {"stories", "code"}) {
    const Ran ran =
        Run({"moe-stats", models + "/tiny-moe", "--file", models + "/heldout/" + domain + ".txt", "--tokens",
             "6144", "--context", "256", "--compute", "exact", "-o", Path("s.json"), "--json"});
    ASSERT_EQ(ran.status, 0) << ran.err;
    const Json written = Json::parse(Slurp(Path("s.json")));
    for (const auto& [layer, counts] : written.items()) {
      double total = 0;
      for (const Json& count : counts) total += count.get<double>();
      EXPECT_EQ(total, 6144 * 2);
      for (size_t e = 0; e < counts.size(); ++e) {
        EXPECT_NEAR(counts[e].get<double>() / total, routes[domain][layer][e].get<double>(), 0.005)
            << domain << layer;
      }
    }
    EXPECT_EQ(ran.json()["counts"], written);
    const Ran ppl =
        Run({"ppl", models + "/tiny-moe", "--file", models + "/heldout/" + domain + ".txt", "--tokens", "512",
             "--context", "256", "--moe-mask-stats", Path("s.json"), "--cover", "0.9", "--json"});
    EXPECT_EQ(ppl.status, 0) << ppl.err;
  }
}

}  // namespace
}  // namespace cmforge
