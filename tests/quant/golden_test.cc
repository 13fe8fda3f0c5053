// The standard encoders against recorded bytes: 19 small inputs, each in every encoding it is legal for.
#include <gmock/gmock.h>

#include "quant/cases.h"

namespace cmforge {
namespace {

/// "equal" or where and how two payloads first differ.
std::string Difference(const ByteVector& got, const ByteVector& want) {
  if (got.size() != want.size()) return fmt::format("{} bytes, not {}", got.size(), want.size());
  size_t count = 0, first = 0;
  for (size_t i = got.size(); i-- > 0;) {
    if (got[i] != want[i]) {
      ++count;
      first = i;
    }
  }
  if (count == 0) return "equal";
  return fmt::format("{} of {} bytes differ, the first at {}: {:02x}, not {:02x}", count, got.size(), first,
                     std::to_integer<int>(got[first]), std::to_integer<int>(want[first]));
}

TEST(Golden, EncodersGiveTheRecordedBytes) {
  const Json golden = ReadJsonFile(CMFORGE_TEST_DATA "/quant/encoder_golden.json");
  int compared = 0;
  for (const Json& test_case : golden["cases"]) {
    const auto name = test_case["name"].get<std::string>();
    const std::vector<float> values = FloatsOf(FromBase64(test_case["f32_le_base64"].get<std::string>()));
    const TensorView tensor =
        F32Tensor({test_case["rows"].get<int64_t>(), test_case["cols"].get<int64_t>()}, values);
    for (const auto& [codec, expected] : test_case["encoded"].items()) {
      const auto dtype_name = expected["dtype"].get<std::string>();
      const Encoding* encoding = nullptr;
      for (const Encoding* one : AllEncodings()) {
        if (one->name == dtype_name) encoding = one;
      }
      if (encoding == nullptr) continue;
      // Recorded with infinities in it; ours is an error, below.
      if (name == "large_2x64" && (codec == "f16" || codec == "q1s" || codec == "q8_2f")) continue;
      EncodeOptions options;
      options.error_diffusion = codec == "q1p";
      const ByteVector want = FromBase64(expected["bytes"].get<std::string>());
      EXPECT_EQ(Difference(MustEncode(*encoding, tensor, options), want), "equal") << name << " " << codec;
      ++compared;
    }
  }
  EXPECT_EQ(compared, 213);
}

TEST(Golden, VbitWithoutRowOffsetsHasTheRecordedBytes) {
  const Json golden = ReadJsonFile(CMFORGE_TEST_DATA "/quant/encoder_golden.json");
  int compared = 0;
  for (const Json& test_case : golden["cases"]) {
    if (!test_case.contains("python_writer")) continue;
    const std::vector<float> values = FloatsOf(FromBase64(test_case["f32_le_base64"].get<std::string>()));
    const TensorView tensor =
        F32Tensor({test_case["rows"].get<int64_t>(), test_case["cols"].get<int64_t>()}, values);
    const ByteVector want = FromBase64(test_case["python_writer"]["vbit"]["bytes"].get<std::string>());
    EXPECT_EQ(Difference(MustEncode(*FindEncoding(DType::kVbit), tensor), want), "equal")
        << test_case["name"];
    ++compared;
  }
  EXPECT_EQ(compared, 17);
}

TEST(Golden, VbitDecodesToTheRecordedValues) {
  const Json golden = ReadJsonFile(CMFORGE_TEST_DATA "/quant/vbit_golden.json");
  const Shape shape = {golden["rows"].get<int64_t>(), golden["cols"].get<int64_t>()};
  const auto got =
      MustDequantize(OwnedTensor(DType::kVbit, shape, FromBase64(golden["bytes"].get<std::string>())));
  const auto want = golden["expect"].get<std::vector<double>>();
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(got[i], static_cast<float>(want[i])) << i;
}

TEST(Golden, ValuesBeyondF16AreAnErrorWhereInfinitiesWereRecorded) {
  const std::vector<float> values = {1, 2, 65519, 65520, -7e5f, 3};
  ThreadPool pool(1);
  const auto rows = AsFloatRows(F32Tensor({2, 3}, values));
  ASSERT_TRUE(rows);
  const auto bytes = FindEncoding(DType::kF16)->encode(*rows, {}, pool);
  ASSERT_FALSE(bytes);
  EXPECT_EQ(bytes.error().kind, ErrorKind::kCorrupt);
  EXPECT_THAT(bytes.error().message, testing::StartsWith("2 numbers do not fit f16"));
  EXPECT_THAT(bytes.error().message, testing::HasSubstr("the largest is -700000 at row 1 column 1"));
}

}  // namespace
}  // namespace cmforge
