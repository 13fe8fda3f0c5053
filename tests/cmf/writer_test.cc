// What is written is what was there: every fixture rewritten, and the promises of the layout.
#include "cmf/writer.h"

#include "cmf/file.h"
#include "cmf/hash64.h"
#include "cmf/rewrite.h"
#include "files.h"

namespace cmforge::cmf {
namespace {

class Rewrite : public InFolder {};

void ExpectSameContent(const File& a, const File& b) {
  ASSERT_EQ(a.tensors().size(), b.tensors().size());
  for (const TensorInfo& tensor : a.tensors()) {
    const TensorInfo* other = b.Find(tensor.name);
    ASSERT_NE(other, nullptr) << tensor.name;
    EXPECT_EQ(tensor.dtype, other->dtype) << tensor.name;
    EXPECT_EQ(tensor.shape, other->shape) << tensor.name;
    EXPECT_EQ(a.PlaceOf(tensor).hash, b.PlaceOf(*other).hash) << tensor.name;
    const Bytes left = a.Read(tensor.name)->bytes, right = b.Read(tensor.name)->bytes;
    EXPECT_TRUE(std::equal(left.begin(), left.end(), right.begin(), right.end())) << tensor.name;
  }
  EXPECT_EQ(a.config(), b.config());
  EXPECT_EQ(a.chat(), b.chat());
  EXPECT_EQ(a.header().skills, b.header().skills);
  EXPECT_EQ(a.header().provenance, b.header().provenance);
  EXPECT_EQ(AsText(a.tokenizer_json()), AsText(b.tokenizer_json()));
  ASSERT_EQ(a.masks().masks.size(), b.masks().masks.size());
  EXPECT_EQ(a.masks().default_task, b.masks().default_task);
  for (size_t i = 0; i < a.masks().masks.size(); ++i) {
    const TaskMask &x = a.masks().masks[i], &y = b.masks().masks[i];
    EXPECT_EQ(x.name, y.name);
    EXPECT_EQ(x.task_id, y.task_id);
    EXPECT_EQ(x.quality, y.quality);
    EXPECT_EQ(x.priority, y.priority);
    EXPECT_EQ(x.bits.ffn, y.bits.ffn);
    EXPECT_EQ(x.bits.heads, y.bits.heads);
    EXPECT_EQ(x.bits.layer_gates, y.bits.layer_gates);
    EXPECT_EQ(x.bits.experts, y.bits.experts);
  }
  EXPECT_EQ(a.sparse_index(), b.sparse_index());
}

TEST_F(Rewrite, JoinedShardsOfEveryFixtureAreTheBytesOfARewrite) {
  for (const fs::path& path : AllFixtures()) {
    SCOPED_TRACE(path);
    const auto file = File::Open(path);
    ASSERT_TRUE(file) << file.error().message;
    if (file->is_skill_file()) continue;
    ASSERT_TRUE(WriteCmf(folder_ / "whole.cmf", ContentsOf(*file)));
    const auto shards = WriteShards(folder_ / "set", ContentsOf(*file), 0.00004);
    ASSERT_TRUE(shards) << shards.error().message;
    {
      const auto set = File::Open(shards->front());
      ASSERT_TRUE(set) << set.error().message;
      ASSERT_TRUE(WriteCmf(folder_ / "joined.cmf", ContentsOf(*set)));
    }
    EXPECT_TRUE(ReadAll(folder_ / "whole.cmf") == ReadAll(folder_ / "joined.cmf"));
    for (const fs::path& shard : *shards) fs::remove(shard);
  }
}

TEST_F(Rewrite, EveryFixtureKeepsItsContentAndTheSecondRewriteItsBytes) {
  for (const fs::path& path : AllFixtures()) {
    SCOPED_TRACE(path);
    const auto file = File::Open(path);
    ASSERT_TRUE(file) << file.error().message;
    const fs::path once = folder_ / "once.cmf", twice = folder_ / "twice.cmf";
    const auto summary = WriteCmf(once, ContentsOf(*file));
    ASSERT_TRUE(summary) << summary.error().message;
    EXPECT_EQ(summary->bytes, fs::file_size(once));
    const auto again = File::Open(once);
    ASSERT_TRUE(again) << again.error().message;
    ExpectSameContent(*file, *again);
    EXPECT_EQ(summary->dir_hash, again->dir_hash());
    EXPECT_EQ(again->parts()[0].envelope.directory_hash, again->dir_hash());
    ASSERT_TRUE(WriteCmf(twice, ContentsOf(*again)));
    EXPECT_EQ(ReadAll(once), ReadAll(twice));
  }
}

}  // namespace
}  // namespace cmforge::cmf
