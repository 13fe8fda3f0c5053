// Weight files and packed elements.
#include "mil/blob_file.h"

#include <gtest/gtest.h>

#include "mil/packed_bits.h"
#include "mil/test_files.h"

namespace cmforge::mil {
namespace {

TEST(PackedBits, RunAcrossByteBordersFromTheLowestBit) {
  const std::vector<uint8_t> values{1, 2, 3};
  const auto packed = PackBits(values, 3);
  EXPECT_EQ(packed, (std::vector{std::byte{0xd1}, std::byte{0x00}}));
  for (const int bits : {1, 2, 3, 4, 6, 8}) {
    std::vector<uint8_t> codes;
    for (int i = 0; i < 101; ++i) codes.push_back(static_cast<uint8_t>((i * 37 + i / 3) & ((1 << bits) - 1)));
    const auto stream = PackBits(codes, bits);
    EXPECT_EQ(
        stream.size(),
        StorageBytes(bits == 8 ? DataType::kUInt8 : *DataTypeFromName("uint" + std::to_string(bits)), 101));
    std::vector<uint8_t> back(101);
    UnpackBits(stream.data(), bits, 0, 101, back.data());
    EXPECT_EQ(back, codes) << bits;
    for (int64_t begin : {1, 5, 8, 100}) {
      std::vector<uint8_t> part(static_cast<size_t>(101 - begin));
      UnpackBits(stream.data(), bits, begin, 101 - begin, part.data());
      EXPECT_TRUE(std::equal(part.begin(), part.end(), codes.begin() + begin)) << bits << " from " << begin;
      EXPECT_EQ(PackedElement(stream.data(), bits, begin), codes[static_cast<size_t>(begin)]);
    }
  }
  EXPECT_EQ(SignExtend(8, 4), -8);
  EXPECT_EQ(SignExtend(7, 4), 7);
}

TEST(BlobWriter, StoresEqualContentsOnceAndEveryTypeReadsBack) {
  const auto path = FreshFolder() / "weight.bin";
  auto writer = BlobWriter::Create(path);
  ASSERT_TRUE(writer);
  std::map<DataType, uint64_t> offsets;
  for (uint32_t code = 1; code <= 17; ++code) {
    const DataType dtype = *TypeOfBlobCode(code);
    EXPECT_EQ(BlobCodeOf(dtype), code);
    const std::vector<std::byte> data(*StorageBytes(dtype, 13), std::byte{1});
    const auto offset = writer->Add(dtype, 13, data);
    ASSERT_TRUE(offset) << offset.error().message;
    EXPECT_EQ(*offset % 64, 0u);
    offsets[dtype] = *offset;
    EXPECT_EQ(*writer->Add(dtype, 13, data), *offset);
  }
  // In pieces, the same as before; then one that differs in its last byte.
  const std::vector<std::byte> halves(26, std::byte{1});
  ASSERT_TRUE(writer->Begin(DataType::kFloat16, 13));
  ASSERT_TRUE(writer->Append(Bytes(halves).first(7)));
  EXPECT_FALSE(writer->End());
  ASSERT_TRUE(writer->Append(Bytes(halves).subspan(7)));
  EXPECT_FALSE(writer->Append(Bytes(halves).first(1)));
  EXPECT_EQ(*writer->End(), offsets[DataType::kFloat16]);
  EXPECT_FALSE(writer->Begin(DataType::kBool, 4));
  EXPECT_EQ(writer->entries(), 17u);
  ASSERT_TRUE(writer->Commit());

  const auto blob = BlobFile::Open(path);
  ASSERT_TRUE(blob) << blob.error().message;
  const auto entries = blob->Entries();
  ASSERT_TRUE(entries) << entries.error().message;
  ASSERT_EQ(entries->size(), 17u);
  for (const BlobEntry& entry : *entries) {
    EXPECT_EQ(entry.count(), 13u) << DataTypeName(entry.dtype);
    EXPECT_TRUE(blob->Tensor(offsets[entry.dtype], {entry.dtype, {13}}));
    EXPECT_FALSE(blob->Tensor(offsets[entry.dtype], {entry.dtype, {99}}));
  }
  EXPECT_EQ(entries->back().data.data() + entries->back().data.size(),
            blob->bytes().data() + blob->bytes().size());
}

TEST(BlobFile, OfTheCompilerIsReproducedByOurWriter) {
  const std::string expected = ReadAll(TestData("mil/quantized_constexpr/weights/weights.bin"));
  const auto path = FreshFolder() / "weights.bin";
  auto writer = BlobWriter::Create(path);
  ASSERT_TRUE(writer);
  EXPECT_EQ(*writer->Add(DataType::kInt8, 4, AsBytes(std::string_view("\x80\xff\x00\x7f", 4))), 64u);
  ASSERT_TRUE(writer->Commit());
  EXPECT_EQ(ReadAll(path).substr(0, 132), expected.substr(0, 132));
}

TEST(BlobFile, NamesWhatIsWrong) {
  const auto message = [](const std::string& name) {
    const auto blob = BlobFile::Open(TestData("coreml/bad/" + name));
    EXPECT_TRUE(blob);
    const auto entry = blob->Entry(64);
    EXPECT_FALSE(blob->Entries());
    return entry ? std::string() : entry.error().message;
  };
  EXPECT_NE(
      message("weight-bad-sentinel.bin").find("entry at 64: mark 0xdeadbee0 where 0xdeadbeef should be"),
      std::string::npos);
  EXPECT_NE(message("weight-data-past-end.bin").find("entry at 64: data: bytes 128 + 4096 leave the 192"),
            std::string::npos)
      << message("weight-data-past-end.bin");
  const std::string good = ReadAll(TestData("mil/quantized_constexpr/weights/weights.bin"));
  const auto blob = BlobFile::FromBytes(AsBytes(good));
  ASSERT_TRUE(blob);
  for (const uint64_t offset :
       {uint64_t{0}, uint64_t{63}, uint64_t{65}, uint64_t{128}, uint64_t{192}, ~uint64_t{63}, ~uint64_t{0}}) {
    EXPECT_FALSE(blob->Entry(offset)) << offset;
  }
  for (size_t size = 0; size < 64; ++size) EXPECT_FALSE(BlobFile::FromBytes(AsBytes(good).first(size)));
}

}  // namespace
}  // namespace cmforge::mil
