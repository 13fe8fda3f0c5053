// The integer encodings' entries of the table, and what their files share.
#pragma once

#include "kernels/avx512/blocks.h"
#include "kernels/avx512/rows.h"

namespace cmforge {
namespace avx512 {

#define CMFORGE_PRODUCT(name)                                                                          \
  void name(const WeightLayout& w, int64_t row_begin, int64_t row_end, const TokenRows& x, float* out, \
            int64_t out_stride, std::byte* scratch)

CMFORGE_PRODUCT(Q8Product);
CMFORGE_PRODUCT(Q4BlockProduct);
CMFORGE_PRODUCT(Q4TiledProduct);
CMFORGE_PRODUCT(Q4tpProduct);
CMFORGE_PRODUCT(Q2tpProduct);
CMFORGE_PRODUCT(Q1Product);
CMFORGE_PRODUCT(Q1tProduct);
CMFORGE_PRODUCT(VbitProduct);
CMFORGE_PRODUCT(FloatProduct);

/// KernelTable::live.
ProductFn LiveProduct(const WeightLayout& w, int64_t tokens);

int64_t ArrangedBytes(const WeightLayout& w, int64_t tokens);
void Arrange(const WeightLayout& w, const TokenRows& x, int64_t begin, int64_t end, std::byte* out);

int64_t FloatScratchBytes(const WeightLayout& w);

void QuantizeRow(const float* x, const std::byte* columns, int64_t cols, int64_t groups, QuantizedGroup* out);

}  // namespace avx512

namespace {

// From this many tokens on, unpacking into a block costs less than it saves.
constexpr int64_t kBlockTokens = 8;

/// How an encoding reads its input.
struct Arrangement {
  bool is_interleaved;
  int32_t zero;  // by row: 1
};
constexpr Arrangement ArrangementOf(DType dtype) {
  switch (dtype) {
    case DType::kQ4Block:
    case DType::kQ4Tiled:
    case DType::kQ4tp:
      return {true, 8};
    case DType::kQ2tp:
      return {false, 3};
    case DType::kQ8Row:
    case DType::kQ8TwoField:
      return {false, 128};
    default:
      return {false, 1};
  }
}

template <DType kDType, class Encoding>
void IntegerProduct(const WeightLayout& w, int64_t row_begin, int64_t row_end, const TokenRows& x, float* out,
                    int64_t out_stride, std::byte* scratch) {
  static_assert(ArrangementOf(kDType).is_interleaved == Encoding::kIsInterleaved);
  static_assert(ArrangementOf(kDType).zero == (Encoding::kZero == kZeroByRow ? 1 : Encoding::kZero));
  if (x.count < kBlockTokens) {
    RowsProduct<Encoding>(w, row_begin, row_end, x, out, out_stride);
  } else {
    BlocksProduct<Encoding>(w, row_begin, row_end, x, out, out_stride, scratch);
  }
}

/// A row of codes at a fixed stride, kBytes a unit.
template <int64_t kBytes>
class PlainRow {
 public:
  explicit PlainRow(const WeightLayout& w) : w_(w) {}

  void Start(int64_t) const {}
  void Begin(int64_t, int64_t) {}
  CMFORGE_INLINE void SetRow(int64_t row) { row_ = w_.codes + row * w_.code_stride; }
  static constexpr int64_t unit_bytes() { return kBytes; }
  CMFORGE_INLINE const std::byte* At(int64_t unit) const { return row_ + unit * kBytes; }

 protected:
  const WeightLayout& w_;
  const std::byte* row_ = nullptr;
};

}  // namespace
}  // namespace cmforge
