// Moving payloads between encodings that hold the same numbers.
#include "quant/relayout.h"

#include "quant/cases.h"

namespace cmforge {
namespace {

TEST(Relayout, KeepsEveryNumberAndEqualsTheEncoder) {
  const std::pair<DType, DType> pairs[] = {{DType::kQ4Block, DType::kQ4Tiled},
                                           {DType::kQ4Tiled, DType::kQ4Block},
                                           {DType::kVbit, DType::kVbitRo},
                                           {DType::kVbitRo, DType::kVbit}};
  for (const Shape& shape : {Shape{1, 32}, Shape{7, 96}, Shape{33, 64}}) {
    std::vector<float> values = GaussianRows(shape[0], shape[1], 17);
    for (size_t i = 0; i < values.size(); i += 3)
      values[i] *= static_cast<float>(i % 29);  // rows of many widths
    for (const auto& [from, to] : pairs) {
      const TensorView tensor =
          OwnedTensor(from, shape, MustEncode(*FindEncoding(from), F32Tensor(shape, values)));
      const auto moved = Relayout(tensor, to);
      ASSERT_TRUE(moved) << DTypeName(from);
      EXPECT_EQ(*moved, MustEncode(*FindEncoding(to), F32Tensor(shape, values))) << DTypeName(from);
      EXPECT_TRUE(CheckPayload(to, shape, *moved));
      EXPECT_EQ(MustDequantize(OwnedTensor(to, shape, *moved)), MustDequantize(tensor));
    }
  }
}

TEST(Relayout, KeepsCodesThatNoEncoderWrites) {
  // Code 0 is -8 times the scale: decoding and encoding again would choose another scale.
  ByteVector bytes(18, std::byte{0});
  StoreLe(bytes.data() + 16, F32ToF16(0.5f));
  const TensorView block = OwnedTensor(DType::kQ4Block, {1, 32}, bytes);
  const auto tiled = Relayout(block, DType::kQ4Tiled);
  ASSERT_TRUE(tiled);
  EXPECT_EQ(MustDequantize(OwnedTensor(DType::kQ4Tiled, {1, 32}, *tiled)), std::vector<float>(32, -4.0f));
}

TEST(Relayout, IsNothingForOtherPairsAndShapes) {
  const TensorView odd =
      OwnedTensor(DType::kQ4Block, {2, 44},
                  MustEncode(*FindEncoding(DType::kQ4Block), F32Tensor({2, 44}, GaussianRows(2, 44, 1))));
  EXPECT_FALSE(Relayout(odd, DType::kQ4Tiled));
  const TensorView even = F32Tensor({2, 32}, GaussianRows(2, 32, 1));
  for (const Encoding* encoding : AllEncodings())
    EXPECT_FALSE(Relayout(even, encoding->dtype)) << encoding->name;
  EXPECT_FALSE(Relayout(even, DType::kMix84));
}

}  // namespace
}  // namespace cmforge
