// q8_row and q8_2f: 32 signed bytes a group.
#include "kernels/avx2/integer.h"

namespace cmforge {
namespace {

template <bool kLive>
class Q8 : public GroupRow<32, kLive> {
 public:
  static constexpr Order kOrder = Order::kHalves;
  static constexpr bool kHasGroupScales = false, kIsWide = true;
  static constexpr int32_t kZero = 0;

  using GroupRow<32, kLive>::GroupRow;

  CMFORGE_INLINE void Codes(const std::byte* at, __m256i (&first)[4], __m256i (&second)[4]) const {
    for (int s = 0; s < 4; ++s) {
      const std::byte *a = this->Group(at, 2 * s), *b = this->Group(at, 2 * s + 1);
      first[s] = Lanes(Load16(a), Load16(b));
      second[s] = Lanes(Load16(a + 16), Load16(b + 16));
    }
  }
};

}  // namespace

CMFORGE_PRODUCT(avx2::Q8Product) {
  IntegerProduct<DType::kQ8Row, Q8<false>>(w, row_begin, row_end, x, out, out_stride, scratch);
}
CMFORGE_PRODUCT(avx2::Q8LiveProduct) {
  IntegerProduct<DType::kQ8Row, Q8<true>>(w, row_begin, row_end, x, out, out_stride, scratch);
}

}  // namespace cmforge
