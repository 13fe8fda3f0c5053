// Rewriting payloads where they lie: killed at any byte the file is valid, and every tensor is the old or the new one.
#include "cmf/slot_rewriter.h"

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
    if (writes.size() == fail_at) return Fail(ErrorKind::kIo, "disk full");
    writes.push_back({offset, {bytes.begin(), bytes.end()}});
    return {};
  }
  Result<void> Sync() override {
    synced_after.push_back(writes.size());
    return {};
  }
  std::vector<Write> writes;
  std::vector<size_t> synced_after;
  size_t fail_at = SIZE_MAX;
};

void Apply(std::vector<std::byte>& file, const Write& write, size_t count) {
  file.resize(std::max(file.size(), write.offset + count));
  std::copy_n(write.bytes.begin(), count, file.begin() + static_cast<std::ptrdiff_t>(write.offset));
}

class RewriteSlots : public InFolder {
 protected:
  void SetUp() override {
    InFolder::SetUp();
    ASSERT_TRUE(WriteCmf(folder_ / "tiny.cmf", TinyContents(tensors_)));
    before_ = ReadAll(folder_ / "tiny.cmf");
    fresh_.AddPattern("model.embed_tokens.weight", DType::kQ4Block, {10, 8}, 91);
    fresh_.AddPattern("model.layers.1.mlp.down_proj.weight", DType::kQ8Row, {8, 12}, 92);
    fresh_.AddPattern("skill.sql.model.norm.weight", DType::kF16, {8}, 93);
  }
  Result<void> ReplaceAll(SlotRewriter& rewriter) {
    for (const TensorInfo& tensor : fresh_.tensors()) {
      CMF_CHECK(rewriter.Replace(tensor.name, tensor.dtype, fresh_.Read(tensor.name)->bytes));
    }
    return rewriter.Flush();
  }
  // How many tensors are new; every one must be the old or the new one, and all else as it was.
  int CountNew(Bytes bytes, const char* when) {
    const auto file = File::OpenBytes(bytes, when);
    if (!file) {
      ADD_FAILURE() << when << ": " << file.error().message;
      return -1;
    }
    const auto report = Verify(*file, pool_);
    EXPECT_TRUE(report->ok()) << when << ": " << report->problems[0].where << ": "
                              << report->problems[0].what;
    EXPECT_EQ(file->masks().masks.size(), 2u);
    EXPECT_EQ(file->header().skills.size(), 1u);
    EXPECT_EQ(AsText(file->tokenizer_json()), R"({"model":{}})");
    int fresh = 0;
    for (const TensorInfo& tensor : file->tensors()) {
      const auto now = file->Read(tensor.name), old = tensors_.Read(tensor.name),
                 made = fresh_.Read(tensor.name);
      const bool is_new = made && tensor.dtype == made->dtype && std::ranges::equal(now->bytes, made->bytes);
      EXPECT_TRUE(is_new || std::ranges::equal(now->bytes, old->bytes)) << when << ": " << tensor.name;
      fresh += is_new ? 1 : 0;
    }
    return fresh;
  }
  MemorySource tensors_, fresh_;
  std::vector<std::byte> before_;
  ThreadPool pool_{1};
};

TEST_F(RewriteSlots, EveryPrefixOfTheWritesIsAValidFile) {
  const auto file = File::OpenBytes(before_, "before");
  Recorder recorder;
  SlotRewriter rewriter(file->parts()[0], file->header(), recorder);
  rewriter.set_batch_size(1);  // a batch for each tensor
  ASSERT_TRUE(ReplaceAll(rewriter));
  ASSERT_GT(recorder.writes.size(), 12u);

  std::vector<std::byte> state = before_;
  int fresh = 0, envelopes = 0;
  size_t next_sync = 0;
  for (size_t w = 0; w < recorder.writes.size(); ++w) {
    const Write& write = recorder.writes[w];
    if (write.offset == 0) {  // one piece, and everything before it is on disk
      EXPECT_EQ(write.bytes.size(), kEnvelopeSize);
      while (next_sync < recorder.synced_after.size() && recorder.synced_after[next_sync] < w) ++next_sync;
      ASSERT_LT(next_sync, recorder.synced_after.size());
      EXPECT_EQ(recorder.synced_after[next_sync], w);
      ++envelopes;
    } else {
      for (size_t count = 0; count < write.bytes.size(); count += 7) {
        std::vector<std::byte> torn = state;
        Apply(torn, write, count);
        ASSERT_EQ(CountNew(torn, "torn"), fresh);
      }
    }
    Apply(state, write, write.bytes.size());
    const int now = CountNew(state, "whole writes");
    ASSERT_GE(now, fresh);
    ASSERT_TRUE(now == fresh || write.offset == 0);
    fresh = now;
  }
  EXPECT_EQ(fresh, 3);
  EXPECT_EQ(envelopes, 6) << "two a batch";

  EXPECT_EQ(rewriter.live_end(), before_.size());
  state.resize(rewriter.live_end());
  EXPECT_EQ(CountNew(state, "cut"), 3);
  const auto after = File::OpenBytes(state, "after");
  EXPECT_EQ(after->dir_hash(), rewriter.directory_hash());
  for (const TensorInfo& tensor : file->tensors())
    EXPECT_EQ(after->PlaceOf(*after->Find(tensor.name)).offset, file->PlaceOf(tensor).offset) << tensor.name;
}

TEST_F(RewriteSlots, AFailedWriteLeavesAValidFileThatCanBeCut) {
  const auto file = File::OpenBytes(before_, "before");
  for (size_t fail_at = 0;; ++fail_at) {
    Recorder recorder;
    recorder.fail_at = fail_at;
    SlotRewriter rewriter(file->parts()[0], file->header(), recorder);
    rewriter.set_batch_size(1);
    const bool done = ReplaceAll(rewriter).has_value();
    std::vector<std::byte> state = before_;
    for (const Write& write : recorder.writes) Apply(state, write, write.bytes.size());
    state.resize(std::min<size_t>(state.size(), rewriter.live_end()));
    CountNew(state, "cut after a failure");
    if (done) break;
    // The next run goes on from there, and uses the dead tail of this one.
    const auto again = File::OpenBytes(state, "again");
    Recorder more;
    SlotRewriter second(again->parts()[0], again->header(), more);
    for (const TensorInfo& tensor : fresh_.tensors()) {
      if (again->Find(tensor.name)->dtype == tensor.dtype) continue;
      ASSERT_TRUE(second.Replace(tensor.name, tensor.dtype, fresh_.Read(tensor.name)->bytes));
    }
    ASSERT_TRUE(second.Flush());
    for (const Write& write : more.writes) Apply(state, write, write.bytes.size());
    state.resize(second.live_end());
    EXPECT_EQ(CountNew(state, "second run"), 3);
  }
}

TEST_F(RewriteSlots, RefusesWhatDoesNotFit) {
  const auto file = File::OpenBytes(before_, "before");
  Recorder recorder;
  SlotRewriter rewriter(file->parts()[0], file->header(), recorder);
  EXPECT_GE(rewriter.SlotSize("model.norm.weight"), 16u);
  EXPECT_LE(rewriter.SlotSize("model.norm.weight"), 64u);
  EXPECT_EQ(rewriter.SlotSize("not there"), 0u);
  EXPECT_EQ(rewriter.Replace("not there", DType::kF16, std::vector<std::byte>(16)).error().kind,
            ErrorKind::kUsage);
  EXPECT_EQ(rewriter.Replace("model.norm.weight", DType::kF16, std::vector<std::byte>(18)).error().kind,
            ErrorKind::kUsage);
  EXPECT_EQ(
      rewriter.Replace("model.embed_tokens.weight", DType::kF32, std::vector<std::byte>(320)).error().kind,
      ErrorKind::kUsage);
  // The last tensor ends with the data: 24 bytes of f32, and what follows is another section.
  EXPECT_EQ(rewriter.SlotSize("skill.sql.model.norm.weight"), 32u);
  EXPECT_TRUE(recorder.writes.empty());
}

TEST_F(RewriteSlots, TensorsThatShareBytesHaveNoSlot) {
  const auto file = File::OpenBytes(before_, "before");
  Part part;
  part.path = "shared";
  part.bytes = before_;
  part.envelope = file->parts()[0].envelope;
  part.header = file->header();
  part.directory = file->parts()[0].directory;
  part.directory[1].offset = part.directory[0].offset;
  Recorder recorder;
  const SlotRewriter rewriter(part, file->header(), recorder);
  EXPECT_EQ(rewriter.SlotSize(part.directory[0].info.name), 0u);
  EXPECT_EQ(rewriter.SlotSize(part.directory[1].info.name), 0u);
  EXPECT_GT(rewriter.SlotSize(part.directory[2].info.name), 0u);
}

TEST_F(RewriteSlots, AHeaderThatOutgrowsItsSpaceMovesToTheEnd) {
  const auto file = File::OpenBytes(before_, "before");
  Header header = file->header();
  header.provenance["note"] = std::string(9000, 'x');
  Recorder recorder;
  SlotRewriter rewriter(file->parts()[0], header, recorder);
  rewriter.set_batch_size(1);
  ASSERT_TRUE(ReplaceAll(rewriter));
  std::vector<std::byte> state = before_;
  for (const Write& write : recorder.writes) Apply(state, write, write.bytes.size());
  EXPECT_GT(rewriter.live_end(), before_.size() + 9000);
  EXPECT_LT(rewriter.live_end(), before_.size() + 12000);
  state.resize(rewriter.live_end());
  EXPECT_EQ(CountNew(state, "long header"), 3);
  EXPECT_EQ(File::OpenBytes(state, "again")->header().provenance["note"].get<std::string>().size(), 9000u);
}

TEST_F(RewriteSlots, NothingToDoWritesNothingButTheHeader) {
  const auto file = File::OpenBytes(before_, "before");
  Recorder recorder;
  SlotRewriter rewriter(file->parts()[0], file->header(), recorder);
  ASSERT_TRUE(rewriter.Flush());
  const size_t writes = recorder.writes.size();
  EXPECT_EQ(writes, 6u) << "header, directory, envelope; away and home";
  ASSERT_TRUE(rewriter.Flush());
  EXPECT_EQ(recorder.writes.size(), writes);
}

}  // namespace
}  // namespace cmforge::cmf
