// Keep-sets from NumPy files.
#include "open/mask_files.h"

#include <fstream>

#include "base/npy.h"
#include "gtest/gtest.h"

namespace cmforge {
namespace {

namespace fs = std::filesystem;
constexpr cmf::MaskGeometry kGeometry{.layers = 2, .loops = 1, .ffn_width = 10, .heads = 3, .experts = 0};

class MaskFolder : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) /
              (std::string("cmforge-masks-") + testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path Write(const std::string& name, std::vector<int64_t> shape, const std::vector<int32_t>& values) {
    EXPECT_TRUE(WriteNpy(folder_ / name, NpyArray::FromBools(std::move(shape), values)));
    return folder_ / name;
  }
  fs::path folder_;
};

const std::vector<int32_t> kKeep = {1, 0, 1, 0, 1, 0, 1, 0, 1, 1, /**/ 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};

TEST_F(MaskFolder, BitsAreLowestFirstAndTailsAreClear) {
  const auto mask = ReadMaskFiles("a",
                                  {Write("a.npy", {2, 10}, kKeep), Write("h.npy", {2, 3}, {1, 0, 1, 0, 1, 0}),
                                   Write("g.npy", {2}, {1, 0})},
                                  kGeometry);
  ASSERT_TRUE(mask) << mask.error().message;
  EXPECT_EQ(mask->bits.ffn, (std::vector<std::vector<uint8_t>>{{0x55, 0x03}, {0x00, 0x02}}));
  EXPECT_EQ(mask->bits.heads, (std::vector<std::vector<uint8_t>>{{0x05}, {0x02}}));
  EXPECT_EQ(mask->bits.layer_gates, std::vector<uint8_t>{0x01});
  EXPECT_DOUBLE_EQ(mask->sparsity, 0.4) << "of the layer that is on";
  EXPECT_TRUE(mask->quality.is_null());
  cmf::MaskCatalog catalog;
  ASSERT_TRUE(AddToCatalog(catalog, *mask));
  EXPECT_TRUE(cmf::PackMasks(catalog, kGeometry));
}

TEST_F(MaskFolder, ShapesOfOtherModelsAreRefused) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{10, 2}, {4, 5}, {20}, {2, 10, 1}}) {
    const auto mask = ReadMaskFiles("a", {Write("a.npy", shape, kKeep), {}, {}}, kGeometry);
    ASSERT_FALSE(mask);
    EXPECT_EQ(mask.error().kind, ErrorKind::kUsage);
    EXPECT_NE(mask.error().message.find("[2, 10]"), std::string::npos) << mask.error().message;
  }
  EXPECT_FALSE(ReadMaskFiles("a", {}, kGeometry)) << "nothing restricted";
  EXPECT_FALSE(ReadMaskFiles("a", {{}, {}, Write("g.npy", {2}, {0, 0})}, kGeometry)) << "no layer left";
}

TEST_F(MaskFolder, LoopedModelsTakeARowPerVisit) {
  cmf::MaskGeometry looped = kGeometry;
  looped.layers = 1;
  looped.loops = 2;
  const auto mask = ReadMaskFiles("a", {Write("a.npy", {2, 10}, kKeep), {}, {}}, looped);
  ASSERT_TRUE(mask) << mask.error().message;
  EXPECT_EQ(mask->bits.ffn.size(), 2u);
}

TEST_F(MaskFolder, AFolderBecomesACatalog) {
  Write("prose.npy", {2, 10}, kKeep);
  Write("code.npy", {2, 10}, kKeep);
  Write("code.heads.npy", {2, 3}, {1, 1, 1, 1, 1, 0});
  std::ofstream(folder_ / "code.quality.json")
      << R"({"metric":"heldout_ppl_ratio","value":1.1,"baseline_dense":9.5,"n_samples":100,"dataset_sha256":")"
      << std::string(64, 'a') << "\"}";
  std::ofstream(folder_ / "masks.json") << "{}";
  const auto catalog = ReadMaskFolder(folder_, kGeometry);
  ASSERT_TRUE(catalog) << catalog.error().message;
  ASSERT_EQ(catalog->masks.size(), 2u);
  EXPECT_EQ(catalog->masks[0].name, "code");
  EXPECT_TRUE(catalog->masks[0].is_measured());
  EXPECT_EQ(catalog->masks[0].bits.heads.size(), 2u);
  EXPECT_FALSE(catalog->masks[1].is_measured());
  EXPECT_EQ(catalog->masks[1].task_id, 1u);
  EXPECT_EQ(catalog->default_task, "code");
  std::ofstream(folder_ / "code.quality.json") << R"({"metric":"heldout_ppl_ratio","value":1.1})";
  EXPECT_FALSE(ReadMaskFolder(folder_, kGeometry)) << "a figure without its evidence";
  EXPECT_EQ(ReadMaskFolder(folder_ / "none", kGeometry).error().kind, ErrorKind::kNotFound);
}

}  // namespace
}  // namespace cmforge
