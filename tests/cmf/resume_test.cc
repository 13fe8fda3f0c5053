// Interrupted writes: whatever an earlier run has left, the file that comes out is the one a single run writes.
#include "cmf/manifest.h"
#include "cmf/writer.h"
#include "files.h"
#include "tiny_model.h"

namespace cmforge::cmf {
namespace {

class ResumedWrite : public InFolder {
 protected:
  void SetUp() override {
    InFolder::SetUp();
    contents_ = TinyContents(tensors_);
    ASSERT_TRUE(WriteCmf(folder_ / "fresh.cmf", contents_));
    fresh_ = ReadAll(folder_ / "fresh.cmf");
    fs::remove(folder_ / "fresh.cmf");
    path_ = folder_ / "m.cmf";
  }
  /// Writes the first `count` payloads, then is gone; count beyond the last finishes. Returns how many were taken over.
  int Write(size_t count, const Resumption& resumption) {
    auto writer = Writer::Resume(path_, contents_.header, contents_.names, resumption);
    EXPECT_TRUE(writer) << writer.error().message;
    if (!writer) return -1;
    int taken = 0;
    for (size_t i = 0; i < contents_.names.size() && i < count; ++i) {
      if (writer->TakenOver(contents_.names[i]) != nullptr) {
        ++taken;
        continue;
      }
      const auto view = tensors_.Read(contents_.names[i]);
      EXPECT_TRUE(writer->Add(contents_.names[i], view->dtype, view->shape, view->bytes));
    }
    if (count <= contents_.names.size()) return taken;
    EXPECT_TRUE(writer->Finish(
        {.masks = &contents_.masks, .tokenizer_json = contents_.tokenizer_json, .sparse_index = true}));
    EXPECT_TRUE(writer->Commit());
    return taken;
  }
  static constexpr Resumption kKept{.key = 7, .go_on = true, .keep = true};
  static constexpr size_t kAll = 1000;
  MemorySource tensors_;
  Contents contents_;
  std::vector<std::byte> fresh_;
  fs::path path_;
};

TEST_F(ResumedWrite, GivesTheSameFileFromEveryPoint) {
  for (size_t count = 0; count <= contents_.names.size(); ++count) {
    Write(count, kKept);
    EXPECT_EQ(Entries(), 2u) << "the part and its manifest";
    EXPECT_EQ(Write(kAll, kKept), static_cast<int>(count));
    EXPECT_EQ(ReadAll(path_), fresh_) << count;
    EXPECT_EQ(Entries(), 1u);
    fs::remove(path_);
  }
}

TEST_F(ResumedWrite, IgnoresWhatIsNotItsOwn) {
  Write(3, kKept);
  EXPECT_EQ(Write(kAll, {.key = 8, .go_on = true, .keep = true}), 0) << "another key";
  EXPECT_EQ(ReadAll(path_), fresh_);
  Write(3, kKept);
  EXPECT_EQ(Write(kAll, {.key = 7, .go_on = false, .keep = true}), 0) << "begun anew";
  EXPECT_EQ(ReadAll(path_), fresh_);
}

TEST_F(ResumedWrite, NoDamageOfTheLeftoversGetsIn) {
  Write(3, kKept);
  const fs::path part = folder_ / "m.cmf.part", manifest = folder_ / "m.cmf.manifest";
  const std::vector<std::byte> good_part = ReadAll(part), good_manifest = ReadAll(manifest);
  for (size_t i = 0; i < good_part.size(); i += 37) {
    std::vector<std::byte> bad = good_part;
    bad[i] ^= std::byte{0x10};
    WriteAll(part, bad);
    WriteAll(manifest, good_manifest);
    Write(kAll, kKept);
    ASSERT_EQ(ReadAll(path_), fresh_) << "byte " << i << " of the part";
  }
  for (size_t i = kManifestMagic.size(); i < good_manifest.size(); i += 3) {
    std::vector<std::byte> bad = good_manifest;
    bad[i] ^= std::byte{0x01};
    WriteAll(part, good_part);
    WriteAll(manifest, bad);
    Write(kAll, kKept);
    ASSERT_EQ(ReadAll(path_), fresh_) << "byte " << i << " of the manifest";
  }
  for (size_t size = 1; size < good_manifest.size(); size += 7) {
    WriteAll(part, Bytes(good_part).first(good_part.size() * size / good_manifest.size()));
    WriteAll(manifest, Bytes(good_manifest).first(size));
    Write(kAll, kKept);
    ASSERT_EQ(ReadAll(path_), fresh_) << "cut at " << size;
  }
}

TEST_F(ResumedWrite, LeavesFilesOfOthersUnderItsNamesAlone) {
  const fs::path part = folder_ / "m.cmf.part", manifest = folder_ / "m.cmf.manifest";
  Write(3, kKept);
  const std::vector<std::byte> our_part = ReadAll(part), our_manifest = ReadAll(manifest);
  const auto as_bytes = [](std::string_view text) {
    const Bytes bytes = AsBytes(text);
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  const std::vector<std::byte> text = as_bytes("mine"), json = as_bytes(R"({"data":1,"key":"x"})"), none;
  struct Case {
    const std::vector<std::byte>*part, *manifest;  // null: not there
    const char* named;
  };
  for (const Case& c : {Case{&text, nullptr, "m.cmf.part"}, Case{&fresh_, nullptr, "m.cmf.part"},
                        Case{&our_part, nullptr, "m.cmf.part"}, Case{&text, &none, "m.cmf.part"},
                        Case{nullptr, &text, "m.cmf.manifest"}, Case{nullptr, &json, "m.cmf.manifest"},
                        Case{&our_part, &fresh_, "m.cmf.manifest"}, Case{&none, &text, "m.cmf.manifest"}}) {
    for (const bool keep : {false, true}) {
      for (const auto& [path, content] : {std::pair(part, c.part), std::pair(manifest, c.manifest)}) {
        fs::remove(path);
        if (content != nullptr) WriteAll(path, *content);
      }
      const auto writer =
          Writer::Resume(path_, contents_.header, contents_.names, {.key = 7, .go_on = keep, .keep = keep});
      ASSERT_FALSE(writer) << c.named;
      EXPECT_EQ(writer.error().kind, ErrorKind::kUsage);
      EXPECT_NE(writer.error().message.find(c.named), std::string::npos) << writer.error().message;
      for (const auto& [path, content] : {std::pair(part, c.part), std::pair(manifest, c.manifest)}) {
        if (content != nullptr && !content->empty()) {
          EXPECT_EQ(ReadAll(path), *content) << path;
        } else {
          EXPECT_TRUE(content != nullptr || !fs::exists(path)) << path;
        }
      }
    }
  }
  fs::remove(part);
  fs::create_directory(part);
  EXPECT_FALSE(Writer::Resume(path_, contents_.header, contents_.names, kKept));
  fs::remove(part);
  // What is ours at any moment: both new, a manifest whose first line is torn, a part that became the file.
  for (const size_t size : {size_t{0}, size_t{1}, kManifestMagic.size(), our_manifest.size()}) {
    WriteAll(manifest, Bytes(our_manifest).first(size));
    if (size > 0) WriteAll(part, our_part);
    Write(kAll, kKept);
    EXPECT_EQ(ReadAll(path_), fresh_) << size;
    EXPECT_EQ(Entries(), 1u);
  }
}

TEST_F(ResumedWrite, LeavesNothingUnlessItIsKeptAndLetsOneWriteAtATime) {
  Write(2, {.key = 7, .go_on = true, .keep = false});
  EXPECT_EQ(Entries(), 0u);
  {
    auto first = Writer::Resume(path_, contents_.header, contents_.names, kKept);
    ASSERT_TRUE(first);
    const auto second =
        Writer::Resume(path_, contents_.header, contents_.names, {.key = 7, .go_on = false, .keep = false});
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().kind, ErrorKind::kIo);
    EXPECT_EQ(Entries(), 2u) << "what the first one writes is not the second one's to remove";
  }
  EXPECT_EQ(Write(kAll, kKept), 0);
  EXPECT_EQ(ReadAll(path_), fresh_);
}

TEST(Manifest, GoesBothWaysAndStopsAtTheFirstStrangeLine) {
  DirectoryEntry entry;
  entry.info = {"model.\"odd\".weight", DType::kQ4Tiled, {3, 64}, 108};
  entry.offset = 4096;
  entry.hash = 0xFEDCBA9876543210;
  const std::string head = ManifestHead(8192, 5), line = ManifestLine(entry);
  const auto back = ReadManifest(head + line + line, 8192, 5);
  ASSERT_EQ(back.size(), 2u);
  EXPECT_EQ(back[0].info.name, entry.info.name);
  EXPECT_EQ(back[0].info.shape, entry.info.shape);
  EXPECT_EQ(back[0].hash, entry.hash);
  EXPECT_TRUE(ReadManifest(head + line, 8192, 6).empty());
  EXPECT_TRUE(ReadManifest(head + line, 4096, 5).empty());
  EXPECT_EQ(ReadManifest(head + line + line.substr(0, line.size() - 1), 8192, 5).size(), 1u) << "a torn line";
  EXPECT_EQ(ReadManifest(head + line + "{}\n" + line, 8192, 5).size(), 1u);
}

}  // namespace
}  // namespace cmforge::cmf
