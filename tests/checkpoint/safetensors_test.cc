// What the safetensors reader accepts, and what it says about the rest.
#include "checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/temp_folder.h"

namespace cmforge {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::filesystem::path kData = CMFORGE_TEST_DATA "/checkpoint";

Error ParseError(const std::string& file) {
  auto header = ParseSafetensors(AsBytes(file), "f");
  EXPECT_FALSE(header) << "accepted";
  return header ? Error{} : header.error();
}
std::string Message(std::string_view header, size_t data_size = 0) {
  return ParseError(SafetensorsBytes(header, data_size)).message;
}

TEST(Safetensors, RefusesEachBrokenFileNamingThePart) {
  const std::tuple<const char*, ErrorKind, testing::Matcher<std::string>> rows[] = {
      {"overlapping-offsets", ErrorKind::kCorrupt,
       AllOf(HasSubstr("'k'"), HasSubstr("'v'"), HasSubstr("alias"))},
      {"header-longer-than-file", ErrorKind::kCorrupt,
       AllOf(HasSubstr("4294967296 bytes"), HasSubstr("32 behind"))},
      {"duplicate-key", ErrorKind::kCorrupt, HasSubstr("tensor 'w' occurs twice")},
      {"trailing-bytes", ErrorKind::kCorrupt, HasSubstr("5 bytes after the last tensor")},
      {"truncated-data", ErrorKind::kCorrupt,
       AllOf(HasSubstr("tensor '"), HasSubstr("wanted"), HasSubstr("are there"))},
      {"unknown-dtype", ErrorKind::kUnsupported, AllOf(HasSubstr("tensor '"), HasSubstr("F24"))},
  };
  for (const auto& [name, kind, matcher] : rows) {
    const auto source = SafetensorsSource::Open(kData / "safetensors" / (std::string(name) + ".safetensors"));
    ASSERT_FALSE(source) << name;
    EXPECT_EQ(source.error().kind, kind) << name;
    EXPECT_THAT(source.error().message, AllOf(HasSubstr(std::string(name) + ".safetensors"), matcher));
  }
}

TEST(Safetensors, ReadsEmptyTensorsAndScalars) {
  const auto source = SafetensorsSource::Open(kData / "safetensors/zero-size-and-scalar.safetensors");
  ASSERT_TRUE(source) << source.error().message;
  std::vector<int64_t> counts;
  for (const TensorInfo& info : (*source)->tensors()) {
    const auto view = (*source)->Read(info.name);
    ASSERT_TRUE(view);
    EXPECT_EQ(view->bytes.size(), info.nbytes);
    counts.push_back(*ElementCount(view->shape));
  }
  EXPECT_THAT(counts, testing::UnorderedElementsAre(0, 1, 3));
}

TEST(Safetensors, ListsATensorWithNanAndInf) {
  const auto source = SafetensorsSource::Open(kData / "safetensors/nan-and-inf.safetensors");
  ASSERT_TRUE(source) << source.error().message;
  ASSERT_EQ((*source)->tensors().size(), 1u);
  EXPECT_EQ((*source)->tensors()[0].shape, (Shape{2, 32}));
}

TEST(Safetensors, SaysWhatIsWrongWithAHeader) {
  EXPECT_THAT(ParseError("abc").message, HasSubstr("3 bytes are too few"));
  EXPECT_THAT(Message(""), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(Message(" {}"), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(Message("{\"a\":"), HasSubstr("not valid JSON"));
  EXPECT_THAT(Message("{\"a\":1}"), HasSubstr("tensor 'a': its entry is not an object"));
  EXPECT_THAT(Message(R"({"a":{"dtype":"F32","shape":[1]}})"), HasSubstr("data_offsets is missing"));
  EXPECT_THAT(Message(R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4),
              HasSubstr("key 'dtype' occurs twice"));
  EXPECT_THAT(Message(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4),
              HasSubstr("shape holds"));
  EXPECT_THAT(Message(R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4),
              HasSubstr("shape holds"));
  EXPECT_THAT(Message(R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})", 4),
              HasSubstr("shape holds"));
  EXPECT_THAT(Message(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})", 4),
              HasSubstr("beyond any file"));
  EXPECT_THAT(Message(R"({"a":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}})"),
              HasSubstr("beyond any file"));
  EXPECT_THAT(Message(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4),
              HasSubstr("shape [2] of f32 needs 8 bytes, data_offsets hold 4"));
  EXPECT_THAT(Message(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4),
              HasSubstr("a begin and an end"));
  EXPECT_THAT(Message(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8),
              HasSubstr("4 bytes before tensor 'a' belong to no tensor"));
  EXPECT_THAT(Message(R"({"__metadata__":{"a":1}})"), HasSubstr("__metadata__: 'a' is not a string"));
  EXPECT_THAT(Message(R"({"__metadata__":{},"__metadata__":{}})"), HasSubstr("__metadata__ occurs twice"));
  EXPECT_THAT(Message(std::string(1000, '[')), HasSubstr("does not begin"));
  EXPECT_THAT(Message("{\"a\":" + std::string(1000, '[')), HasSubstr("not valid JSON"));
  EXPECT_THAT(Message("{\"\xFF\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4),
              HasSubstr("not valid JSON"));
}

TEST(Safetensors, MessagesStayOnOneLine) {
  const std::string message = Message(R"({"a\nb":1})");
  EXPECT_EQ(message.find('\n'), message.npos) << message;
}

TEST(Safetensors, KeepsMetadataAndTheOrderOfTheData) {
  const std::string file = SafetensorsBytes(
      R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]},"__metadata__":{"format":"pt"},)"
      R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}   )",
      3);
  const auto header = ParseSafetensors(AsBytes(file), "f");
  ASSERT_TRUE(header) << header.error().message;
  ASSERT_EQ(header->tensors.size(), 2u);
  EXPECT_EQ(header->tensors[0].name, "a");
  EXPECT_EQ(header->tensors[1].name, "b");
  EXPECT_EQ(header->offsets[1], file.size() - 2);
  EXPECT_THAT(header->metadata, testing::ElementsAre(testing::Pair("format", "pt")));
}

TEST(Safetensors, CopiesATensorThatLiesAtAnOddPlace) {
  const TempFolder folder;
  std::string header = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  while (header.size() % 4 != 1) header += ' ';
  const auto source = SafetensorsSource::Open(folder.Write("x.safetensors", SafetensorsBytes(header, 4)));
  ASSERT_TRUE(source) << source.error().message;
  const auto view = (*source)->Read("a");
  ASSERT_TRUE(view);
  EXPECT_NE(view->owner, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(view->bytes.data()) % 4, 0u);
  EXPECT_EQ(AsText(view->bytes), std::string_view("\0\1\2\3", 4));
}

TEST(Safetensors, NoPrefixOfAFileIsAccepted) {
  const std::string file = ReadAll(kData / "nested-text-config/model.safetensors");
  ASSERT_TRUE(ParseSafetensors(AsBytes(file), "f"));
  for (size_t size = 0; size < file.size(); ++size) {
    // A copy of exactly that size, so that a sanitizer sees a read behind its end.
    const std::vector<std::byte> cut(AsBytes(file).begin(),
                                     AsBytes(file).begin() + static_cast<std::ptrdiff_t>(size));
    ASSERT_FALSE(ParseSafetensors(cut, "f")) << size;
  }
}

TEST(Safetensors, ReadsTheSameInEitherMode) {
  for (const auto mode : {MappedFile::Mode::kMap, MappedFile::Mode::kRead}) {
    const auto source = SafetensorsSource::Open(kData / "odd-ffn-width", mode);
    ASSERT_TRUE(source) << source.error().message;
    const auto view = (*source)->Read("model.layers.0.mlp.down_proj.weight");
    ASSERT_TRUE(view);
    EXPECT_EQ(view->shape, (Shape{32, 44}));
    EXPECT_EQ(view->owner, nullptr);
    EXPECT_EQ((*source)->Read("nothing").error().kind, ErrorKind::kNotFound);
  }
}

// ---- folders

std::string OneTensor(const std::string& name) {
  return SafetensorsBytes(R"({")" + name + R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1);
}

TEST(SafetensorsFolder, NamesAMissingShardAndItsTensors) {
  const auto source = SafetensorsSource::Open(kData / "shard-missing");
  ASSERT_FALSE(source);
  EXPECT_EQ(source.error().kind, ErrorKind::kNotFound);
  EXPECT_THAT(source.error().message,
              AllOf(HasSubstr("model-00002-of-00002.safetensors"), HasSubstr("it holds 7 tensors")));
}

TEST(SafetensorsFolder, SaysThatAPointerIsAPointer) {
  const auto source = SafetensorsSource::Open(kData / "lfs-pointer");
  ASSERT_FALSE(source);
  EXPECT_EQ(source.error().kind, ErrorKind::kCorrupt);
  EXPECT_THAT(source.error().message, AllOf(HasSubstr("Git LFS pointer"), HasSubstr("not fetched")));
}

TEST(SafetensorsFolder, JoinsShards) {
  const TempFolder folder;
  folder.Write("s1.safetensors", OneTensor("a"));
  folder.Write("s2.safetensors", OneTensor("b"));
  folder.Write("model.safetensors.index.json",
               R"({"metadata":{"total_size":2},"weight_map":{"b":"s2.safetensors","a":"s1.safetensors"}})");
  const auto source = SafetensorsSource::Open(folder.path());
  ASSERT_TRUE(source) << source.error().message;
  EXPECT_EQ((*source)->tensors().size(), 2u);
  EXPECT_EQ((*source)->files().size(), 2u);
  EXPECT_TRUE((*source)->Read("b"));
}

TEST(SafetensorsFolder, NamesATensorThatItsFileLacks) {
  const TempFolder folder;
  folder.Write("s1.safetensors", OneTensor("a"));
  folder.Write("model.safetensors.index.json",
               R"({"weight_map":{"b":"s1.safetensors","a":"s1.safetensors"}})");
  const auto source = SafetensorsSource::Open(folder.path());
  ASSERT_FALSE(source);
  EXPECT_EQ(source.error().kind, ErrorKind::kCorrupt);
  EXPECT_THAT(source.error().message, AllOf(HasSubstr("s1.safetensors: tensor 'b' is not in this file")));
}

TEST(SafetensorsFolder, TakesTheCopyThatTheIndexNamesAndRefusesToGuess) {
  const TempFolder folder;
  folder.Write("s1.safetensors", SafetensorsBytes(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                                  R"("x":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
                                                  3));
  folder.Write("s2.safetensors", OneTensor("x"));
  folder.Write("model.safetensors.index.json",
               R"({"weight_map":{"a":"s1.safetensors","x":"s2.safetensors"}})");
  const auto source = SafetensorsSource::Open(folder.path());
  ASSERT_TRUE(source) << source.error().message;
  EXPECT_EQ((*source)->Find("x")->shape, Shape{1});

  folder.Write("s3.safetensors", OneTensor("b"));
  folder.Write("s2.safetensors", SafetensorsBytes(R"({"c":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                                  R"("x":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
                                                  3));
  folder.Write("model.safetensors.index.json",
               R"({"weight_map":{"a":"s1.safetensors","c":"s2.safetensors"}})");
  const auto twice = SafetensorsSource::Open(folder.path());
  ASSERT_FALSE(twice);
  EXPECT_THAT(twice.error().message, AllOf(HasSubstr("tensor 'x' is also in"), HasSubstr("s1.safetensors")));
}

TEST(SafetensorsFolder, RefusesIndexesThatLeaveTheFolderOrAreBroken) {
  const std::pair<const char*, const char*> rows[] = {
      {R"({"weight_map":{"a":"../../etc/passwd"}})", "outside the folder"},
      {R"({"weight_map":{"a":"/etc/passwd"}})", "outside the folder"},
      {R"({"weight_map":{"a":""}})", "outside the folder"},
      {R"({"weight_map":{"a":"s","a":"s"}})", "tensor 'a' occurs twice"},
      {R"({"weight_map":{"a":1}})", "has no file name"},
      {R"({"weight_map":{}})", "is empty"},
      {R"({"weight_map":[]})", "missing or not an object"},
      {R"({"weight_map":)", "not valid JSON"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n", "Git LFS pointer"},
  };
  for (const auto& [index, words] : rows) {
    const TempFolder folder;
    folder.Write("model.safetensors.index.json", index);
    const auto source = SafetensorsSource::Open(folder.path());
    ASSERT_FALSE(source) << index;
    EXPECT_EQ(source.error().kind, ErrorKind::kCorrupt) << index;
    EXPECT_THAT(source.error().message, AllOf(HasSubstr("model.safetensors.index.json"), HasSubstr(words)));
  }
}

TEST(SafetensorsFolder, FollowsTheLinksOfACache) {
  const TempFolder folder;
  folder.Write("blobs/0123", OneTensor("a"));
  const auto snapshot = folder.path() / "snapshots/main";
  std::filesystem::create_directories(snapshot);
  std::filesystem::create_symlink("../../blobs/0123", snapshot / "model.safetensors");
  EXPECT_TRUE(SafetensorsSource::Open(snapshot));
  std::filesystem::remove(folder.path() / "blobs/0123");
  const auto dangling = SafetensorsSource::Open(snapshot);
  ASSERT_FALSE(dangling);
  EXPECT_EQ(dangling.error().kind, ErrorKind::kNotFound);
  EXPECT_THAT(dangling.error().message, AllOf(HasSubstr("model.safetensors"), HasSubstr("../../blobs/0123")));
}

TEST(SafetensorsFolder, SaysWhatLiesThereInsteadOfWeights) {
  const TempFolder folder;
  EXPECT_THAT(SafetensorsSource::Open(folder.path()).error().message, HasSubstr("fetch the weights"));
  folder.Write("pytorch_model.bin", "x");
  EXPECT_THAT(SafetensorsSource::Open(folder.path()).error().message,
              HasSubstr("pytorch_model.bin is there"));
  folder.Write("model-00001-of-00002.safetensors", "x");
  EXPECT_THAT(SafetensorsSource::Open(folder.path()).error().message, HasSubstr("1 shard is there"));
  EXPECT_EQ(SafetensorsSource::Open(folder.path() / "nowhere").error().kind, ErrorKind::kNotFound);
}

}  // namespace
}  // namespace cmforge
