// The contract of the table: what is refused and why, what is copied, and that bytes depend on values alone.
#include "quant/encoding.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "quant/cmf_tensors.h"

namespace cmforge {
namespace {

using testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();

Error EncodeError(DType dtype, const TensorView& tensor, const EncodeOptions& options = {}) {
  ThreadPool pool(2);
  const auto rows = AsFloatRows(tensor);
  EXPECT_TRUE(rows);
  auto bytes = FindEncoding(dtype)->encode(*rows, options, pool);
  EXPECT_FALSE(bytes) << DTypeName(dtype);
  return bytes ? Error{} : std::move(bytes).error();
}

TEST(Table, ListsEveryReadableIdOnce) {
  std::vector<int> ids;
  for (const Encoding* encoding : AllEncodings()) {
    ids.push_back(static_cast<int>(encoding->dtype));
    EXPECT_EQ(encoding->name, DTypeName(encoding->dtype));
    EXPECT_EQ(FindEncoding(encoding->dtype), encoding);
  }
  EXPECT_EQ(ids, (std::vector<int>{0, 1, 2, 3, 4, 6, 8, 9, 10, 11, 12, 13, 14, 15, 16}));
  EXPECT_EQ(FindEncoding(DType::kMix84), nullptr);
  EXPECT_EQ(FindEncoding(DType::kF64), nullptr);
}

TEST(RowsOf, FoldsAllButTheFirstDimension) {
  const auto rows_and_cols = [](Shape shape) {
    const RowShape r = RowsOf(shape);
    return std::pair(r.rows, r.cols);
  };
  EXPECT_EQ(rows_and_cols({}), std::pair(int64_t{1}, int64_t{1}));
  EXPECT_EQ(rows_and_cols({7}), std::pair(int64_t{7}, int64_t{1}));
  EXPECT_EQ(rows_and_cols({7, 3}), std::pair(int64_t{7}, int64_t{3}));
  EXPECT_EQ(rows_and_cols({7, 3, 2}), std::pair(int64_t{7}, int64_t{6}));
  EXPECT_EQ(rows_and_cols({7, 0, 2}), std::pair(int64_t{0}, int64_t{0}));
  EXPECT_EQ(rows_and_cols({0, int64_t{1} << 40, int64_t{1} << 40}), std::pair(int64_t{0}, int64_t{0}));
}

TEST(CheckPayload, NamesWhatItCannotRead) {
  for (const DType dtype :
       {DType::kMix84, DType::kQ4Col, DType::kF8E4M3, DType::kF8E5M2, static_cast<DType>(200)}) {
    const auto status = CheckPayload(dtype, Shape{1}, {});
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().kind, ErrorKind::kUnsupported);
    EXPECT_THAT(status.error().message, HasSubstr(std::string(DTypeName(dtype))));
  }
}

TEST(CheckPayload, ComparesSizeWithShape) {
  const ByteVector bytes(62);
  const auto status = CheckPayload(DType::kF16, Shape{32}, bytes);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().kind, ErrorKind::kCorrupt);
  EXPECT_EQ(status.error().name, "Bounds");
  EXPECT_EQ(status.error().message, "62 bytes stored, shape [32] of f16 needs 64");
}

TEST(CheckPayload, SurvivesShapesThatOverflow) {
  const ByteVector bytes(64);
  const int64_t big = int64_t{1} << 62;
  for (const Encoding* encoding : AllEncodings()) {
    for (const Shape& shape :
         {Shape{big, big}, Shape{big, 32}, Shape{32, big}, Shape{big, 64}, Shape{3, big + 32}, Shape{big},
          Shape{4, big}, Shape{UINT32_MAX, UINT32_MAX}, Shape{-1, 32}, Shape{0, big}}) {
      const auto status = CheckPayload(encoding->dtype, shape, bytes);
      EXPECT_FALSE(status) << encoding->name << " " << ShapeText(shape);
    }
  }
  EXPECT_FALSE(CheckPayload(DType::kF64, Shape{big, 4}, bytes));
}

TEST(CheckPayload, RefusesShapesAnEncodingCannotHave) {
  for (const DType dtype : {DType::kQ8Row, DType::kQ8TwoField, DType::kVbit, DType::kVbitRo, DType::kQ4Tiled,
                            DType::kQ1, DType::kQ1s, DType::kQ1t, DType::kQ4tp, DType::kQ2tp}) {
    for (const Shape& shape : {Shape{}, Shape{32}, Shape{1, 1, 32}, Shape{0, 32}, Shape{32, 0}}) {
      EXPECT_FALSE(CheckPayload(dtype, shape, {})) << DTypeName(dtype) << " " << ShapeText(shape);
    }
    const bool any_width = dtype == DType::kQ8Row || dtype == DType::kQ8TwoField;
    EXPECT_EQ(FindEncoding(dtype)->reason_against(Shape{2, 44}),
              any_width ? "" : "columns 44 are not a multiple of 32");
  }
  EXPECT_EQ(FindEncoding(DType::kQ1t)->reason_against(Shape{1, 65536}), "");
  EXPECT_THAT(FindEncoding(DType::kQ1t)->reason_against(Shape{1, 65568}), HasSubstr("16-bit"));
}

TEST(CheckPayload, PayloadsOfEveryEncodingHaveTheirStatedSize) {
  for (const Encoding* encoding : AllEncodings()) {
    const TensorView source = encoding->dtype == DType::kU8
                                  ? OwnedTensor(DType::kU8, {5, 96}, ByteVector(5 * 96))
                                  : F32Tensor({5, 96}, GaussianRows(5, 96, 3));
    const ByteVector bytes = MustEncode(*encoding, source);
    EXPECT_EQ(encoding->payload_size(Shape{5, 96}).value_or(bytes.size()), bytes.size()) << encoding->name;
    EXPECT_TRUE(CheckPayload(encoding->dtype, Shape{5, 96}, bytes)) << encoding->name;
    // One byte more or less is never the same tensor.
    ByteVector longer = bytes;
    longer.push_back({});
    EXPECT_FALSE(CheckPayload(encoding->dtype, Shape{5, 96}, longer)) << encoding->name;
    EXPECT_FALSE(CheckPayload(encoding->dtype, Shape{5, 96}, Bytes(bytes).first(bytes.size() - 1)))
        << encoding->name;
  }
}

TEST(Validate, RefusesInsidesThatDoNotHangTogether) {
  const Shape shape = {4, 64};
  const TensorView source = F32Tensor(shape, GaussianRows(4, 64, 9));
  EncodeOptions options;
  options.outlier_fraction = 0.02;
  const auto broken = [&](DType dtype, size_t at, uint8_t value) {
    ByteVector bytes = MustEncode(*FindEncoding(dtype), source, options);
    EXPECT_TRUE(CheckPayload(dtype, shape, bytes));
    EXPECT_NE(bytes[at], std::byte{value}) << "the test changes nothing";
    bytes[at] = std::byte{value};
    const auto status = CheckPayload(dtype, shape, bytes);
    return status ? std::string("accepted") : status.error().message;
  };
  for (const DType dtype : {DType::kVbit, DType::kVbitRo}) {
    EXPECT_THAT(broken(dtype, 1, 7), HasSubstr("row 1 is 7 bits wide"));
    EXPECT_THAT(broken(dtype, 1, 0), HasSubstr("row 1 is 0 bits wide"));
    EXPECT_NE(broken(dtype, 3, 8), "accepted");
    EXPECT_NE(broken(dtype, 3, 3), "accepted");
  }
  const size_t offsets = 4 + 4 * 2 * 2;
  EXPECT_THAT(broken(DType::kVbitRo, offsets, 1), HasSubstr("row 0 begins at byte 0, its table says 1"));
  EXPECT_THAT(broken(DType::kVbitRo, offsets + 4 * 4, 1), HasSubstr("last row offset"));

  const size_t overlay = 4 * 2 * 6;
  EXPECT_THAT(broken(DType::kQ1s, overlay, 200), HasSubstr("200 outliers need"));
  EXPECT_THAT(broken(DType::kQ1s, overlay + 4 + 3, 1), HasSubstr("outlier 0 is at element"));
  EXPECT_THAT(broken(DType::kQ1s, overlay + 4, 255),
              HasSubstr("outlier 1 is at element"));  // no longer ascending

  const size_t row_ptr = 4 * 2 * 9;
  EXPECT_THAT(broken(DType::kQ1t, row_ptr, 1), HasSubstr("row 0 do not begin at 0"));
  EXPECT_THAT(broken(DType::kQ1t, row_ptr + 4, 99), HasSubstr("outliers of row 0 end at 99"));
  EXPECT_THAT(broken(DType::kQ1t, row_ptr + 4 * 4, 99), HasSubstr("99 outliers need"));
  EXPECT_THAT(broken(DType::kQ1t, row_ptr + 4 * 5, 64), HasSubstr("at column 64"));
}

TEST(Validate, RefusesAnOutlierOnTopOfACode) {
  const Shape shape = {1, 32};
  ByteVector bytes(9 + 8 + 4);
  StoreLe(bytes.data() + 9 + 4, uint32_t{1});
  StoreLe(bytes.data() + 17, uint16_t{6});
  StoreLe(bytes.data() + 19, F32ToF16(2.0f));
  EXPECT_TRUE(CheckPayload(DType::kQ1t, shape, bytes));
  EXPECT_EQ(MustDequantize(OwnedTensor(DType::kQ1t, shape, bytes))[6], 2.0f);
  bytes[2 + 1] = std::byte{3};  // code of column 6 becomes 1
  const auto status = CheckPayload(DType::kQ1t, shape, bytes);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("row 0 column 6 has both a code and an outlier"));
}

TEST(Encode, RefusesNanAndInfWithCountAndFirstPlace) {
  std::vector<float> values = GaussianRows(6, 64, 1);
  values[3 * 64 + 5] = std::nanf("");
  values[3 * 64 + 60] = -kInf;
  values[5 * 64] = kInf;
  for (const Encoding* encoding : AllEncodings()) {
    const Error error = EncodeError(encoding->dtype, F32Tensor({6, 64}, values));
    EXPECT_EQ(error.kind, ErrorKind::kCorrupt) << encoding->name;
    EXPECT_THAT(error.message, HasSubstr("3 values are NaN or infinite, the first is nan at row 3 column 5"))
        << encoding->name;
  }
}

TEST(Encode, RefusesNanAndInfInVectorsAndInCopies) {
  const std::vector<float> values = {1, std::nanf(""), kInf, -kInf, 65504, -2};
  ByteVector halves(12);
  for (size_t i = 0; i < 6; ++i) StoreLe(halves.data() + 2 * i, static_cast<uint16_t>(0x7BFE + i));  // to NaN
  for (const Shape& shape : {Shape{2, 3}, Shape{6}}) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      EXPECT_THAT(EncodeError(dtype, F32Tensor(shape, values)).message, HasSubstr("3 values are NaN"));
    }
    for (const DType dtype : {DType::kF16, DType::kF32}) {
      EXPECT_THAT(EncodeError(dtype, OwnedTensor(DType::kF16, shape, halves)).message,
                  HasSubstr("4 values are NaN or infinite, the first is inf at row"));
    }
  }
  for (size_t i = 0; i < 6; ++i) StoreLe(halves.data() + 2 * i, static_cast<uint16_t>(0x7F7E + i));
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    EXPECT_THAT(EncodeError(dtype, OwnedTensor(DType::kBF16, {6}, halves)).message,
                HasSubstr("4 values are NaN or infinite, the first is inf at row 2"));
  }
}

TEST(Encode, CopiesWhatHasTheTypeAlready) {
  const TensorView f32 = F32Tensor({2, 3}, {1, 0x1p-149f, -0.0f, 3e38f, 65504, -2});
  EXPECT_TRUE(std::ranges::equal(MustEncode(*FindEncoding(DType::kF32), f32), f32.bytes));
  ByteVector halves(12);
  for (size_t i = 0; i < 6; ++i)
    StoreLe(halves.data() + 2 * i, static_cast<uint16_t>(0x7BFA + i));  // up to 65504
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    EXPECT_EQ(MustEncode(*FindEncoding(dtype), OwnedTensor(dtype, {2, 3}, halves)), halves);
  }
}

// Whatever is tallied, a scale or the weight: what is named is the weight, at its own place.
TEST(Encode, NamesTheFiniteNumberThatWouldBecomeInfinite) {
  std::vector<float> values = GaussianRows(2, 64, 1);
  values[64 + 40] = 3e38f;
  std::vector<double> doubles(values.begin(), values.end());
  doubles[64 + 40] = 1e300;
  const auto* at = reinterpret_cast<const std::byte*>(doubles.data());
  const TensorView f64 = OwnedTensor(DType::kF64, {2, 64}, ByteVector(at, at + doubles.size() * 8));
  for (const Encoding* encoding : AllEncodings()) {
    if (encoding->dtype == DType::kU8) continue;
    const Error too_wide = EncodeError(encoding->dtype, f64);
    EXPECT_EQ(too_wide.kind, ErrorKind::kCorrupt) << encoding->name;
    EXPECT_THAT(too_wide.message, HasSubstr("do not fit")) << encoding->name;
    EXPECT_THAT(too_wide.message, HasSubstr("1e+300 at row 1 column 40")) << encoding->name;
    if (encoding->dtype == DType::kF32 || encoding->dtype == DType::kBF16) continue;
    const Error error = EncodeError(encoding->dtype, F32Tensor({2, 64}, values));
    EXPECT_EQ(error.kind, ErrorKind::kCorrupt) << encoding->name;
    EXPECT_THAT(error.message, HasSubstr("do not fit")) << encoding->name;
    EXPECT_THAT(error.message, HasSubstr("3e+38 at row 1 column 40")) << encoding->name;
  }
  values[64 + 40] = std::numeric_limits<float>::max();
  EXPECT_THAT(EncodeError(DType::kBF16, F32Tensor({2, 64}, values)).message,
              HasSubstr("1 numbers do not fit bf16"));
  EXPECT_EQ(EncodeError(DType::kU8, F32Tensor({2, 64}, GaussianRows(2, 64, 1))).kind, ErrorKind::kCorrupt);
  doubles[0] = -static_cast<double>(kInf);
  EXPECT_THAT(
      EncodeError(DType::kF32, OwnedTensor(DType::kF64, {2, 64}, ByteVector(at, at + doubles.size() * 8)))
          .message,
      HasSubstr("1 values are NaN or infinite, the first is -inf at row 0 column 0"));
}

TEST(Encode, ReadsTheNumberTypesOfCheckpoints) {
  const auto values = [](DType dtype, auto... numbers) {
    ByteVector bytes;
    const auto add = [&](auto number) {
      const auto* at = reinterpret_cast<const std::byte*>(&number);
      bytes.insert(bytes.end(), at, at + sizeof(number));
    };
    (add(numbers), ...);
    return MustDequantize(OwnedTensor(dtype, {sizeof...(numbers)}, bytes));
  };
  using Floats = std::vector<float>;
  EXPECT_EQ(values(DType::kF64, 1.5, -1e-300, 0x1.000001p0), (Floats{1.5f, -0.0f, 1.0f}));
  EXPECT_EQ(values(DType::kI64, int64_t{-5}, int64_t{16777217}), (Floats{-5, 16777216}));
  EXPECT_EQ(values(DType::kI32, int32_t{-7}, INT32_MAX), (Floats{-7, 2147483648.0f}));
  EXPECT_EQ(values(DType::kI16, int16_t{-300}), (Floats{-300}));
  EXPECT_EQ(values(DType::kI8, int8_t{-128}), (Floats{-128}));
  EXPECT_EQ(values(DType::kBool, uint8_t{0}, uint8_t{1}, uint8_t{2}), (Floats{0, 1, 1}));
  EXPECT_EQ(values(DType::kU8, uint8_t{200}), (Floats{200}));
  EXPECT_EQ(values(DType::kU16, uint16_t{65535}), (Floats{65535}));
  EXPECT_EQ(values(DType::kU32, UINT32_MAX), (Floats{4294967296.0f}));
  EXPECT_EQ(values(DType::kU64, UINT64_MAX), (Floats{18446744073709551616.0f}));
}

TEST(Encode, GivesTheSameBytesForAnyNumberOfThreads) {
  // Several blocks of rows, so that threads really share the work; q8_2f has several sums of 256 rows.
  const TensorView source = F32Tensor({700, 192}, GaussianRows(700, 192, 77));
  std::vector<float> importance = GaussianRows(1, 192, 5);
  for (float& value : importance) value *= value;
  for (const Encoding* encoding : AllEncodings()) {
    if (encoding->dtype == DType::kU8) continue;
    for (const double fraction : {-1.0, 0.03}) {
      EncodeOptions options;
      options.outlier_fraction = fraction;
      if (fraction > 0) options.column_mean_square = importance;
      const ByteVector one = MustEncode(*encoding, source, options, 1);
      for (const int threads : {2, 3, 7}) {
        EXPECT_EQ(MustEncode(*encoding, source, options, threads), one) << encoding->name << " " << threads;
      }
    }
  }
}

TEST(Encode, AnySourceWithTheSameValuesGivesTheSameBytes) {
  std::vector<float> values = GaussianRows(40, 64, 21);
  ByteVector halves(values.size() * 2);
  for (size_t i = 0; i < values.size(); ++i) {
    StoreLe(halves.data() + 2 * i, F32ToBf16(values[i]));
    values[i] = Bf16ToF32(F32ToBf16(values[i]));
  }
  for (const Encoding* encoding : AllEncodings()) {
    if (encoding->dtype == DType::kU8) continue;
    EXPECT_EQ(MustEncode(*encoding, OwnedTensor(DType::kBF16, {40, 64}, halves)),
              MustEncode(*encoding, F32Tensor({40, 64}, values)))
        << encoding->name;
  }
}

TEST(Encode, RefusesOptionsThatMakeNoSense) {
  const TensorView source = F32Tensor({2, 32}, GaussianRows(2, 32, 1));
  EncodeOptions options;
  for (const double bits : {2.9, 8.1, std::nan("")}) {
    options.mean_bits = bits;
    EXPECT_EQ(EncodeError(DType::kVbit, source, options).kind, ErrorKind::kUsage);
  }
  options = {};
  for (const double fraction : {0.3, 1e9, std::nan("")}) {
    options.outlier_fraction = fraction;
    EXPECT_EQ(EncodeError(DType::kQ1s, source, options).kind, ErrorKind::kUsage);
    EXPECT_EQ(EncodeError(DType::kQ1t, source, options).kind, ErrorKind::kUsage);
  }
  options = {};
  std::vector<float> statistics(31, 1.0f);
  options.column_mean_square = statistics;
  EXPECT_THAT(EncodeError(DType::kQ1t, source, options).message,
              HasSubstr("for 31 columns, the tensor has 32"));
  for (const float wrong : {-1.0f, kInf, std::nanf("")}) {
    statistics.assign(32, 1.0f);
    statistics[7] = wrong;
    options.column_mean_square = statistics;
    EXPECT_THAT(EncodeError(DType::kQ1t, source, options).message, HasSubstr("at column 7"));
  }
}

}  // namespace
}  // namespace cmforge
