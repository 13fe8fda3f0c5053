// Append-only growth: killed at any byte the file is the old one or the new one, and nothing old ever moves.
#include "cmf/append.h"

#include "cmf/hash64.h"
#include "cmf/verify.h"
#include "files.h"
#include "tiny_model.h"

namespace cmforge::cmf {
namespace {

struct Write {
  uint64_t offset;
  std::vector<std::byte> bytes;
};

class Recorder : public InPlaceSink {
 public:
  Result<void> WriteAt(uint64_t offset, Bytes bytes) override {
    writes.push_back({offset, {bytes.begin(), bytes.end()}});
    return {};
  }
  Result<void> Sync() override {
    synced_after.push_back(writes.size());
    return {};
  }
  std::vector<Write> writes;
  std::vector<size_t> synced_after;
};

void Apply(std::vector<std::byte>& file, const Write& write, size_t count) {
  file.resize(std::max(file.size(), write.offset + count));
  std::copy_n(write.bytes.begin(), count, file.begin() + static_cast<std::ptrdiff_t>(write.offset));
}

class AppendCmf : public InFolder {
 protected:
  void SetUp() override {
    InFolder::SetUp();
    ASSERT_TRUE(WriteCmf(path_ = folder_ / "tiny.cmf", TinyContents(tensors_)));
    fresh_.AddPattern("skill.poet.model.norm.weight", DType::kF16, {8}, 77);
    fresh_.AddPattern("skill.sql.model.norm.weight", DType::kF16, {8}, 78);
    fresh_.AddPattern("skill.poet.model.embed_tokens.weight", DType::kQ8Row, {10, 8}, 79);
  }
  // A new skill, a replaced tensor of the old one, one tensor dropped, a mask more.
  AppendEdits Edits(const File& file) {
    AppendEdits edits;
    edits.header = file.header();
    SkillRecord skill;
    skill.id = "poet";
    edits.header->skills.push_back(skill);
    edits.tensors = &fresh_;
    for (const TensorInfo& tensor : fresh_.tensors()) edits.add.push_back(tensor.name);
    edits.remove = {"model.layers.1.mlp.down_proj.weight"};
    edits.masks = file.masks();
    edits.masks->masks.push_back(TinyMask("poet", 2));
    return edits;
  }
  void ExpectNew(const File& file) {
    EXPECT_EQ(file.header().skills.size(), 2u);
    EXPECT_EQ(file.masks().masks.size(), 3u);
    EXPECT_EQ(file.tensors().size(), 6u);
    for (const TensorInfo& tensor : fresh_.tensors()) {
      const auto read = file.Read(tensor.name), written = fresh_.Read(tensor.name);
      ASSERT_TRUE(read);
      EXPECT_TRUE(
          std::equal(read->bytes.begin(), read->bytes.end(), written->bytes.begin(), written->bytes.end()));
    }
    const auto kept = file.Read("model.norm.weight"), was = tensors_.Read("model.norm.weight");
    EXPECT_TRUE(std::equal(kept->bytes.begin(), kept->bytes.end(), was->bytes.begin(), was->bytes.end()));
    EXPECT_EQ(AsText(file.tokenizer_json()), R"({"model":{}})");
    const auto report = Verify(file, pool_);
    EXPECT_TRUE(report->ok()) << report->problems[0].where << ": " << report->problems[0].what;
  }
  MemorySource tensors_, fresh_;
  fs::path path_;
  ThreadPool pool_{1};
};

TEST_F(AppendCmf, EveryPrefixOfTheWritesIsTheOldFileOrTheNewOne) {
  const std::vector<std::byte> before = ReadAll(path_);
  const auto file = File::OpenBytes(before, "before");
  Recorder recorder;
  ASSERT_TRUE(EmitAppend(file->parts()[0], Edits(*file), recorder));
  ASSERT_GE(recorder.writes.size(), 2u);
  // The envelope is the last write, one piece, and everything else is on disk before it.
  EXPECT_EQ(recorder.writes.back().offset, 0u);
  EXPECT_EQ(recorder.writes.back().bytes.size(), kEnvelopeSize);
  EXPECT_EQ(recorder.synced_after, (std::vector<size_t>{recorder.writes.size() - 1, recorder.writes.size()}));

  const uint64_t old_hash = file->dir_hash();
  std::vector<std::byte> state = before;
  for (size_t w = 0; w + 1 < recorder.writes.size(); ++w) {
    const Write& write = recorder.writes[w];
    EXPECT_GE(write.offset, before.size()) << "old bytes do not change";
    for (size_t count = 0; count < write.bytes.size(); ++count) {
      std::vector<std::byte> torn = state;
      Apply(torn, write, count);
      const auto opened = File::OpenBytes(torn, "torn");
      ASSERT_TRUE(opened) << opened.error().message;
      ASSERT_EQ(opened->dir_hash(), old_hash);
      if (count == 0) {
        EXPECT_TRUE(Verify(*opened, pool_)->ok());
      }
    }
    Apply(state, write, write.bytes.size());
  }
  EXPECT_TRUE(Verify(*File::OpenBytes(state, "all but the envelope"), pool_)->ok());
  Apply(state, recorder.writes.back(), kEnvelopeSize);
  const auto after = File::OpenBytes(state, "after");
  ASSERT_TRUE(after) << after.error().message;
  ExpectNew(*after);
  for (const TensorInfo& tensor : file->tensors()) {
    const TensorInfo* now = after->Find(tensor.name);
    if (now == nullptr || tensor.name.starts_with("skill.")) continue;
    EXPECT_EQ(after->PlaceOf(*now).offset, file->PlaceOf(tensor).offset) << tensor.name;
  }
}

TEST_F(AppendCmf, HappensInPlaceUnderReadersAndCompactsToAFreshWrite) {
  const auto reader = File::Open(path_);
  ASSERT_TRUE(reader);
  ASSERT_TRUE(Append(path_, Edits(*reader)));
  EXPECT_TRUE(Verify(*reader, pool_)->ok()) << "a process that has the old file open goes on";
  const auto grown = File::Open(path_);
  ASSERT_TRUE(grown) << grown.error().message;
  ExpectNew(*grown);
  EXPECT_EQ(Entries(), 1u);

  const fs::path compact = folder_ / "compact.cmf", again = folder_ / "again.cmf";
  ASSERT_TRUE(WriteCmf(compact, ContentsOf(*grown)));
  const auto compacted = File::Open(compact);
  ExpectNew(*compacted);
  ASSERT_TRUE(WriteCmf(again, ContentsOf(*compacted)));
  EXPECT_EQ(ReadAll(compact), ReadAll(again));
  EXPECT_LT(fs::file_size(compact), fs::file_size(path_) + 4096);
}

TEST_F(AppendCmf, GrowsAgainAndAgain) {
  for (int round = 0; round < 3; ++round) {
    const auto file = File::Open(path_);
    AppendEdits edits;
    edits.tensors = &fresh_;
    edits.add = {"skill.poet.model.norm.weight"};
    ASSERT_TRUE(Append(path_, edits));
  }
  const auto file = File::Open(path_);
  EXPECT_EQ(file->tensors().size(), 6u);
  EXPECT_TRUE(Verify(*file, pool_)->ok());
}

TEST_F(AppendCmf, FailuresLeaveTheFileAsItWas) {
  const std::vector<std::byte> before = ReadAll(path_);
  AppendEdits edits;
  edits.tensors = &fresh_;
  edits.add = {"skill.poet.model.norm.weight", "not there"};
  EXPECT_EQ(Append(path_, edits).error().kind, ErrorKind::kNotFound);
  EXPECT_EQ(ReadAll(path_), before);
  edits.add.clear();
  edits.remove = {"not there"};
  EXPECT_EQ(Append(path_, edits).error().kind, ErrorKind::kNotFound);
  EXPECT_EQ(ReadAll(path_), before);
  EXPECT_EQ(Append(folder_ / "none.cmf", {}).error().kind, ErrorKind::kNotFound);
}

TEST_F(AppendCmf, DropsTheMasksSectionWhenNoMaskIsLeft) {
  AppendEdits edits;
  edits.masks = MaskCatalog{};
  ASSERT_TRUE(Append(path_, edits));
  const auto file = File::Open(path_);
  EXPECT_TRUE(file->masks().empty());
  EXPECT_EQ(file->required_features(), uint32_t{kTensorDir});
  EXPECT_TRUE(Verify(*file, pool_)->ok());
}

TEST_F(AppendCmf, ASetOfShardsGrowsInItsFirst) {
  MemorySource source;
  const auto shards = WriteShards(folder_ / "set", TinyContents(source), 4e-7);
  ASSERT_TRUE(shards) << shards.error().message;
  ASSERT_GT(shards->size(), 1u);
  AppendEdits edits;
  edits.tensors = &fresh_;
  edits.add = {"skill.poet.model.norm.weight"};
  ASSERT_TRUE(Append(shards->back(), edits)) << "any shard's name will do";
  const auto set = File::Open(shards->back());
  ASSERT_TRUE(set) << set.error().message;
  EXPECT_EQ(set->PlaceOf(*set->Find("skill.poet.model.norm.weight")).part, 0);
  EXPECT_TRUE(Verify(*set, pool_)->ok());
  edits.add = {"skill.sql.model.norm.weight"};  // lies in the last shard
  EXPECT_EQ(Append(shards->front(), edits).error().kind, ErrorKind::kUnsupported);
}

}  // namespace
}  // namespace cmforge::cmf
