// Verifying: clean files are clean, and every damage is found where it is.
#include "cmf/verify.h"

#include "cmf/hash64.h"
#include "cmf/signature.h"
#include "files.h"
#include "tiny_model.h"

namespace cmforge::cmf {
namespace {

std::string Describe(const VerifyReport& report) {
  std::string text;
  for (const Problem& problem : report.problems) text += problem.where + ": " + problem.what + "\n";
  return text;
}

class VerifyCmf : public InFolder {
 protected:
  void SetUp() override {
    InFolder::SetUp();
    ASSERT_TRUE(WriteCmf(path_ = folder_ / "tiny.cmf", TinyContents(tensors_)));
  }
  VerifyReport Check(const VerifyOptions& options = {}) {
    auto report = Verify(path_, options, pool_);
    EXPECT_TRUE(report) << report.error().message;
    return report ? *report : VerifyReport{};
  }
  MemorySource tensors_;
  fs::path path_;
  ThreadPool pool_{2};
};

TEST_F(VerifyCmf, FindsNothingInFixtures) {
  for (const fs::path& path : AllFixtures()) {
    const auto report = Verify(path, {}, pool_);
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_TRUE(report->ok()) << path << "\n" << Describe(*report);
    EXPECT_GT(report->bytes, 0u);
    EXPECT_EQ(report->signature, SignatureState::kAbsent);
  }
}

TEST_F(VerifyCmf, CountsWhatItChecked) {
  const VerifyReport report = Check();
  EXPECT_TRUE(report.ok()) << Describe(report);
  EXPECT_EQ(report.files, std::vector<std::string>{path_.string()});
  EXPECT_EQ(report.sections, 5);  // header, directory, masks, vocab, index
  EXPECT_EQ(report.tensors, 5);
}

TEST_F(VerifyCmf, NamesTheSectionOrTensorThatWasChanged) {
  const std::vector<std::byte> good = ReadAll(path_);
  const auto file = File::OpenBytes(good, "good");
  const Envelope& envelope = file->parts()[0].envelope;
  const auto check = [&](uint64_t offset, std::string_view where) {
    std::vector<std::byte> bad = good;
    bad[offset] ^= std::byte{0x01};
    WriteAll(path_, bad);
    const VerifyReport report = Check();
    ASSERT_EQ(report.problems.size(), 1u) << Describe(report);
    EXPECT_EQ(report.problems[0].where, where);
  };
  const std::string header(AsText(envelope.header.Of(good)));
  check(envelope.header.offset + header.find("\"test\"") + 1, "header");
  check(envelope.vocab.offset + 3, "vocab");
  for (const TensorInfo& tensor : file->tensors()) {
    check(file->PlaceOf(tensor).offset + tensor.nbytes - 1, "tensor '" + tensor.name + "'");
  }
}

TEST_F(VerifyCmf, EveryFlippedByteIsFoundOrIsDocumentedDeadSpace) {
  const std::vector<std::byte> good = ReadAll(path_);
  const auto file = File::OpenBytes(good, "good");
  const Envelope& envelope = file->parts()[0].envelope;
  // What nothing covers: reserved flags, a data_len that grew inside the file, and padding between payloads.
  std::vector<bool> dead(good.size(), true);
  std::vector<std::string> owner(good.size());  // what verify must name
  const auto alive = [&](const ByteRange& range, std::string name) {
    std::fill_n(dead.begin() + static_cast<std::ptrdiff_t>(range.offset), range.size, false);
    std::fill_n(owner.begin() + static_cast<std::ptrdiff_t>(range.offset), range.size, name);
  };
  alive({0, kEnvelopeSize}, "");
  for (const Section& section : file->parts()[0].sections()) {
    if (section.name != "data") alive(section.range, std::string(section.name));
  }
  for (const TensorInfo& tensor : file->tensors())
    alive({file->PlaceOf(tensor).offset, tensor.nbytes}, "tensor '" + tensor.name + "'");
  unsigned random = 1;
  for (size_t i = 0; i < good.size(); ++i) {
    if (dead[i] && i % 64 != 0) continue;
    std::vector<std::byte> bad = good;
    random = random * 1103515245 + 12345;
    const unsigned any = random >> 16 & 0xFF;
    // Every bit in turn, and anything else a byte can become.
    bad[i] ^=
        i % 2 == 0 || any == 0 ? static_cast<std::byte>(1u << (i / 2 % 8)) : static_cast<std::byte>(any);
    const auto opened = File::OpenBytes(bad, "bad");
    bool is_found = !opened;
    if (opened) {
      const auto report = Verify(*opened, pool_);
      ASSERT_TRUE(report);
      is_found = !report->ok();
      if (!owner[i].empty()) {
        EXPECT_TRUE(std::any_of(report->problems.begin(), report->problems.end(),
                                [&](const Problem& problem) { return problem.where == owner[i]; }))
            << "byte " << i << " of " << owner[i] << ": " << Describe(*report);
      }
    }
    const bool is_unhashed = dead[i] || (i >= 8 && i < 12) || (i >= 0x38 && i < 0x40);
    if (!is_unhashed) {
      EXPECT_TRUE(is_found) << "byte " << i << " of " << good.size();
    }
    if (dead[i]) {
      EXPECT_FALSE(is_found) << "padding byte " << i;
    }
  }
  // A length that becomes 0 makes a section vanish: the offset that stays behind gives it away.
  for (const size_t length_field : {0x48, 0x58, 0x68}) {
    std::vector<std::byte> bad = good;
    StoreLe<uint64_t>(bad.data() + length_field, 0);
    const auto report = Verify(*File::OpenBytes(bad, "bad"), pool_);
    EXPECT_FALSE(report->ok()) << length_field;
  }
  EXPECT_EQ(envelope.required_features, kTensorDir | kBinaryMasks);
}

TEST_F(VerifyCmf, EveryTruncationIsRefused) {
  const std::vector<std::byte> good = ReadAll(path_);
  for (size_t size = 0; size < good.size(); ++size) {
    const auto opened = File::OpenBytes(Bytes(good).first(size), "cut");
    ASSERT_FALSE(opened) << size;
    EXPECT_EQ(opened.error().name, "Bounds") << size << ": " << opened.error().message;
  }
}

TEST_F(VerifyCmf, HeaderByteFlippedFixtureNamesTheHeader) {
  const auto report = Verify(DataFolder() / "bad" / "header-byte-flipped.cmf", {}, pool_);
  ASSERT_TRUE(report) << report.error().message;
  ASSERT_EQ(report->problems.size(), 1u);
  EXPECT_EQ(report->problems[0].where, "header");
}

TEST_F(VerifyCmf, ReportsMissingShardsOnlyWhenSomeAreThere) {
  const fs::path source = DataFolder();
  const auto name = [](int no) { return "py-tiny-sharded-0000" + std::to_string(no) + "-of-00004.cmf"; };
  fs::copy(source / name(3), folder_ / name(3));
  auto report = Verify(folder_ / name(3), {}, pool_);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(report->ok()) << "one shard alone verifies";
  fs::copy(source / name(1), folder_ / name(1));
  report = Verify(folder_ / name(3), {}, pool_);
  ASSERT_EQ(report->problems.size(), 1u);
  EXPECT_NE(report->problems[0].what.find(name(2)), std::string::npos) << report->problems[0].what;
  EXPECT_EQ(report->files.size(), 2u);
}

TEST_F(VerifyCmf, ReportsProgressAndStopsWhenAsked) {
  int64_t last = 0, total = 0;
  RunControl run;
  run.progress = [&](std::string_view, int64_t done, int64_t all, ProgressUnit unit) {
    EXPECT_EQ(unit, ProgressUnit::kBytes);
    last = done, total = all;
  };
  ASSERT_TRUE(Verify(path_, {}, pool_, run));
  EXPECT_EQ(last, total);
  EXPECT_EQ(total, static_cast<int64_t>(fs::file_size(path_)));
  const std::atomic<bool> stop{true};
  run.cancelled = &stop;
  EXPECT_EQ(Verify(path_, {}, pool_, run).error().kind, ErrorKind::kCancelled);
}

TEST_F(VerifyCmf, ShardsOfDifferentModelsAreNoticed) {
  MemorySource one, other;
  const Contents contents = TinyContents(one);
  TinyContents(other);
  const auto shards = WriteShards(folder_ / "set", contents, 4e-7);
  ASSERT_TRUE(shards) << shards.error().message;
  ASSERT_GT(shards->size(), 1u);
  auto report = Verify(shards->back(), {}, pool_);
  ASSERT_TRUE(report);
  EXPECT_TRUE(report->ok()) << Describe(*report);
  EXPECT_EQ(report->files.size(), shards->size());
  EXPECT_EQ(report->tensors, 5);

  // The same shapes with other weights: each file is right by itself, together they are not one model.
  std::vector<std::byte> last = ReadAll(shards->back());
  MemorySource third;
  third.AddPattern("skill.sql.model.norm.weight", DType::kF32, {8}, 99);
  for (const TensorInfo& tensor : one.tensors()) {
    if (third.Find(tensor.name) == nullptr)
      third.Add(tensor.name, tensor.dtype, tensor.shape,
                {one.Read(tensor.name)->bytes.begin(), one.Read(tensor.name)->bytes.end()});
  }
  Contents changed = contents;
  changed.tensors = &third;
  ASSERT_TRUE(WriteShards(folder_ / "changed", changed, 4e-7));
  fs::path impostor = folder_ / shards->back().filename().string().replace(0, 3, "changed");
  ASSERT_TRUE(fs::exists(impostor));
  fs::copy_file(impostor, shards->back(), fs::copy_options::overwrite_existing);
  report = Verify(shards->front(), {}, pool_);
  ASSERT_TRUE(report);
  ASSERT_EQ(report->problems.size(), 1u) << Describe(*report);
  EXPECT_EQ(report->problems[0].where, "shards");
}

}  // namespace
}  // namespace cmforge::cmf
