// Files with fewer experts: numbering, gathered routers, verbatim payloads, masks and skills that follow,
// refusals.
#include "convert/expert_defrag.h"

#include <map>

#include "cmf/files.h"
#include "cmf/hash64.h"
#include "cmf/tiny_model.h"

namespace cmforge {
namespace {

constexpr int64_t kExperts = 10, kHidden = 32;

std::vector<std::byte> Floats(std::vector<float> values) {
  const Bytes bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

std::string Expert(int64_t e, const char* role, int layer = 1) {
  return fmt::format("model.layers.{}.mlp.experts.{}.{}_proj.weight", layer, e, role);
}

/// A dense layer, and two with ten experts each whose payloads are all different.
class ExpertDefrag : public cmf::InFolder {
 protected:
  void SetUp() override {
    InFolder::SetUp();
    tensors_.AddPattern("model.embed_tokens.weight", DType::kQ8Row, {10, kHidden});
    tensors_.AddPattern("model.layers.0.mlp.down_proj.weight", DType::kBF16, {kHidden, 12});
    unsigned seed = 1;
    for (const int layer : {1, 2}) {
      for (int64_t e = 0; e < kExperts; ++e) {  // expert by expert, as some writers do
        for (const char* role : {"down", "gate", "up"}) {
          tensors_.AddPattern(Expert(e, role, layer), e % 2 ? DType::kQ8Row : DType::kF16, {4, kHidden},
                              ++seed * 977);
        }
      }
      std::vector<float> router(kExperts * kHidden), bias(kExperts);
      for (size_t i = 0; i < router.size(); ++i) router[i] = static_cast<float>(i) + 0.5f;
      for (size_t i = 0; i < bias.size(); ++i) bias[i] = static_cast<float>(i);
      const std::string mlp = fmt::format("model.layers.{}.mlp.", layer);
      if (layer == 1) {
        tensors_.Add(mlp + "gate.weight", DType::kF32, {kExperts, kHidden}, Floats(router));
      } else {
        tensors_.AddPattern(mlp + "gate.weight", DType::kQ8Row, {kExperts, kHidden}, 4711);
      }
      tensors_.Add(mlp + "expert_bias", DType::kF32, {kExperts}, Floats(bias));
    }
    contents_.header.config = cmf::TinyConfig();
    contents_.header.config.num_layers = 3;
    contents_.header.config.layer_types.assign(3, LayerKind::kFullAttention);
    contents_.header.config.moe = MoeConfig{.num_experts = kExperts, .top_k = 2};
    contents_.header.provenance = {{"tool", "test"}, {"source_model", "m"}};
    stats_.counts[1] = {0, 50, 0, 0, 20, 0, 0, 0, 0, 30};
    stats_.counts[2] = {1, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    stats_.hash = 0xABC;
  }

  void WriteFull() {
    contents_.tensors = &tensors_;
    contents_.names.clear();
    for (const TensorInfo& tensor : tensors_.tensors()) contents_.names.push_back(tensor.name);
    const auto written = cmf::WriteCmf(folder_ / "full.cmf", contents_);
    ASSERT_TRUE(written) << written.error().message;
  }
  Result<ExpertDefragReport> Defrag(double cover = 0.95) {
    CMF_TRY(const cmf::File file, cmf::File::Open(folder_ / "full.cmf"));
    return DefragExperts(file, stats_, cover, "cmforge test", folder_ / "small.cmf", {});
  }
  cmf::File Small() {
    auto file = cmf::File::Open(folder_ / "small.cmf");
    EXPECT_TRUE(file) << file.error().message;
    return std::move(*file);
  }

  cmf::MemorySource tensors_;
  cmf::Contents contents_;
  cmf::ExpertStats stats_;
};

TEST_F(ExpertDefrag, KeptExpertsAreAContiguousPrefixWithTheirOwnBytes) {
  WriteFull();
  const auto report = Defrag();
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->selection.kept.at(1), (std::vector<int64_t>{1, 4, 9}));
  EXPECT_EQ(report->selection.kept.at(2), (std::vector<int64_t>{0}));
  EXPECT_LT(report->bytes_after, report->bytes_before);
  const cmf::File small = Small(), full = *cmf::File::Open(folder_ / "full.cmf");
  const std::map<int64_t, int64_t> left = {{1, 3}, {2, 1}};
  EXPECT_EQ(cmf::ExpertsOfLayers(small, small.config()), left);
  EXPECT_EQ(small.config().moe->num_experts, kExperts);  // nominal
  for (const auto& [layer, kept] : report->selection.kept) {
    for (size_t i = 0; i < kept.size(); ++i) {
      for (const char* role : {"gate", "up", "down"}) {
        const auto want = full.Read(Expert(kept[i], role, static_cast<int>(layer)));
        const auto got = small.Read(Expert(static_cast<int64_t>(i), role, static_cast<int>(layer)));
        ASSERT_TRUE(got) << got.error().message;
        EXPECT_EQ(got->dtype, want->dtype);
        EXPECT_TRUE(std::equal(got->bytes.begin(), got->bytes.end(), want->bytes.begin(), want->bytes.end()));
      }
    }
  }
  EXPECT_EQ(small.Find(Expert(3, "gate")), nullptr);
  EXPECT_EQ(small.tensors().size(), 2u + (3 + 1) * 3 + 2 * 2);
  // Role by role: all gates of a layer, then all ups, then all downs.
  std::vector<std::string> order;
  for (const TensorInfo& info : small.tensors()) {
    if (info.name.find("layers.1.mlp.experts") != std::string::npos) order.push_back(info.name);
  }
  EXPECT_EQ(order, (std::vector<std::string>{Expert(0, "gate"), Expert(1, "gate"), Expert(2, "gate"),
                                             Expert(0, "up"), Expert(1, "up"), Expert(2, "up"),
                                             Expert(0, "down"), Expert(1, "down"), Expert(2, "down")}));
}

TEST_F(ExpertDefrag, RouterRowsAndBiasesAreGathered) {
  WriteFull();
  ASSERT_TRUE(Defrag());
  const cmf::File small = Small(), full = *cmf::File::Open(folder_ / "full.cmf");
  const auto check = [&](const std::string& name, const std::vector<int64_t>& kept) {
    const auto before = Dequantize(*full.Read(name)), after = Dequantize(*small.Read(name));
    const size_t columns = before->size() / kExperts;
    ASSERT_EQ(after->size(), kept.size() * columns) << name;
    for (size_t i = 0; i < after->size(); ++i) {
      EXPECT_EQ((*after)[i], (*before)[static_cast<size_t>(kept[i / columns]) * columns + i % columns])
          << name;
    }
  };
  check("model.layers.1.mlp.gate.weight", {1, 4, 9});
  check("model.layers.1.mlp.expert_bias", {1, 4, 9});
  check("model.layers.2.mlp.gate.weight", {0});  // quantized: its row becomes f32, value for value
  EXPECT_EQ(small.Find("model.layers.1.mlp.gate.weight")->dtype, DType::kF32);
  EXPECT_EQ(small.Find("model.layers.1.mlp.gate.weight")->shape, (Shape{3, kHidden}));
}

TEST_F(ExpertDefrag, ProvenanceTellsWhatWasDoneAndFeedsTheNextOne) {
  WriteFull();
  ASSERT_TRUE(Defrag());
  const cmf::File small = Small();
  const Json& provenance = small.header().provenance;
  EXPECT_EQ(provenance["source_model"], "m");
  EXPECT_EQ(
      provenance["moe_defrag"],
      Json::parse(
          R"({"tool":"cmforge test","cover":0.95,"stats_hash64":"0000000000000abc","num_experts_pre":10,)"
          R"("kept_per_layer":[3,1],"routing_counts":{"1":[50,20,30],"2":[1]}})"));
  const auto embedded = EmbeddedExpertStats(small);
  ASSERT_TRUE(embedded) << embedded.error().message;
  const auto again = DefragExperts(small, *embedded, 0.5, "cmforge test", folder_ / "tiny.cmf", {});
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->selection.kept.at(1), (std::vector<int64_t>{0}));
  EXPECT_EQ(EmbeddedExpertStats(*cmf::File::Open(folder_ / "full.cmf")).error().kind, ErrorKind::kNotFound);
}

TEST_F(ExpertDefrag, MasksAreRenumberedOrTheFileIsRefused) {
  cmf::TaskMask open, narrow;
  open.name = "open";
  open.bits.expert_count = narrow.bits.expert_count = kExperts;
  open.bits.experts = {{0xFF, 0x03}, {0x12, 0x02}, {0xFF, 0x03}};  // layer 1: exactly those that stay
  narrow.name = "narrow";
  narrow.bits.experts = {{0xFF, 0x03}, {0x10, 0x02}, {0xFF, 0x03}};  // 4 and 9
  contents_.masks.default_task = "open";
  contents_.masks.masks = {open, narrow};
  WriteFull();
  const auto report = Defrag();
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->remapped_masks, 2);
  const cmf::File small = Small();
  EXPECT_EQ(small.masks().Find("open")->bits.experts,
            (std::vector<std::vector<uint8_t>>{{0xFF, 0x03}, {0xFF, 0x03}, {0xFF, 0x03}}));
  EXPECT_EQ(small.masks().Find("narrow")->bits.experts,
            (std::vector<std::vector<uint8_t>>{{0xFF, 0x03}, {0x06, 0x00}, {0xFF, 0x03}}));

  contents_.masks.masks[1].bits.experts[1] = {0x01, 0x00};  // only one that goes
  WriteFull();
  std::filesystem::remove(folder_ / "small.cmf");
  const auto refused = Defrag();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::kUsage);
  EXPECT_NE(refused.error().message.find("'narrow': layer 1"), std::string::npos) << refused.error().message;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "small.cmf"));
}

TEST_F(ExpertDefrag, ReplacementsOfASkillFollowTheirExperts) {
  cmf::SkillRecord skill;
  skill.id = "sql.2";
  skill.layers = {1};
  contents_.header.skills = {skill};
  tensors_.AddPattern("skill.sql.2." + Expert(4, "up"), DType::kF16, {4, kHidden}, 31);
  tensors_.AddPattern("skill.sql.2." + Expert(5, "up"), DType::kF16, {4, kHidden}, 32);
  tensors_.AddPattern("skill.sql.2.model.layers.1.mlp.gate.weight", DType::kBF16, {kExperts, kHidden}, 33);
  WriteFull();
  const auto report = Defrag();
  ASSERT_TRUE(report) << report.error().message;
  const cmf::File small = Small();
  const auto want = tensors_.Read("skill.sql.2." + Expert(4, "up")),
             got = small.Read("skill.sql.2." + Expert(1, "up"));
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_TRUE(std::equal(got->bytes.begin(), got->bytes.end(), want->bytes.begin(), want->bytes.end()));
  int64_t replacements = 0;
  for (const TensorInfo& info : small.tensors()) replacements += info.name.starts_with("skill.");
  EXPECT_EQ(replacements, 2);
  EXPECT_EQ(small.Find("skill.sql.2.model.layers.1.mlp.gate.weight")->shape, (Shape{3, kHidden}));
}

TEST_F(ExpertDefrag, WhatWouldDropNothingOrDoesNotFitIsRefused) {
  WriteFull();
  stats_.counts = {{1, std::vector<double>(kExperts, 1.0)}};
  EXPECT_EQ(Defrag(1.0).error().kind, ErrorKind::kUsage);
  EXPECT_EQ(Defrag(0.0).error().kind, ErrorKind::kUsage);
  stats_.counts = {{1, std::vector<double>(kExperts - 1, 1.0)}};
  EXPECT_EQ(Defrag(0.5).error().kind, ErrorKind::kUsage);
  tensors_.AddPattern("model.layers.1.mlp.gate.bias", DType::kF32, {kExperts + 1});
  WriteFull();
  stats_.counts = {{1, std::vector<double>(kExperts, 1.0)}};
  EXPECT_EQ(Defrag(0.5).error().kind, ErrorKind::kCorrupt);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "small.cmf"));
}

}  // namespace
}  // namespace cmforge
