// Expert statistics: reading, the choice of experts that cover a share, and the mask they make.
#include "cmf/expert_stats.h"

#include <gtest/gtest.h>

#include "cmf/hash64.h"
#include "cmf/masks.h"
#include "files.h"
#include "tiny_model.h"

namespace cmforge::cmf {
namespace {

using Ids = std::vector<int64_t>;

TEST(ExpertStats, ReadWhatTheyWrite) {
  const std::string text = R"({"1":[5,90,0.25],"11":[0,9007199254740991,3],"2":[1,2,3]})";
  const auto stats = ParseExpertStats(text, "s.json");
  ASSERT_TRUE(stats) << stats.error().message;
  EXPECT_EQ(stats->counts.size(), 3u);
  EXPECT_EQ(stats->counts.at(1), (std::vector<double>{5, 90, 0.25}));
  EXPECT_EQ(stats->hash, Hash64(AsBytes(text)));
  EXPECT_EQ(DumpExpertStats(*stats), R"({"1":[5,90,0.25],"2":[1,2,3],"11":[0,9007199254740991,3]})");
  EXPECT_EQ(ParseExpertStats(DumpExpertStats(*stats), "")->counts, stats->counts);
}

TEST(ExpertStats, BadOnesAreRefusedNamingFileAndLayer) {
  for (const char* text :
       {"", "[", "[1,2]", "7", R"({"x":[1]})", R"({"-1":[1]})", R"({"1.5":[1]})", R"({"":[1]})", R"({"1":5})",
        R"({"1":[-1]})", R"({"1":["1"]})", R"({"1":[null]})", R"({"1":[1e999]})", R"({"1":[1],"01":[1]})",
        R"({"1":[1],"1":[1]})", R"({"99999999999999999999":[1]})"}) {
    const auto stats = ParseExpertStats(text, "s.json");
    ASSERT_FALSE(stats) << text;
    EXPECT_EQ(stats.error().kind, ErrorKind::kCorrupt) << text;
    EXPECT_EQ(stats.error().message.rfind("s.json", 0), 0u) << stats.error().message;
  }
  EXPECT_EQ(ParseExpertStats("{}", "s.json").error().kind, ErrorKind::kUsage);
  EXPECT_NE(ParseExpertStats(R"({"7":[1,-2]})", "s").error().message.find("layer 7: expert 1"),
            std::string::npos);
}

TEST(ExpertStats, TheSmallestSetThatCoversTheShareStays) {
  const std::vector<double> counts = {5, 90, 3, 60, 1, 0, 22, 8};  // 189
  EXPECT_EQ(CoveringExperts(counts, 0.8), (Ids{1, 3, 6}));
  EXPECT_EQ(CoveringExperts(counts, 150.0 / 189), (Ids{1, 3}));
  EXPECT_EQ(CoveringExperts(counts, 1e-9), (Ids{1}));
  EXPECT_EQ(CoveringExperts(counts, 1), (Ids{0, 1, 2, 3, 4, 6, 7}));              // 5 was never chosen
  EXPECT_EQ(CoveringExperts(std::vector<double>{4, 4, 4, 4}, 0.5), (Ids{0, 1}));  // of equals the lower id
  EXPECT_EQ(CoveringExperts(std::vector<double>{1, 4, 4, 1}, 0.9), (Ids{0, 1, 2}));
  EXPECT_EQ(CoveringExperts(std::vector<double>{0, 0, 0}, 0.5), (Ids{0, 1, 2}));  // nothing is known
  EXPECT_EQ(CoveringExperts(std::vector<double>{}, 0.5), Ids{});
}

MemorySource ThreeLayers() {
  MemorySource source;
  source.AddPattern("model.layers.0.mlp.gate_proj.weight", DType::kF32, {4, 2});
  for (const int layer : {1, 2}) {
    source.AddPattern(fmt::format("model.layers.{}.mlp.gate.weight", layer), DType::kF32, {10, 2});
    for (int e = 0; e < (layer == 1 ? 10 : 9); ++e) {
      source.AddPattern(fmt::format("model.layers.{}.mlp.experts.{}.gate_proj.weight", layer, e), DType::kF32,
                        {4, 2});
    }
  }
  return source;
}

ModelConfig ThreeLayerConfig() {
  ModelConfig config = TinyConfig();
  config.num_layers = 3;
  config.moe = MoeConfig{.num_experts = 10, .top_k = 2};
  return config;
}

TEST(ExpertStats, OnlyLayersWithRecordsAreRestricted) {
  const MemorySource source = ThreeLayers();
  const ModelConfig config = ThreeLayerConfig();
  EXPECT_EQ(ExpertsOfLayers(source, config), (std::map<int64_t, int64_t>{{1, 10}, {2, 9}}));
  ExpertStats stats;
  stats.counts[2] = {0, 0, 0, 0, 0, 0, 0, 1, 9};
  const auto selection = SelectExperts(stats, 0.99, source, config);
  ASSERT_TRUE(selection) << selection.error().message;
  EXPECT_EQ(selection->Kept(), 2);
  EXPECT_EQ(selection->Dropped(), 7);
  ActiveSet active;
  ASSERT_TRUE(RestrictExperts(active, *selection, config));
  EXPECT_EQ(active.expert_count, 10);
  EXPECT_EQ(active.experts, (std::vector<std::vector<uint8_t>>{{0xFF, 0x03}, {0xFF, 0x03}, {0x80, 0x01}}));
  EXPECT_TRUE(active.ffn.empty() && active.heads.empty() && active.layer_gates.empty());

  // Together with a mask only what both allow stays; nothing at all is an error.
  ActiveSet masked;
  masked.expert_count = 10;
  masked.experts = {{0x00, 0x00}, {0x55, 0x01}, {0x01, 0x01}};
  ASSERT_TRUE(RestrictExperts(masked, *selection, config));
  EXPECT_EQ(masked.experts, (std::vector<std::vector<uint8_t>>{{0x00, 0x00}, {0x55, 0x01}, {0x00, 0x01}}));
  masked.experts[2] = {0x7F, 0x00};
  const auto none = RestrictExperts(masked, *selection, config);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().kind, ErrorKind::kUsage);
  EXPECT_NE(none.error().message.find("layer 2"), std::string::npos);
}

TEST(ExpertStats, OfAnotherModelAreRefused) {
  const MemorySource source = ThreeLayers();
  const ModelConfig config = ThreeLayerConfig();
  const auto error = [&](const char* text, double cover = 0.9) {
    const auto selection = SelectExperts(*ParseExpertStats(text, "s"), cover, source, config);
    EXPECT_FALSE(selection) << text;
    return selection ? Error{} : selection.error();
  };
  for (const Error& e :
       {error(R"({"0":[1,2]})"), error(R"({"1":[1,2]})"), error(R"({"2":[1,2,3,4,5,6,7,8,9,10]})"),
        error(R"({"3":[1]})"), error(R"({"1":[]})")}) {
    EXPECT_EQ(e.kind, ErrorKind::kUsage);
    EXPECT_NE(e.message.find("layer"), std::string::npos) << e.message;
  }
  for (const double cover : {0.0, -1.0, 1.0001, std::nan("")})
    EXPECT_NE(error(R"({"2":[1,1,1,1,1,1,1,1,1]})", cover).message.find("cover"), std::string::npos);
  const MemorySource dense;
  EXPECT_EQ(SelectExperts({}, 0.9, dense, TinyConfig()).error().kind, ErrorKind::kUsage);
}

TEST(ExpertStats, MakeTheMaskThatTheReferenceMade) {
  const auto file = File::Open(DataFolder() / "rs-qwen3_moe-moemask.cmf");
  ASSERT_TRUE(file) << file.error().message;
  const auto stats =
      ParseExpertStats(R"({"0": [5, 90, 3, 60, 1, 0, 22, 8], "1": [40, 2, 33, 7, 70, 6, 0, 50]})", "s");
  const auto selection = SelectExperts(*stats, 0.8, *file, file->config());
  ASSERT_TRUE(selection) << selection.error().message;
  ActiveSet active;
  ASSERT_TRUE(RestrictExperts(active, *selection, file->config()));
  EXPECT_EQ(active.experts, file->masks().Find("coder")->bits.experts);
}

}  // namespace
}  // namespace cmforge::cmf
