// q4_block, q4_tiled and q4tp: 16 bytes a group, even elements in the low halves of the bytes, odd ones in the high
// halves. They differ in where codes and scales lie.
#include "kernels/avx2/integer.h"
#include "kernels/avx2/scales.h"

namespace cmforge {
namespace {

/// kBytes a group, its codes at kCodes of them.
template <int64_t kBytes, int64_t kCodes, bool kLive>
class Nibbles : public GroupRow<kBytes, kLive> {
 public:
  static constexpr Order kOrder = Order::kEvenOdd;
  static constexpr bool kHasGroupScales = true, kIsWide = false;
  static constexpr int32_t kZero = 8;

  using GroupRow<kBytes, kLive>::GroupRow;

  CMFORGE_INLINE void Codes(const std::byte* at, __m256i (&first)[4], __m256i (&second)[4]) const {
    const __m256i low = _mm256_set1_epi8(15);
    for (int s = 0; s < 4; ++s) {
      const __m256i two = !kLive && kBytes == 16 ? Load32(at + 32 * s)
                                                 : Lanes(Load16(this->Group(at, 2 * s) + kCodes),
                                                         Load16(this->Group(at, 2 * s + 1) + kCodes));
      first[s] = _mm256_and_si256(two, low);
      second[s] = _mm256_and_si256(_mm256_srli_epi16(two, 4), low);
    }
  }
};

template <bool kLive>
class Q4Block : public Nibbles<16, 0, kLive> {
  using Base = Nibbles<16, 0, kLive>;

 public:
  using Base::Base;

  CMFORGE_INLINE void SetRow(int64_t row) {
    Base::SetRow(row);
    scales_ = this->w_.scales + 2 * row * (kLive ? this->w_.whole_groups : this->w_.groups);
  }
  template <bool kIsFull>
  CMFORGE_INLINE __m256 Scales(const std::byte* at, int64_t unit) const {
    if constexpr (kLive) return ScalesAt([&](int i) { return scales_ + 2 * Base::Live(at, i); });
    return PlaneScales<kIsFull>(this->w_, scales_, unit);
  }

 private:
  const std::byte* scales_ = nullptr;
};

template <bool kLive>
class Q4tp : public Nibbles<16, 0, kLive> {
  using Base = Nibbles<16, 0, kLive>;

 public:
  explicit Q4tp(const WeightLayout& w) : Base(w), ladders_(w) {}

  CMFORGE_INLINE void Begin(int64_t row, int64_t rows) { ladders_.Begin(row, rows); }
  CMFORGE_INLINE void SetRow(int64_t row) {
    Base::SetRow(row);
    ladders_.SetRow(row);
  }
  template <bool kIsFull>
  CMFORGE_INLINE __m256 Scales(const std::byte* at, int64_t unit) const {
    if constexpr (kLive) return ladders_.LiveScales(reinterpret_cast<const int32_t*>(at));
    return ladders_.template Scales<kIsFull>(unit);
  }

 private:
  Ladders<false> ladders_;
};

// Tiles of [f16 scale][16 bytes].
template <bool kLive>
class Q4Tiled : public Nibbles<18, 2, kLive> {
  using Base = Nibbles<18, 2, kLive>;

 public:
  using Base::Base;

  template <bool kIsFull>
  CMFORGE_INLINE __m256 Scales(const std::byte* at, int64_t) const {
    if constexpr (kLive) return ScalesAt([&](int i) { return this->GroupAgain(at, i); });
    // Each vector is loaded from where it has group i's scale in that group's word.
    __m128i halves = Load16(at);
    halves = _mm_blend_epi16(halves, Load16(at + 18 * 2 - 2 * 1), 1 << 1);
    halves = _mm_blend_epi16(halves, Load16(at + 18 * 4 - 2 * 2), 1 << 2);
    halves = _mm_blend_epi16(halves, Load16(at + 18 * 6 - 2 * 3), 1 << 3);
    halves = _mm_blend_epi16(halves, Load16(at + 18 * 1 - 2 * 4), 1 << 4);
    halves = _mm_blend_epi16(halves, Load16(at + 18 * 3 - 2 * 5), 1 << 5);
    halves = _mm_blend_epi16(halves, Load16(at + 18 * 5 - 2 * 6), 1 << 6);
    halves = _mm_blend_epi16(halves, Load16(at + 18 * 7 - 2 * 7), 1 << 7);
    return _mm256_cvtph_ps(halves);
  }
};

}  // namespace

CMFORGE_PRODUCT(avx2::Q4BlockProduct) {
  IntegerProduct<DType::kQ4Block, Q4Block<false>>(w, row_begin, row_end, x, out, out_stride, scratch);
}
CMFORGE_PRODUCT(avx2::Q4BlockLiveProduct) {
  IntegerProduct<DType::kQ4Block, Q4Block<true>>(w, row_begin, row_end, x, out, out_stride, scratch);
}
CMFORGE_PRODUCT(avx2::Q4tpProduct) {
  IntegerProduct<DType::kQ4tp, Q4tp<false>>(w, row_begin, row_end, x, out, out_stride, scratch);
}
CMFORGE_PRODUCT(avx2::Q4tpLiveProduct) {
  IntegerProduct<DType::kQ4tp, Q4tp<true>>(w, row_begin, row_end, x, out, out_stride, scratch);
}
CMFORGE_PRODUCT(avx2::Q4TiledProduct) {
  IntegerProduct<DType::kQ4Tiled, Q4Tiled<false>>(w, row_begin, row_end, x, out, out_stride, scratch);
}
CMFORGE_PRODUCT(avx2::Q4TiledLiveProduct) {
  IntegerProduct<DType::kQ4Tiled, Q4Tiled<true>>(w, row_begin, row_end, x, out, out_stride, scratch);
}

}  // namespace cmforge
