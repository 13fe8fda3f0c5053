// Task masks and the sparse index.
#include "cmf/masks.h"

#include <gtest/gtest.h>

#include "cmf/file.h"
#include "cmf/sparse_index.h"
#include "files.h"
#include "tiny_model.h"

namespace cmforge::cmf {
namespace {

MaskCatalog TinyCatalog() {
  MaskCatalog catalog;
  catalog.default_task = "general";
  catalog.masks = {TinyMask("general", 0), TinyMask("sql", 1)};
  return catalog;
}

Result<MaskCatalog> RoundTrip(const MaskCatalog& catalog, const MaskGeometry& geometry) {
  CMF_TRY(const auto section, PackMasks(catalog, geometry));
  return ReadMasks(section, geometry);
}

TEST(Masks, SurviveWithEveryField) {
  ModelConfig config = TinyConfig();
  config.moe = MoeConfig{.num_experts = 10, .top_k = 2};
  MaskCatalog catalog = TinyCatalog();
  TaskMask& mask = catalog.masks[1];
  mask.description = "d";
  mask.parent = "general";
  mask.priority = MaskPriority::kPrimary;
  mask.has_hot_pack = true;
  mask.quality =
      Json::parse(R"({"metric":"heldout_ppl_ratio","value":0.97,"baseline_dense":6.1,"n_samples":512,)"
                  R"("dataset_sha256":")" +
                  std::string(64, 'a') + R"("})");
  mask.extra["theirs"] = 5;
  catalog.extra["top"] = true;
  mask.bits.experts = {{0xFF, 0x03}, {0x01, 0x02}};
  const auto read = RoundTrip(catalog, MaskGeometry::Of(config));
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read->masks.size(), 2u);
  EXPECT_EQ(read->default_task, "general");
  EXPECT_EQ(read->extra, catalog.extra);
  const TaskMask& back = read->masks[1];
  EXPECT_EQ(back.description, mask.description);
  EXPECT_EQ(back.parent, mask.parent);
  EXPECT_EQ(back.priority, mask.priority);
  EXPECT_TRUE(back.has_hot_pack);
  EXPECT_TRUE(back.is_measured());
  EXPECT_FALSE(read->masks[0].is_measured());
  EXPECT_EQ(back.extra, mask.extra);
  EXPECT_EQ(back.bits.ffn, mask.bits.ffn);
  EXPECT_EQ(back.bits.heads, mask.bits.heads);
  EXPECT_EQ(back.bits.layer_gates, mask.bits.layer_gates);
  EXPECT_EQ(back.bits.experts, mask.bits.experts);
  EXPECT_EQ(back.bits.expert_count, 10);
  EXPECT_FALSE(read->masks[0].has_expert_fields());
}

TEST(Masks, WhatAMaskDoesNotSayIsFullyActive) {
  MaskCatalog catalog;
  catalog.masks.push_back(TinyMask("neurons only", 0));
  catalog.masks[0].bits.heads.clear();
  catalog.masks[0].bits.layer_gates.clear();
  const auto read = RoundTrip(catalog, MaskGeometry::Of(TinyConfig()));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->masks[0].bits.heads, (std::vector<std::vector<uint8_t>>{{0x03}, {0x03}}));
  EXPECT_EQ(read->masks[0].bits.layer_gates, std::vector<uint8_t>{0x03});
}

TEST(Masks, ALoopedModelHasARowForEveryVisit) {
  ModelConfig config = TinyConfig();
  config.num_loops = 3;
  const MaskGeometry looped = MaskGeometry::Of(config), plain = MaskGeometry::Of(TinyConfig());
  const auto read = RoundTrip(TinyCatalog(), looped);
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read->masks[0].bits.ffn.size(), 6u);
  EXPECT_EQ(read->masks[0].bits.heads.size(), 2u);
  for (size_t visit = 0; visit < 6; ++visit) {
    EXPECT_EQ(read->masks[0].bits.ffn[visit], TinyCatalog().masks[0].bits.ffn[visit % 2]);
  }
  // Older files have one row a layer even then.
  const auto legacy = ReadMasks(*PackMasks(TinyCatalog(), plain), looped);
  ASSERT_TRUE(legacy) << legacy.error().message;
  EXPECT_EQ(legacy->masks[0].bits.ffn.size(), 2u);
}

TEST(Masks, WrongOnesAreNotWritten) {
  const MaskGeometry geometry = MaskGeometry::Of(TinyConfig());
  const auto refuse = [&](auto edit) {
    MaskCatalog catalog = TinyCatalog();
    edit(catalog);
    const auto section = PackMasks(catalog, geometry);
    ASSERT_FALSE(section);
    EXPECT_EQ(section.error().kind, ErrorKind::kUsage) << section.error().message;
  };
  refuse([](MaskCatalog& c) { c.masks[0].bits.ffn[0][1] = 0x10; });
  refuse([](MaskCatalog& c) { c.masks[0].bits.heads[1][0] = 0x04; });
  refuse([](MaskCatalog& c) { c.masks[0].bits.ffn[0].push_back(0); });
  refuse([](MaskCatalog& c) { c.masks[0].bits.ffn.resize(3, c.masks[0].bits.ffn[0]); });
  refuse([](MaskCatalog& c) { c.masks[0].bits.experts = {{1}, {1}}; });
  refuse([](MaskCatalog& c) { c.masks[0].name = "sql"; });
  refuse([](MaskCatalog& c) { c.masks[0].name = ""; });
}

TEST(Masks, AFigureWithoutItsEvidenceIsRefused) {
  const std::string complete =
      R"({"metric":"ppl","value":1.01,"baseline_dense":6,"n_samples":9,"dataset_sha256":")" +
      std::string(64, '0') + "\"}";
  EXPECT_TRUE(CheckQuality(Json()));
  EXPECT_TRUE(CheckQuality(Json::parse(complete)));
  for (const char* key : {"metric", "value", "baseline_dense", "n_samples", "dataset_sha256"}) {
    Json quality = Json::parse(complete);
    quality.erase(key);
    const auto status = CheckQuality(quality);
    ASSERT_FALSE(status) << key;
    EXPECT_NE(status.error().message.find(key), std::string::npos) << status.error().message;
  }
  EXPECT_FALSE(CheckQuality(Json(1.0)));
}

TEST(Masks, TheFirstTaskIsTheDefaultThenTheFallback) {
  MaskCatalog catalog = TinyCatalog();
  EXPECT_EQ(catalog.Initial()->name, "general");
  catalog.default_task = "sql";
  EXPECT_EQ(catalog.Initial()->name, "sql");
  catalog.default_task = "gone";
  EXPECT_EQ(catalog.Initial()->name, "general") << "the fallback";
  for (TaskMask& mask : catalog.masks) mask.priority = MaskPriority::kNormal;
  EXPECT_EQ(catalog.Initial(), nullptr) << "without either, the whole model";
  EXPECT_EQ(MaskCatalog{}.Initial(), nullptr);
  EXPECT_EQ(catalog.Find("nothing"), nullptr);
}

TEST(Masks, HeadsGatesVisitsAndExpertsOfFixtures) {
  const auto heads = File::Open(DataFolder() / "rs-llama-headmask.cmf");
  ASSERT_TRUE(heads);
  EXPECT_EQ(heads->masks().masks.size(), 3u);
  EXPECT_LT(CountBits(heads->masks().Find("thin")->bits.heads[0]) +
                CountBits(heads->masks().Find("thin")->bits.heads[1]),
            8);
  EXPECT_LT(CountBits(heads->masks().Find("gate")->bits.layer_gates), 2);
  const auto loops = File::Open(DataFolder() / "rs-nanbeige-loopmask.cmf");
  ASSERT_TRUE(loops);
  EXPECT_EQ(loops->masks().masks[0].bits.ffn.size(), 4u);
  EXPECT_NE(loops->required_features() & kLoopMasks, 0u);
  const auto experts = File::Open(DataFolder() / "rs-qwen3_moe-moemask.cmf");
  ASSERT_TRUE(experts);
  const TaskMask& coder = *experts->masks().Find("coder");
  EXPECT_TRUE(coder.has_expert_fields());
  EXPECT_EQ(CountBits(coder.bits.experts[0]) + CountBits(coder.bits.experts[1]), 7)
      << "sparsity 0.5625 of 16";
}

TEST(SparseIndex, AgreesWithTheMasksItWasMadeFrom) {
  const MaskGeometry geometry = MaskGeometry::Of(TinyConfig());
  MaskCatalog catalog = TinyCatalog();
  catalog.masks[1].bits.layer_gates = {0x02};
  const auto entries = BuildSparseIndex(catalog, geometry);
  ASSERT_TRUE(entries);
  EXPECT_EQ(entries->size(), 3u) << "a gated layer has no entry";
  const auto read = ReadSparseIndex(PackSparseIndex(*entries));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, *entries);
  EXPECT_TRUE(CompareIndexWithMasks(*read, catalog, geometry).empty());
  catalog.masks[0].bits.heads[0] = {0x02};
  EXPECT_EQ(CompareIndexWithMasks(*read, catalog, geometry).size(), 1u);
}

TEST(SparseIndex, IsDerivedAsOtherWritersDo) {
  for (const fs::path& path : AllFixtures()) {
    const auto file = File::Open(path);
    ASSERT_TRUE(file);
    const Part& part = file->parts()[0];
    if (part.envelope.index.size == 0) continue;
    const auto built = BuildSparseIndex(file->masks(), file->mask_geometry());
    ASSERT_TRUE(built);
    const std::vector<std::byte> packed = PackSparseIndex(*built);
    const Bytes stored = part.envelope.index.Of(part.bytes);
    EXPECT_TRUE(std::equal(packed.begin(), packed.end(), stored.begin(), stored.end())) << path;
  }
}

TEST(SparseIndex, HostileCountsAreRefused) {
  const MaskGeometry geometry = MaskGeometry::Of(TinyConfig());
  std::vector<std::byte> section = PackSparseIndex(*BuildSparseIndex(TinyCatalog(), geometry));
  for (const size_t field : {0, 16, 20}) {
    std::vector<std::byte> bad = section;
    StoreLe<uint32_t>(bad.data() + field, 0xFFFFFFFF);
    const auto read = ReadSparseIndex(bad);
    ASSERT_FALSE(read) << field;
    EXPECT_EQ(read.error().name, "Parse");
  }
  EXPECT_FALSE(ReadSparseIndex(Bytes(section).first(7)));
}

}  // namespace
}  // namespace cmforge::cmf
