// q8_row and q8_2f: a unit is 512 bytes. The sign bit is flipped to make codes unsigned.
#include "kernels/avx512/integer.h"

namespace cmforge {
namespace {

class Q8 : public PlainRow<512> {
 public:
  static constexpr bool kIsInterleaved = false;
  static constexpr bool kHasGroupScales = false;
  static constexpr bool kPrefetches = false;
  static constexpr int32_t kZero = 128;

  using PlainRow::PlainRow;

  template <int kStep>
  CMFORGE_INLINE void Step(const std::byte* at, __m512i& first, __m512i& second) const {
    const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
    const __m512i a = LoadBytes(at + 128 * kStep), b = LoadBytes(at + 128 * kStep + 64);
    first = _mm512_xor_si512(_mm512_shuffle_i32x4(a, b, 0x88), sign);
    second = _mm512_xor_si512(_mm512_shuffle_i32x4(a, b, 0xDD), sign);
  }
};

}  // namespace

CMFORGE_PRODUCT(avx512::Q8Product) {
  IntegerProduct<DType::kQ8Row, Q8>(w, row_begin, row_end, x, out, out_stride, scratch);
}

}  // namespace cmforge
