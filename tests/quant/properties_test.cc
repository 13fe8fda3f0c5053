// What holds for every input: errors within the step of the scale, defined values at the extremes, rows that
// decode alone as they do together, and a bound on what each encoding loses on Gaussian rows.
#include <rapidcheck.h>

#include <cmath>

#include "quant/cases.h"
#include "quant/least_error.h"

namespace cmforge {
namespace {

/// Rows with everything that hurts: zeros, one-hot groups, subnormals, huge and tiny groups, ties.
std::vector<float> HardRows(int64_t rows, int64_t cols, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> gauss(0.0f, 1.0f);
  std::vector<float> values(static_cast<size_t>(rows * cols));
  for (size_t first = 0; first < values.size(); first += 16) {
    const uint32_t kind = random() % 9;
    const float size = std::ldexp(1.0f, static_cast<int>(random() % 24) - 14);
    for (size_t i = first; i < std::min(first + 16, values.size()); ++i) {
      switch (kind) {
        case 0:
          values[i] = 0.0f;
          break;
        case 1:
          values[i] = -0.0f;
          break;
        case 2:
          values[i] = i == first ? size : 0.0f;
          break;
        case 3:
          values[i] = gauss(random) * 1e-40f;
          break;
        case 4:
          values[i] = gauss(random) * 1e-6f;
          break;
        case 5:
          values[i] = static_cast<float>(static_cast<int>(random() % 15) - 7) / 2;
          break;
        case 6:
          values[i] = size;
          break;
        default:
          values[i] = gauss(random) * size;
      }
    }
  }
  return values;
}

bool NeedsGroups(const Encoding& encoding) { return !encoding.reason_against(Shape{1, 33}).empty(); }

TEST(Properties, EveryEncodingOfHardRowsIsFiniteAndReadsByAnyCutOfRows) {
  EXPECT_TRUE(rc::check([] {
    const auto rows = *rc::gen::inRange<int64_t>(1, 9);
    const auto cols = *rc::gen::inRange<int64_t>(1, 200);
    const auto seed = *rc::gen::arbitrary<uint32_t>();
    for (const Encoding* encoding : AllEncodings()) {
      if (encoding->dtype == DType::kU8) continue;
      const int64_t width = NeedsGroups(*encoding) ? (cols + 31) / 32 * 32 : cols;
      const TensorView source = F32Tensor({rows, width}, HardRows(rows, width, seed));
      EncodeOptions options;
      options.outlier_fraction = seed % 3 == 0 ? -1.0 : 0.05;
      options.error_diffusion = seed % 2 == 0;
      std::vector<float> importance(static_cast<size_t>(width));  // some columns are never used
      for (size_t i = 0; i < importance.size(); ++i)
        importance[i] = i % 40 < 33 ? 0.0f : static_cast<float>(i);
      if (seed % 4 == 0) options.column_mean_square = importance;
      const TensorView encoded =
          OwnedTensor(encoding->dtype, source.shape, MustEncode(*encoding, source, options));
      const std::vector<float> whole = MustDequantize(encoded);
      for (const float value : whole) RC_ASSERT(std::isfinite(value));
      const auto reader = AsFloatRows(encoded);
      RC_ASSERT(reader.has_value());
      const auto begin = *rc::gen::inRange<int64_t>(0, rows);
      const auto end = *rc::gen::inRange<int64_t>(begin, rows + 1);
      std::vector<float> part(static_cast<size_t>((end - begin) * width) + 1, -7.0f);
      reader->Read(begin, end, part.data());
      RC_ASSERT(std::equal(part.begin(), part.end() - 1, whole.begin() + begin * width));
      RC_ASSERT(part.back() == -7.0f);
    }
  }));
}

TEST(Properties, EncodingADecodedTensorKeepsItsValues) {
  // True where the scale follows from the largest value: rounding twice changes nothing.
  EXPECT_TRUE(rc::check([] {
    const auto rows = *rc::gen::inRange<int64_t>(1, 6);
    const auto cols = 32 * *rc::gen::inRange<int64_t>(1, 5);
    const auto values = GaussianRows(rows, cols, *rc::gen::arbitrary<uint32_t>());
    for (const DType dtype :
         {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8Row, DType::kQ4Block, DType::kQ4Tiled}) {
      const Encoding& encoding = *FindEncoding(dtype);
      const Shape shape = {rows, cols};
      const std::vector<float> once =
          MustDequantize(OwnedTensor(dtype, shape, MustEncode(encoding, F32Tensor(shape, values))));
      const std::vector<float> twice =
          MustDequantize(OwnedTensor(dtype, shape, MustEncode(encoding, F32Tensor(shape, once))));
      for (size_t i = 0; i < once.size(); ++i)
        RC_ASSERT(std::fabs(once[i] - twice[i]) <= 1e-3f * std::fabs(once[i]));
    }
  }));
}

TEST(Properties, ErrorsStayWithinHalfAStepOfTheLargestWeight) {
  EXPECT_TRUE(rc::check([] {
    const auto rows = *rc::gen::inRange<int64_t>(1, 6);
    const auto cols = 32 * *rc::gen::inRange<int64_t>(1, 5);
    const auto values = HardRows(rows, cols, *rc::gen::arbitrary<uint32_t>());
    const Shape shape = {rows, cols};
    for (const auto& [dtype, steps] : {std::pair(DType::kQ8Row, 127.0f), std::pair(DType::kQ4Block, 7.0f),
                                       std::pair(DType::kQ4Tiled, 7.0f)}) {
      const auto got = MustDequantize(
          OwnedTensor(dtype, shape, MustEncode(*FindEncoding(dtype), F32Tensor(shape, values))));
      const int64_t group = dtype == DType::kQ8Row ? cols : 32;
      for (int64_t first = 0; first < rows * cols; first += group) {
        float loudest = 0;
        for (int64_t i = first; i < first + group; ++i)
          loudest = std::max(loudest, std::fabs(values[static_cast<size_t>(i)]));
        // Half a step, and the rounding of the scale (2^-11), which the outermost code feels `steps` times.
        const float step = std::max(loudest / steps, 0x1p-14f);
        const float bound = step * (0.5f + steps * 0x1p-11f) * 1.001f;
        for (int64_t i = first; i < first + group; ++i) {
          RC_ASSERT(std::fabs(got[static_cast<size_t>(i)] - values[static_cast<size_t>(i)]) <= bound);
        }
      }
    }
  }));
}

TEST(Properties, ZerosDecodeToZeros) {
  const TensorView zeros = F32Tensor({3, 64}, std::vector<float>(3 * 64));
  for (const Encoding* encoding : AllEncodings()) {
    const auto got = MustDequantize(OwnedTensor(encoding->dtype, {3, 64}, MustEncode(*encoding, zeros)));
    // q1 has no zero: it stores the smallest scale.
    const float bound = encoding->dtype == DType::kQ1 ? 0x1p-14f : 0.0f;
    for (const float value : got) EXPECT_LE(std::fabs(value), bound) << encoding->name;
  }
}

double RelativeError(const std::vector<float>& got, const std::vector<float>& want) {
  double error = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += std::pow(static_cast<double>(got[i]) - want[i], 2);
    size += std::pow(static_cast<double>(want[i]), 2);
  }
  return std::sqrt(error / size);
}

TEST(Properties, GaussianRowsLoseWhatTheirBitsSay) {
  // Relative root mean square errors as measured; another sample of 65536 weights differs by less than 3%.
  const std::pair<DType, double> measured[] = {
      {DType::kF32, 0},          {DType::kF16, 0.000207},       {DType::kBF16, 0.00165},
      {DType::kQ8Row, 0.00788},  {DType::kQ8TwoField, 0.00758}, {DType::kQ4Block, 0.0973},
      {DType::kQ4Tiled, 0.0973}, {DType::kQ4tp, 0.0929},        {DType::kVbit, 0.0960},
      {DType::kVbitRo, 0.0960},  {DType::kQ2tp, 0.425},         {DType::kQ1t, 0.427},
      {DType::kQ1s, 0.733},      {DType::kQ1, 0.593},
  };
  const Shape shape = {64, 1024};
  const std::vector<float> values = GaussianRows(shape[0], shape[1], 11);
  for (const auto& [dtype, want] : measured) {
    const auto got =
        MustDequantize(OwnedTensor(dtype, shape, MustEncode(*FindEncoding(dtype), F32Tensor(shape, values))));
    EXPECT_NEAR(RelativeError(got, values), want, 0.03 * want) << DTypeName(dtype);
  }
}

TEST(Properties, LeastErrorEncodersLoseLessAndReadTheSame) {
  const std::pair<DType, double> measured[] = {{DType::kQ4Block, 0.0861},
                                               {DType::kQ4Tiled, 0.0861},
                                               {DType::kQ4tp, 0.0866},
                                               {DType::kVbit, 0.0850},
                                               {DType::kVbitRo, 0.0850}};
  const Shape shape = {64, 1024};
  const TensorView source = F32Tensor(shape, GaussianRows(shape[0], shape[1], 11));
  const std::vector<float> values = MustDequantize(source);
  ThreadPool one(1), three(3);
  for (const auto& [dtype, want] : measured) {
    const auto payload = LeastErrorEncoder(dtype)(*AsFloatRows(source), {}, one);
    ASSERT_TRUE(payload) << DTypeName(dtype);
    ASSERT_TRUE(CheckPayload(dtype, shape, *payload));
    EXPECT_NEAR(RelativeError(MustDequantize(OwnedTensor(dtype, shape, *payload)), values), want, 0.03 * want)
        << DTypeName(dtype);
    EXPECT_EQ(*LeastErrorEncoder(dtype)(*AsFloatRows(source), {}, three), *payload) << DTypeName(dtype);
  }
  EXPECT_EQ(LeastErrorEncoder(DType::kQ8Row), nullptr);
}

TEST(Properties, LeastErrorEncodersAreNeverWorseThanTheStandard) {
  EXPECT_TRUE(rc::check([] {
    const auto rows = *rc::gen::inRange<int64_t>(1, 6);
    const auto cols = 32 * *rc::gen::inRange<int64_t>(1, 5);
    const Shape shape = {rows, cols};
    const TensorView source = F32Tensor(shape, HardRows(rows, cols, *rc::gen::arbitrary<uint32_t>()));
    const std::vector<float> values = MustDequantize(source);
    ThreadPool pool(1);
    for (const DType dtype : {DType::kQ4Block, DType::kQ4Tiled, DType::kVbit, DType::kVbitRo}) {
      const auto error = [&](const ByteVector& payload) {
        const auto got = MustDequantize(OwnedTensor(dtype, shape, payload));
        double sum = 0;
        for (size_t i = 0; i < got.size(); ++i) sum += std::pow(double{got[i]} - values[i], 2);
        return sum;
      };
      const auto searched = LeastErrorEncoder(dtype)(*AsFloatRows(source), {}, pool);
      RC_ASSERT(searched.has_value());
      RC_ASSERT(error(*searched) <= error(MustEncode(*FindEncoding(dtype), source)) * 1.0001 + 1e-30);
    }
    const auto ladder = LeastErrorEncoder(DType::kQ4tp)(*AsFloatRows(source), {}, pool);
    RC_ASSERT(ladder.has_value());
    for (const float value : MustDequantize(OwnedTensor(DType::kQ4tp, shape, *ladder)))
      RC_ASSERT(std::isfinite(value));
  }));
}

TEST(Properties, OutliersAreKeptVerbatim) {
  std::vector<float> values = GaussianRows(8, 64, 2);
  values[100] = 3.5f;
  values[400] = -7.25f;
  for (const DType dtype : {DType::kQ1s, DType::kQ1t}) {
    EncodeOptions options;
    options.outlier_fraction = 2.0 / 512;
    const auto got = MustDequantize(
        OwnedTensor(dtype, {8, 64}, MustEncode(*FindEncoding(dtype), F32Tensor({8, 64}, values), options)));
    EXPECT_EQ(got[100], 3.5f);
    EXPECT_EQ(got[400], -7.25f);
  }
}

TEST(Properties, TernaryOutliersAreNeverWeightsThatNothingReaches) {
  EXPECT_TRUE(rc::check([] {
    const auto rows = *rc::gen::inRange<int64_t>(1, 6);
    const auto cols = 32 * *rc::gen::inRange<int64_t>(1, 5);
    const auto seed = *rc::gen::arbitrary<uint32_t>();
    const Shape shape = {rows, cols};
    const std::vector<float> values = HardRows(rows, cols, seed);
    std::vector<float> importance(static_cast<size_t>(cols));  // most columns are never used; perhaps none is
    for (size_t i = 0; i < importance.size(); ++i)
      importance[i] = (i * 7 + seed) % 11 < seed % 4 ? 0.25f : 0.0f;
    EncodeOptions options;
    options.outlier_fraction = 0.2;
    options.column_mean_square = importance;
    const Encoding& encoding = *FindEncoding(DType::kQ1t);
    const ByteVector payload = MustEncode(encoding, F32Tensor(shape, values), options);
    const std::byte* row_ptr = payload.data() + rows * cols / 32 * 9;
    const std::byte* entry = row_ptr + 4 * (rows + 1);
    for (int64_t row = 0; row < rows; ++row) {
      for (auto i = LoadLe<uint32_t>(row_ptr + 4 * row); i < LoadLe<uint32_t>(row_ptr + 4 * (row + 1));
           ++i, entry += 4) {
        const auto column = LoadLe<uint16_t>(entry);
        RC_ASSERT(importance[column] > 0.0f);
        RC_ASSERT(values[static_cast<size_t>(row * cols + column)] != 0.0f);
      }
    }
    // Importance is relative: four times as much of it everywhere changes no byte.
    for (float& value : importance) value *= 4.0f;
    RC_ASSERT(MustEncode(encoding, F32Tensor(shape, values), options) == payload);
    // None at all leaves the plain choice: no correction, and every group decodes to within its mean.
    std::fill(importance.begin(), importance.end(), 0.0f);
    const auto plain = MustDequantize(
        OwnedTensor(DType::kQ1t, shape, MustEncode(encoding, F32Tensor(shape, values), options)));
    for (size_t group = 0; group < values.size(); group += 32) {
      double mean = 0;
      for (size_t i = group; i < group + 32; ++i) mean += std::fabs(values[i]) / 32.0;
      for (size_t i = group; i < group + 32; ++i)
        RC_ASSERT(std::fabs(plain[i]) <= std::max(mean * 1.001, 0x1p-14));
    }
  }));
}

TEST(Properties, ColumnStatisticsMoveTernaryErrorsToUnusedColumns) {
  const Shape shape = {32, 64};
  const std::vector<float> values = GaussianRows(32, 64, 4);
  std::vector<float> importance(64, 1e-4f);
  for (size_t i = 0; i < 64; i += 4) importance[i] = 1.0f;
  const auto weighted_error = [&](const EncodeOptions& options) {
    const auto got = MustDequantize(OwnedTensor(
        DType::kQ1t, shape, MustEncode(*FindEncoding(DType::kQ1t), F32Tensor(shape, values), options)));
    double error = 0;
    for (size_t i = 0; i < values.size(); ++i)
      error += importance[i % 64] * std::pow(double{got[i]} - values[i], 2);
    return error;
  };
  EncodeOptions weighed;
  weighed.column_mean_square = importance;
  EXPECT_LT(weighted_error(weighed), 0.9 * weighted_error({}));
}

}  // namespace
}  // namespace cmforge
