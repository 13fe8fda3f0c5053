// The AVX-512 table: VNNI integer products and 512-bit float products.
#include "kernels/avx512/integer.h"

namespace cmforge {
namespace {

int64_t ScratchBytes(const WeightLayout& w, int64_t tokens, bool is_exact) {
  return is_exact                ? avx512::FloatScratchBytes(w)
         : tokens < kBlockTokens ? 0
                                 : BlockScratchBytes(w.groups, tokens);
}

int64_t RowGrain(const WeightLayout&, int64_t tokens, bool is_exact) {
  if (is_exact) return 4;
  return tokens < kBlockTokens ? 1 : avx512::kTileRows;
}

}  // namespace

const KernelTable kAvx512Table = {
    .isa = Isa::kAvx512,
    .quantize = avx512::QuantizeRow,
    .integer = {nullptr, nullptr, nullptr, avx512::Q8Product, avx512::Q4BlockProduct, nullptr, nullptr,
                nullptr, avx512::VbitProduct, avx512::Q8Product, avx512::VbitProduct, avx512::Q4TiledProduct,
                avx512::Q1Product, avx512::Q1Product, avx512::Q1tProduct, avx512::Q4tpProduct,
                avx512::Q2tpProduct},
    .exact = avx512::FloatProduct,
    .live = avx512::LiveProduct,
    .arranged_bytes = avx512::ArrangedBytes,
    .arrange = avx512::Arrange,
    .scratch_bytes = ScratchBytes,
    .row_grain = RowGrain,
};

}  // namespace cmforge
