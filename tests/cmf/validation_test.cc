// The rules of opening: each one broken in an otherwise right file gives the spec's error, naming the part.
#include <cstring>
#include <functional>

#include "cmf/file.h"
#include "cmf/hash64.h"
#include "files.h"
#include "tiny_model.h"

namespace cmforge::cmf {
namespace {

class Validation : public InFolder {
 protected:
  void SetUp() override {
    InFolder::SetUp();
    ASSERT_TRUE(WriteCmf(folder_ / "tiny.cmf", TinyContents(tensors_)));
    good_ = ReadAll(folder_ / "tiny.cmf");
    std::memcpy(&envelope_, good_.data(), sizeof(envelope_));
  }
  // The error of opening the file after `edit` has changed its bytes.
  Error Broken(const std::function<void(std::vector<std::byte>& file)>& edit) {
    std::vector<std::byte> bad = good_;
    edit(bad);
    const auto file = File::OpenBytes(bad, "bad.cmf");
    EXPECT_FALSE(file);
    return file ? Error{} : file.error();
  }
  template <class T>
  Error Set(size_t offset, T value) {
    return Broken([&](auto& file) { StoreLe<T>(file.data() + offset, value); });
  }
  // The error after record `index` of the directory is changed.
  Error Record(size_t index, const std::function<void(DirRecord&)>& edit) {
    return Broken([&](auto& file) {
      std::byte* at = file.data() + envelope_.directory.offset + 16 + index * sizeof(DirRecord);
      DirRecord record;
      std::memcpy(&record, at, sizeof(record));
      edit(record);
      std::memcpy(at, &record, sizeof(record));
    });
  }
  // The error after the header JSON is replaced by another of at most the same length.
  Error Header(std::string text) {
    return Broken([&](auto& file) {
      text.resize(envelope_.header.length, ' ');
      std::memcpy(file.data() + envelope_.header.offset, text.data(), text.size());
    });
  }
  MemorySource tensors_;
  std::vector<std::byte> good_;
  EnvelopeBytes envelope_;
};

TEST_F(Validation, BadInputsOfTheFixturesHaveTheirNames) {
  const std::pair<const char*, const char*> cases[] = {{"bad-magic", "InvalidMagic"},
                                                       {"version-1", "UnsupportedVersion"},
                                                       {"unknown-feature-bit", "UnsupportedFeature"},
                                                       {"data-off-unaligned", "Bounds"},
                                                       {"tensor-past-data", "Bounds"}};
  for (const auto& [name, error_name] : cases) {
    const fs::path path = DataFolder() / "bad" / (std::string(name) + ".cmf");
    const auto file = File::Open(path);
    ASSERT_FALSE(file) << name;
    EXPECT_EQ(file.error().name, error_name);
    EXPECT_EQ(file.error().message.find(path.string()), 0u) << file.error().message;
  }
  const auto feature = File::Open(DataFolder() / "bad" / "unknown-feature-bit.cmf");
  EXPECT_NE(feature.error().message.find("bit 20"), std::string::npos) << feature.error().message;
  const auto tensor = File::Open(DataFolder() / "bad" / "tensor-past-data.cmf");
  EXPECT_NE(tensor.error().message.find("tensor '"), std::string::npos) << tensor.error().message;
}

TEST_F(Validation, TheEnvelopeMustHoldTogether) {
  EXPECT_EQ(Set<uint8_t>(3, 2).name, "InvalidMagic");
  EXPECT_EQ(Set<uint32_t>(4, 1).name, "UnsupportedVersion");
  EXPECT_EQ(Set<uint32_t>(4, 1).kind, ErrorKind::kUnsupported);
  for (const uint32_t bit : {3u, 4u, 7u, 31u}) {
    const Error error = Set<uint32_t>(12, 1u << bit);
    EXPECT_EQ(error.name, "UnsupportedFeature") << bit;
  }
  EXPECT_NE(Set<uint32_t>(12, 1u << 3).message.find("DELTA_MASKS"), std::string::npos);
  // Each section: past the end, wrapping round, of absurd length.
  const char* const names[] = {"header", "directory", "data", "masks", "vocab", "index"};
  for (size_t section = 0; section < 6; ++section) {
    const size_t field = 16 + 16 * section;
    for (const uint64_t hostile : {good_.size() + uint64_t{1}, ~uint64_t{0}, uint64_t{1} << 63}) {
      for (const size_t half : {0, 8}) {
        const Error error = Set<uint64_t>(field + half, hostile);
        EXPECT_EQ(error.name, "Bounds") << names[section];
        EXPECT_NE(error.message.find(names[section]), std::string::npos) << error.message;
      }
    }
  }
  EXPECT_EQ(Set<uint64_t>(0x18, 0).name, "Bounds") << "empty header";
  EXPECT_EQ(Set<uint64_t>(0x28, 0).name, "Bounds") << "empty directory";
  EXPECT_EQ(Set<uint64_t>(0x30, envelope_.data.offset + 64).name, "Bounds") << "unaligned data";
}

TEST_F(Validation, ErrorsComeInTheOrderOfTheRules) {
  const auto all_wrong = [&](size_t from) {
    return Broken([&](auto& file) {
             if (from <= 0) file[0] = std::byte{'X'};
             if (from <= 1) StoreLe<uint32_t>(file.data() + 4, 9);
             if (from <= 2) StoreLe<uint32_t>(file.data() + 12, 1u << 30);
             if (from <= 3) StoreLe<uint64_t>(file.data() + 0x10, ~uint64_t{0});
             StoreLe<uint64_t>(file.data() + envelope_.directory.offset, ~uint64_t{0});
           })
        .name;
  };
  EXPECT_EQ(all_wrong(0), "InvalidMagic");
  EXPECT_EQ(all_wrong(1), "UnsupportedVersion");
  EXPECT_EQ(all_wrong(2), "UnsupportedFeature");
  EXPECT_EQ(all_wrong(3), "Bounds");
  EXPECT_EQ(all_wrong(4), "Parse");
}

TEST_F(Validation, ReservedFlagsAndDeadOffsetsAreIgnored) {
  StoreLe<uint32_t>(good_.data() + 8, 0xFFFFFFFF);
  EXPECT_TRUE(File::OpenBytes(good_, "flags"));
  StoreLe<uint64_t>(good_.data() + 0x60, ~uint64_t{0});  // the index: offset without length is absent
  StoreLe<uint64_t>(good_.data() + 0x68, 0);
  const auto file = File::OpenBytes(good_, "dead offset");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_TRUE(file->sparse_index().empty());
}

TEST_F(Validation, TheDirectoryMustHoldTogether) {
  const size_t at = envelope_.directory.offset;
  EXPECT_EQ(Set<uint64_t>(at, 1000).name, "Parse") << "count";
  EXPECT_EQ(Set<uint64_t>(at, ~uint64_t{0}).name, "Parse") << "count";
  EXPECT_EQ(Set<uint64_t>(at + 8, 17).name, "Parse") << "pool before the records end";
  EXPECT_EQ(Set<uint64_t>(at + 8, envelope_.directory.length + 1).name, "Parse") << "pool past the section";
  EXPECT_EQ(Record(0, [](DirRecord& r) { r.name_off = 1u << 30; }).name, "Parse");
  EXPECT_EQ(Record(0, [](DirRecord& r) { r.name_len = 60000; }).name, "Parse");
  EXPECT_EQ(Record(1, [](DirRecord& r) { r.ndim = 7; }).name, "Parse");
  const Error dtype = Record(1, [](DirRecord& r) { r.dtype = 17; });
  EXPECT_EQ(dtype.name, "Parse");
  EXPECT_NE(dtype.message.find("dtype id 17"), std::string::npos);
  EXPECT_EQ(Record(1, [](DirRecord& r) { r.off = r.off + 32; }).name, "Bounds");
  EXPECT_EQ(Record(1, [](DirRecord& r) { r.off = ~uint64_t{63}; }).name, "Bounds");
  EXPECT_EQ(Record(1, [](DirRecord& r) { r.nbytes = ~uint64_t{0}; }).name, "Bounds");
  EXPECT_EQ(Record(1, [](DirRecord& r) { r.nbytes = 4; }).name, "Bounds") << "other than the shape needs";
  const Error shape = Record(1, [](DirRecord& r) { r.shape[0] = 9; });
  EXPECT_EQ(shape.name, "Bounds");
  EXPECT_NE(shape.message.find("tensor 'model.norm.weight': 16 bytes stored, shape [9] of f16 needs 18"),
            std::string::npos)
      << shape.message;
  EXPECT_EQ(Record(1,
                   [](DirRecord& r) {
                     r.ndim = 6;
                     for (auto& dim : r.shape) dim = 0xFFFFFFFF;
                   })
                .name,
            "Bounds")
      << "a product beyond 64 bits";
  EXPECT_EQ(Record(1, [](DirRecord& r) { r.name_off = 0, r.name_len = 25; }).name, "Parse") << "a name twice";
  EXPECT_EQ(
      Broken([&](auto& file) { file[at + LoadLe<uint64_t>(file.data() + at + 8)] = std::byte{0xFF}; }).name,
      "Parse")
      << "not UTF-8";
  EXPECT_EQ(Record(0, [](DirRecord& r) { r.ndim = 1; }).name, "Parse") << "q8_row has rows and columns";
}

TEST_F(Validation, NamesThatShareThePoolCannotFillTheMemory) {
  // 56 bytes of record each claim most of a pool that all share.
  constexpr uint64_t kCount = 3000;
  std::vector<std::byte> section(16 + kCount * sizeof(DirRecord) + 60000, std::byte{'n'});
  StoreLe<uint64_t>(section.data(), kCount);
  StoreLe<uint64_t>(section.data() + 8, 16 + kCount * sizeof(DirRecord));
  for (uint64_t i = 0; i < kCount; ++i) {
    DirRecord record{};
    record.name_len = static_cast<uint16_t>(60000 - i);
    record.dtype = static_cast<uint8_t>(DType::kU8);
    record.ndim = 1;
    std::memcpy(section.data() + 16 + i * sizeof(DirRecord), &record, sizeof(record));
  }
  const auto entries = ReadDirectory(section, 0);
  ASSERT_FALSE(entries);
  EXPECT_EQ(entries.error().kind, ErrorKind::kLimit);
}

TEST_F(Validation, TheHeaderMustBeWhatItSays) {
  EXPECT_EQ(Header("{").name, "Parse");
  EXPECT_EQ(Header("[]").name, "Parse");
  EXPECT_EQ(Header("{\"a\":1,\"a\":2}").name, "Parse") << "a key twice";
  EXPECT_EQ(Header("{\"x\":\"\xFF\"}").name, "Parse") << "not UTF-8";
  EXPECT_NE(Header("{}").message.find("key 'arch': is missing"), std::string::npos);
  const Error missing = Header(R"({"arch":{"arch_name":"x","hidden_size":8}})");
  EXPECT_NE(missing.message.find("header: arch: key 'intermediate_size': is missing"), std::string::npos)
      << missing.message;
  const auto arch = [](std::string more) {
    return R"({"arch":{"arch_name":"x","hidden_size":8,"intermediate_size":12,"num_layers":2,)"
           R"("num_attention_heads":2,"vocab_size":10)" +
           more + "}}";
  };
  for (const char* more :
       {R"(,"hidden_act":"relu")", R"(,"norm_style":"new")", R"(,"layer_types":["FullAttention"])",
        R"(,"layer_types":["FullAttention","Magic"])", R"(,"head_dim":-1)", R"(,"head_dim":"8")",
        R"(,"rope_theta":"big")", R"(,"moe":[])", R"(,"yarn":{"factor":"x"})", R"(,"num_loops":0)",
        R"(,"attention_heads_per_layer":[2])"}) {
    EXPECT_EQ(Header(arch(more)).name, "Parse") << more;
  }
}

TEST_F(Validation, TheMasksMustHoldTogether) {
  const size_t at = envelope_.masks.offset;
  EXPECT_EQ(Set<uint32_t>(at, 3).name, "Parse") << "count";
  EXPECT_EQ(Set<uint32_t>(at + 4, 1u << 30).name, "Parse") << "meta length";
  const std::string section(AsText(Bytes(good_).subspan(at, envelope_.masks.length)));
  const auto meta = [&](std::string from, std::string to) {
    return Broken([&](auto& file) {
      const size_t found = section.find(from);
      ASSERT_NE(found, section.npos) << from;
      ASSERT_EQ(from.size(), to.size());
      std::memcpy(file.data() + at + found, to.data(), to.size());
    });
  };
  EXPECT_EQ(meta("\"blob_len\":7", "\"blob_len\":8").name, "Parse");
  EXPECT_EQ(meta("\"blob_len\":7", "\"blob_len\":6").name, "Parse");
  EXPECT_EQ(meta("\"Fallback\"", "\"Fullback\"").name, "Parse");
  EXPECT_EQ(meta("\"general\",\"description\"", "\"sql\"    ,\"description\"").name, "Parse")
      << "a name twice";
  const uint64_t blob = LoadLe<uint32_t>(good_.data() + at + 4) + 8;
  const Error tail = Set<uint8_t>(at + AlignUp(blob, 8) + 1, 0x11);  // neuron 12 of 12
  EXPECT_EQ(tail.name, "Parse");
  EXPECT_NE(tail.message.find("mask 'general': neuron row 0 has bits beyond 12 set"), std::string::npos)
      << tail.message;
}

TEST_F(Validation, PayloadsThatLieAreFoundWhenTheyAreRead) {
  if (FindEncoding(DType::kVbit) == nullptr || FindEncoding(DType::kVbit)->validate == nullptr)
    GTEST_SKIP() << "no vbit here";
  std::vector<std::byte> file = ReadAll(DataFolder() / "py-tiny-vbit-masks.cmf");
  const auto good = File::OpenBytes(file, "good");
  for (const TensorInfo& tensor : good->tensors()) {
    if (tensor.dtype != DType::kVbit) continue;
    std::vector<std::byte> bad = file;
    bad[good->PlaceOf(tensor).offset] = std::byte{7};  // no such width
    const auto opened = File::OpenBytes(bad, "bad");
    ASSERT_TRUE(opened);
    const auto view = opened->Read(tensor.name);
    ASSERT_FALSE(view);
    EXPECT_EQ(view.error().kind, ErrorKind::kCorrupt);
    EXPECT_NE(view.error().message.find("tensor '" + tensor.name + "'"), std::string::npos);
    return;
  }
  FAIL() << "the fixture has no vbit tensor";
}

}  // namespace
}  // namespace cmforge::cmf
