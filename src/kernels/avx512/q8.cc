// q8_row and q8_2f: 128 bytes a step and row. The sign bit is flipped to make codes unsigned.
#include "kernels/avx512/integer.h"

namespace cmforge {
namespace {

class Q8 : public PlainRows {
 public:
  static constexpr bool kIsInterleaved = false;
  static constexpr bool kHasGroupScales = false;
  static constexpr int32_t kZero = 128;

  Q8(const WeightLayout& w, const int64_t (&rows)[4], float*)
      : PlainRows(w, rows), full_(w.cols / kBlockColumns), tail_bytes_(w.cols % kBlockColumns) {}

  [[nodiscard]] int64_t full_steps() const { return full_; }

  template <bool kIsTail>
  CMFORGE_INLINE void Codes(int r, int64_t block, __m512i& first, __m512i& second) const {
    const std::byte* at = row_[r] + block * kBlockColumns;
    const __m512i a = kIsTail ? LoadBytes(at, LowBytes(tail_bytes_)) : LoadBytes(at);
    const __m512i b = kIsTail ? LoadBytes(at + 64, LowBytes(tail_bytes_ - 64)) : LoadBytes(at + 64);
    const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
    first = _mm512_xor_si512(_mm512_shuffle_i32x4(a, b, 0x88), sign);
    second = _mm512_xor_si512(_mm512_shuffle_i32x4(a, b, 0xDD), sign);
  }

  template <bool kIsTail>
  CMFORGE_INLINE __m512 Scales(int64_t) const {
    return _mm512_setzero_ps();
  }

  CMFORGE_INLINE void Prefetch(int r, int64_t block) const {
    PrefetchLine(row_[r] + ahead_ + block * kBlockColumns);
    PrefetchLine(row_[r] + ahead_ + block * kBlockColumns + 64);
  }

 private:
  int64_t full_, tail_bytes_;
};

}  // namespace

CMFORGE_PRODUCT(avx512::Q8Product) { IntegerProduct<Q8>(w, row_begin, row_end, x, out, out_stride, scratch); }

}  // namespace cmforge
