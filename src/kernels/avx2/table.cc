// The AVX2 table.
#include "kernels/avx2/avx2.h"
#include "kernels/avx2/integer.h"

namespace cmforge {
namespace {

ProductFn LiveProduct(const WeightLayout& w, int64_t) {
  switch (w.dtype) {
    case DType::kQ8Row:
    case DType::kQ8TwoField:
      return avx2::Q8LiveProduct;
    case DType::kQ4Block:
      return avx2::Q4BlockLiveProduct;
    case DType::kQ4Tiled:
      return avx2::Q4TiledLiveProduct;
    case DType::kQ4tp:
      return avx2::Q4tpLiveProduct;
    case DType::kQ2tp:
      return avx2::Q2tpLiveProduct;
    case DType::kQ1:
    case DType::kQ1s:
      return avx2::Q1LiveProduct;
    case DType::kQ1t:
      return avx2::Q1tLiveProduct;
    default:
      return nullptr;
  }
}

int64_t ScratchBytes(const WeightLayout& w, int64_t tokens, bool is_exact) {
  if (is_exact) return avx2::FloatScratchBytes(w);
  return tokens < kBlockTokens ? 0 : BlockScratchBytes(w.groups, ArrangementOf(w.dtype).is_wide);
}

int64_t RowGrain(const WeightLayout&, int64_t tokens, bool is_exact) {
  return is_exact || tokens < kBlockTokens ? 4 : avx2::kTileRows;
}

}  // namespace

constinit const KernelTable kAvx2Table = {
    .isa = Isa::kAvx2,
    .quantize = avx2::QuantizeRow,
    .integer = {nullptr, nullptr, nullptr, avx2::Q8Product, avx2::Q4BlockProduct, nullptr, nullptr, nullptr,
                avx2::VbitProduct, avx2::Q8Product, avx2::VbitProduct, avx2::Q4TiledProduct, avx2::Q1Product,
                avx2::Q1Product, avx2::Q1tProduct, avx2::Q4tpProduct, avx2::Q2tpProduct},
    .exact = avx2::FloatProduct,
    .live = LiveProduct,
    .arranged_bytes = avx2::ArrangedBytes,
    .arrange = avx2::Arrange,
    .scratch_bytes = ScratchBytes,
    .row_grain = RowGrain,
};

}  // namespace cmforge
