// A slice holds the very values of what it was cut from.
#include "quant/slice.h"

#include "quant/cases.h"

namespace cmforge {
namespace {

TEST(SliceMatrix, KeepsEveryBitOfWhatItKeepsInEveryEncodingThatCanBeCut) {
  ThreadPool pool(1);
  std::mt19937 rng(3);
  std::normal_distribution<float> normal;
  const int64_t rows = 96, cols = 160;
  std::vector<float> values(static_cast<size_t>(rows * cols));
  for (float& v : values) v = normal(rng);
  const TensorView source = F32Tensor({rows, cols}, values);
  const std::vector<int32_t> row_groups = {0, 2}, column_groups = {1, 2, 4};
  const std::vector<int64_t> zero_rows = {5, 64};
  int cut = 0;
  for (const Encoding* encoding : AllEncodings()) {
    const MatrixSlice slice{row_groups, column_groups, zero_rows};
    if (!encoding->reason_against(source.shape).empty() || !CanSlice(encoding->dtype, source.shape, slice))
      continue;
    SCOPED_TRACE(encoding->name);
    const auto payload = encoding->encode(*AsFloatRows(source), {}, pool);
    ASSERT_TRUE(payload);
    const TensorView whole = OwnedTensor(encoding->dtype, source.shape, *payload);
    const Shape shape = SlicedShape(source.shape, slice);
    ASSERT_EQ(shape, (Shape{64, 96}));
    ByteVector out(encoding->payload_size(shape).value());
    SliceMatrix(whole, slice, out);
    ASSERT_TRUE(CheckPayload(encoding->dtype, shape, out));
    const auto all = Dequantize(whole), part = Dequantize(OwnedTensor(encoding->dtype, shape, out));
    ASSERT_TRUE(all && part);
    for (int64_t r = 0; r < 64; ++r) {
      const int64_t row = row_groups[static_cast<size_t>(r / 32)] * 32 + r % 32;
      for (int64_t c = 0; c < 96; ++c) {
        const int64_t column = column_groups[static_cast<size_t>(c / 32)] * 32 + c % 32;
        const float want = row == 5 || row == 64 ? 0.0f : (*all)[static_cast<size_t>(row * cols + column)];
        ASSERT_EQ((*part)[static_cast<size_t>(r * 96 + c)], want) << row << " " << column;
      }
    }
    ++cut;
  }
  EXPECT_EQ(cut, 9) << "f32, f16, bf16, q8_row, q8_2f, q4_block, q4_tiled, q4tp and q1";
}

TEST(SliceMatrix, RefusesWhatHasNoGroupsAtFixedPlaces) {
  const Shape shape = {64, 64}, odd = {64, 44};
  for (const DType dtype : {DType::kVbit, DType::kVbitRo, DType::kQ1s, DType::kQ1t, DType::kU8})
    EXPECT_FALSE(CanSlice(dtype, shape, {})) << DTypeName(dtype);
  EXPECT_FALSE(CanSlice(DType::kQ8Row, odd, {}));
}

}  // namespace
}  // namespace cmforge
