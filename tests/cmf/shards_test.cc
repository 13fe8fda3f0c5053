// Sets of shards: any name opens them, and everything that can be wrong with a set is said.
#include "cmf/shards.h"

#include "cmf/file.h"
#include "cmf/hash64.h"
#include "cmf/rewrite.h"
#include "files.h"
#include "tiny_model.h"

namespace cmforge::cmf {
namespace {

constexpr double kTinyLimit = 4e-7;  // GB: 400 bytes of f32, so that the tiny model becomes several shards

class ShardSet : public InFolder {
 protected:
  void SetUp() override {
    InFolder::SetUp();
    contents_ = TinyContents(tensors_);
    auto shards = WriteShards(folder_ / "set", contents_, kTinyLimit);
    ASSERT_TRUE(shards) << shards.error().message;
    shards_ = *shards;
    ASSERT_GE(shards_.size(), 3u);
  }
  MemorySource tensors_;
  Contents contents_;
  std::vector<fs::path> shards_;
};

TEST(ShardNames, GoBothWays) {
  const auto name = ParseShardName("my-model-00002-of-00005.cmf");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->base, "my-model");
  EXPECT_EQ(name->no, 2);
  EXPECT_EQ(name->count, 5);
  EXPECT_EQ(FormatShardName(name->base, 2, 5), "my-model-00002-of-00005.cmf");
  EXPECT_EQ(SiblingPath("/a/my-model-00002-of-00005.cmf", 1), "/a/my-model-00001-of-00005.cmf");
  for (const char* other : {"model.cmf", "m-00000-of-00002.cmf", "m-00003-of-00002.cmf", "m-0001-of-0002.cmf",
                            "m-00001-of-00002.safetensors", "00001-of-00002.cmf", "m-0000x-of-00002.cmf"}) {
    EXPECT_FALSE(ParseShardName(other)) << other;
  }
}

TEST(CanonicalOrder, PutsLayersByNumberAndExpertsByRole) {
  std::vector<TensorInfo> tensors;
  for (const char* name :
       {"z.other", "model.mtp.norm.weight", "model.layers.10.a",
        "model.layers.2.mlp.experts.10.up_proj.weight", "model.layers.2.mlp.experts.2.up_proj.weight",
        "model.layers.2.mlp.experts.10.gate_proj.weight", "model.layers.2.mlp.experts.2.gate_proj.weight",
        "model.layers.2.input_layernorm.weight", "lm_head.weight", "model.norm.weight",
        "model.embed_tokens.weight"}) {
    tensors.push_back({name, DType::kF16, {1}, 2});
  }
  EXPECT_EQ(CanonicalOrder(tensors),
            (std::vector<std::string>{
                "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight",
                "model.layers.2.input_layernorm.weight", "model.layers.2.mlp.experts.2.gate_proj.weight",
                "model.layers.2.mlp.experts.10.gate_proj.weight",
                "model.layers.2.mlp.experts.2.up_proj.weight", "model.layers.2.mlp.experts.10.up_proj.weight",
                "model.layers.10.a", "model.mtp.norm.weight", "z.other"}));
}

TEST(CanonicalOrder, SplitsAsTheFixtureWasSplit) {
  const auto set = File::Open(DataFolder() / "py-tiny-sharded-00001-of-00004.cmf");
  ASSERT_TRUE(set) << set.error().message;
  // The limit is not recorded; the order is: every shard's tensors are a run of the canonical order.
  std::vector<std::string> names;
  for (const TensorInfo& tensor : set->tensors()) {
    if (!tensor.name.starts_with("skill.")) names.push_back(tensor.name);
  }
  std::vector<TensorInfo> infos;
  for (const std::string& name : names) infos.push_back(*set->Find(name));
  EXPECT_EQ(CanonicalOrder(infos), names);
}

TEST_F(ShardSet, OpensByAnyNameWithEverything) {
  for (const fs::path& path : shards_) {
    const auto set = File::Open(path);
    ASSERT_TRUE(set) << set.error().message;
    EXPECT_TRUE(set->is_complete());
    EXPECT_EQ(set->parts().size(), shards_.size());
    EXPECT_EQ(set->tensors().size(), tensors_.tensors().size());
    EXPECT_EQ(set->masks().masks.size(), 2u);
    EXPECT_EQ(set->header().skills.size(), 1u);
    EXPECT_TRUE(set->chat());
    EXPECT_EQ(AsText(set->tokenizer_json()), R"({"model":{}})");
    for (const TensorInfo& tensor : tensors_.tensors()) {
      const Bytes left = tensors_.Read(tensor.name)->bytes, right = set->Read(tensor.name)->bytes;
      EXPECT_TRUE(std::equal(left.begin(), left.end(), right.begin(), right.end())) << tensor.name;
    }
  }
}

TEST_F(ShardSet, OnlyTheFirstHoldsWhatIsCommon) {
  for (size_t i = 0; i < shards_.size(); ++i) {
    const auto shard = File::Open(shards_[i], MappedFile::Mode::kMap, File::Shards::kThisFile);
    ASSERT_TRUE(shard) << shard.error().message;
    EXPECT_FALSE(shard->is_complete());
    EXPECT_EQ(shard->header().shard->no, static_cast<int64_t>(i + 1));
    EXPECT_EQ(shard->header().shard->count, static_cast<int64_t>(shards_.size()));
    EXPECT_EQ(shard->header().chat.has_value(), i == 0);
    EXPECT_EQ(shard->header().skills.empty(), i != 0);
    EXPECT_EQ(shard->masks().empty(), i != 0);
    EXPECT_EQ(shard->tokenizer_json().empty(), i != 0);
    EXPECT_EQ(shard->config(), contents_.header.config);
  }
}

TEST_F(ShardSet, UnshardsToTheSameFileAsTheSourceGives) {
  const auto set = File::Open(shards_[1]);
  ASSERT_TRUE(set);
  Contents whole = ContentsOf(*set);
  whole.names = contents_.names;  // the order of the source
  ASSERT_TRUE(WriteCmf(folder_ / "unsharded.cmf", whole));
  ASSERT_TRUE(WriteCmf(folder_ / "direct.cmf", contents_));
  const auto unsharded = File::Open(folder_ / "unsharded.cmf"), direct = File::Open(folder_ / "direct.cmf");
  ASSERT_TRUE(unsharded) << unsharded.error().message;
  EXPECT_FALSE(unsharded->header().shard);
  for (const TensorInfo& tensor : direct->tensors()) {
    EXPECT_EQ(direct->PlaceOf(tensor).hash, unsharded->PlaceOf(*unsharded->Find(tensor.name)).hash);
  }
}

TEST_F(ShardSet, AMissingShardIsNamed) {
  fs::remove(shards_[1]);
  for (const fs::path& path : {shards_[0], shards_[2]}) {
    const auto set = File::Open(path);
    ASSERT_FALSE(set);
    EXPECT_EQ(set.error().kind, ErrorKind::kNotFound);
    EXPECT_NE(set.error().message.find(shards_[1].string()), std::string::npos) << set.error().message;
  }
}

TEST_F(ShardSet, CountsNumbersAndModelsMustAgree) {
  const auto expect_corrupt = [&](const fs::path& path, std::string_view text) {
    const auto set = File::Open(path);
    ASSERT_FALSE(set);
    EXPECT_EQ(set.error().kind, ErrorKind::kCorrupt);
    EXPECT_NE(set.error().message.find(text), std::string::npos) << set.error().message;
  };
  // A shard under another number.
  const std::vector<std::byte> second = ReadAll(shards_[1]);
  fs::copy_file(shards_[2], shards_[1], fs::copy_options::overwrite_existing);
  expect_corrupt(shards_[0], "the header says shard 3 of");
  expect_corrupt(shards_[1], "rename it");
  // One file of a set of another size.
  MemorySource other;
  ASSERT_TRUE(WriteShards(folder_ / "two", TinyContents(other), 1e-6));
  const fs::path stranger = folder_ / "two-00002-of-00002.cmf";
  ASSERT_TRUE(fs::exists(stranger));
  fs::copy_file(stranger, shards_[1], fs::copy_options::overwrite_existing);
  expect_corrupt(shards_[0], "the header says shard 2 of 2");
  // A file that is no shard at all.
  ASSERT_TRUE(WriteCmf(folder_ / "plain.cmf", contents_));
  fs::copy_file(folder_ / "plain.cmf", shards_[1], fs::copy_options::overwrite_existing);
  expect_corrupt(shards_[0], "not a shard");
  // Another architecture.
  Contents bigger = contents_;
  bigger.header.config.max_position_embeddings = 4096;
  ASSERT_TRUE(WriteShards(folder_ / "big", bigger, kTinyLimit));
  fs::copy_file(folder_ / shards_[1].filename().string().replace(0, 3, "big"), shards_[1],
                fs::copy_options::overwrite_existing);
  expect_corrupt(shards_[0], "another model");
  WriteAll(shards_[1], second);
  EXPECT_TRUE(File::Open(shards_[0]));
}

TEST_F(ShardSet, AShardUnderAnOrdinaryNameCannotFindItsSiblings) {
  fs::copy_file(shards_[0], folder_ / "renamed.cmf");
  const auto set = File::Open(folder_ / "renamed.cmf");
  ASSERT_FALSE(set);
  EXPECT_EQ(set.error().kind, ErrorKind::kNotFound);
}

TEST_F(ShardSet, AppearsWholeOrNotAtAll) {
  // The last tensor cannot be read: no shard of the new set may be there afterwards.
  Contents broken = contents_;
  struct Failing : TensorSource {
    explicit Failing(const TensorSource& inner_source) : inner(inner_source) {}
    std::span<const TensorInfo> tensors() const override { return inner.tensors(); }
    const TensorInfo* Find(std::string_view name) const override { return inner.Find(name); }
    Result<TensorView> Read(std::string_view name) const override {
      if (name.starts_with("skill.")) return Fail(ErrorKind::kIo, "broken");
      return inner.Read(name);
    }
    std::string_view path() const override { return "failing"; }
    const TensorSource& inner;
  } failing(tensors_);
  broken.tensors = &failing;
  const size_t before = Entries();
  EXPECT_EQ(WriteShards(folder_ / "broken", broken, kTinyLimit).error().kind, ErrorKind::kIo);
  EXPECT_EQ(WriteCmf(folder_ / "broken.cmf", broken).error().kind, ErrorKind::kIo);
  EXPECT_EQ(Entries(), before);
}

TEST_F(ShardSet, BytesDependOnTheInputsAlone) {
  ASSERT_TRUE(WriteShards(folder_ / "aga", contents_, kTinyLimit));
  for (const fs::path& path : shards_) {
    EXPECT_EQ(ReadAll(path), ReadAll(folder_ / path.filename().string().replace(0, 3, "aga")));
  }
}

}  // namespace
}  // namespace cmforge::cmf
