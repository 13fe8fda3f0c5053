// Integer products with the dot product of signed bytes, and the table.
namespace cmforge {
namespace {
constexpr int kDotTokens = 4;
}  // namespace
}  // namespace cmforge

// The first tells the second that vectors unpack.
// clang-format off
#include "kernels/neon/unpack.h"
#include "kernels/neon/dot_row.h"
// clang-format on

namespace cmforge {
namespace {

int64_t ScratchBytes(const WeightLayout& w, int64_t, bool is_exact) {
  return is_exact ? neon::FloatScratchBytes(w) : IntegerScratchBytes(w);
}

}  // namespace

const KernelTable kNeonTable = {
    .isa = Isa::kNeon,
    .quantize = neon::QuantizeRow,
    .integer = {nullptr, nullptr, nullptr, IntegerProduct, IntegerProduct, nullptr, nullptr, nullptr,
                IntegerProduct, IntegerProduct, IntegerProduct, IntegerProduct, IntegerProduct,
                IntegerProduct, IntegerProduct, IntegerProduct, IntegerProduct},
    .exact = neon::FloatProduct,
    .live = LiveProduct,
    .arranged_bytes = ArrangedBytes,
    .arrange = Arrange,
    .scratch_bytes = ScratchBytes,
    .row_grain = RowGrain,
};

}  // namespace cmforge
