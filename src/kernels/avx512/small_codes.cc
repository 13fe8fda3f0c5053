// q1, q1s, q1t and q2tp: one bit, three levels or two bits a weight. A permutation gives every eight weights
// the bytes that hold their bits, a multishift brings each weight's bits down.
#include "kernels/avx512/integer.h"
#include "kernels/avx512/scales.h"

namespace cmforge {
namespace {

// What each row's class below has in common: `kStep` bytes a step of four groups.
template <int64_t kStep>
class SmallCodes : public PlainRows {
 public:
  static constexpr bool kIsInterleaved = false;
  static constexpr bool kHasGroupScales = true;

  SmallCodes(const WeightLayout& w, const int64_t (&rows)[4])
      : PlainRows(w, rows), full_(w.groups / 4), tail_bytes_(w.groups % 4 * (kStep / 4)) {}

  [[nodiscard]] int64_t full_steps() const { return full_; }
  CMFORGE_INLINE void Prefetch(int r, int64_t block) const { PrefetchLine(row_[r] + ahead_ + block * kStep); }

 protected:
  template <bool kIsTail>
  CMFORGE_INLINE __m512i Load(int r, int64_t block) const {
    return LoadBytes(row_[r] + block * kStep, LowBytes(kIsTail ? tail_bytes_ : kStep));
  }

  int64_t full_, tail_bytes_;
};

// Tiles of [f16 scale][4 bytes of bits]; codes 0 and 2.
class Q1 : public SmallCodes<24> {
 public:
  static constexpr int32_t kZero = 1;

  Q1(const WeightLayout& w, const int64_t (&rows)[4], float*) : SmallCodes(w, rows) {}

  template <bool kIsTail>
  CMFORGE_INLINE void Codes(int r, int64_t block, __m512i& first, __m512i& second) const {
    alignas(64) static constexpr Bytes64 kPlace = [] {  // eight weights: their byte, eight times
      Bytes64 place{};
      for (int i = 0; i < 64; ++i) place.at[i] = static_cast<uint8_t>(6 * (i / 16) + 2 + i / 8 % 2);
      return place;
    }();
    const __m512i bytes = Load<kIsTail>(r, block), place = _mm512_load_si512(kPlace.at);
    const __m512i shifts = _mm512_set1_epi64(0x060504030201003F), bit = _mm512_set1_epi8(2);
    const __m512i low = _mm512_permutexvar_epi8(place, bytes);
    const __m512i high = _mm512_permutexvar_epi8(_mm512_add_epi8(place, bit), bytes);
    first = _mm512_and_si512(_mm512_multishift_epi64_epi8(shifts, low), bit);
    second = _mm512_and_si512(_mm512_multishift_epi64_epi8(shifts, high), bit);
  }

  template <bool kIsTail>
  CMFORGE_INLINE __m512 Scales(int64_t block) const {
    return TileScales<kIsTail, 6>(row_, block * 24, tail_bytes_);
  }
};

// Eight bytes a group, codes 0, 2, 4, 6 from 1.5 times two; ladder scales.
class Q2tp : public SmallCodes<32> {
 public:
  static constexpr int32_t kZero = 3;

  Q2tp(const WeightLayout& w, const int64_t (&rows)[4], float* scales)
      : SmallCodes(w, rows), scales_(scales) {
    LadderScales<true>(w, rows, scales);
  }

  template <bool kIsTail>
  CMFORGE_INLINE void Codes(int r, int64_t block, __m512i& first, __m512i& second) const {
    alignas(64) static constexpr Bytes64 kPlace = [] {  // eight weights: their two bytes, four times
      Bytes64 place{};
      for (int i = 0; i < 64; ++i) place.at[i] = static_cast<uint8_t>(8 * (i / 16) + 2 * (i / 8 % 2) + i % 2);
      return place;
    }();
    const __m512i bytes = Load<kIsTail>(r, block), place = _mm512_load_si512(kPlace.at);
    const __m512i shifts = _mm512_set1_epi64(0x0D0B09070503013F), pair = _mm512_set1_epi8(6);
    const __m512i low = _mm512_permutexvar_epi8(place, bytes);
    const __m512i high = _mm512_permutexvar_epi8(_mm512_add_epi8(place, _mm512_set1_epi8(4)), bytes);
    first = _mm512_and_si512(_mm512_multishift_epi64_epi8(shifts, low), pair);
    second = _mm512_and_si512(_mm512_multishift_epi64_epi8(shifts, high), pair);
  }

  template <bool kIsTail>
  CMFORGE_INLINE __m512 Scales(int64_t block) const {
    return _mm512_load_ps(scales_ + 16 * block);
  }

 private:
  const float* scales_;
};

// Tiles of [f16 scale][7 bytes of five base-3 digits]. Digit i of v is floor(3 frac(v / 3^(i+1))): the
// fraction comes as the low 16 bits of v * ceil(2^16 / 3^(i+1)), too great by less than 1/243, so the floor
// is right.
class Q1t : public SmallCodes<36> {
 public:
  static constexpr int32_t kZero = 1;

  Q1t(const WeightLayout& w, const int64_t (&rows)[4], float*) : SmallCodes(w, rows) {}

  template <bool kIsTail>
  CMFORGE_INLINE void Codes(int r, int64_t block, __m512i& first, __m512i& second) const {
    const __m512i bytes = Load<kIsTail>(r, block);
    // Digits 0, 1, 2 stand for 0, +1, -1.
    const __m512i of_digit =
        _mm512_broadcast_i32x4(_mm_setr_epi8(1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
    first = _mm512_shuffle_epi8(of_digit, _mm512_packus_epi16(Digits<0>(bytes), Digits<8>(bytes)));
    second = _mm512_shuffle_epi8(of_digit, _mm512_packus_epi16(Digits<16>(bytes), Digits<24>(bytes)));
  }

  template <bool kIsTail>
  CMFORGE_INLINE __m512 Scales(int64_t block) const {
    return TileScales<kIsTail, 9>(row_, block * 36, tail_bytes_);
  }

 private:
  struct Words32 {
    uint16_t at[32];
  };

  /// Eight weights of each group from kFirst on, as 16-bit words in the group's lane.
  template <int kFirst>
  CMFORGE_INLINE __m512i Digits(__m512i bytes) const {
    alignas(64) static constexpr Bytes64 kPlace = [] {
      Bytes64 place{};
      for (int i = 0; i < 64; ++i)
        place.at[i] = static_cast<uint8_t>(9 * (i / 16) + 2 + (kFirst + i / 2 % 8) / 5);
      return place;
    }();
    alignas(64) static constexpr Words32 kFactor = [] {
      constexpr uint16_t kOf[5] = {21846, 7282, 2428, 810, 270};
      Words32 factor{};
      for (int i = 0; i < 32; ++i) factor.at[i] = kOf[(kFirst + i % 8) % 5];
      return factor;
    }();
    const __m512i value =
        _mm512_maskz_permutexvar_epi8(0x5555555555555555, _mm512_load_si512(kPlace.at), bytes);
    const __m512i fraction = _mm512_mullo_epi16(value, _mm512_load_si512(kFactor.at));
    return _mm512_mulhi_epu16(fraction, _mm512_set1_epi16(3));
  }
};

}  // namespace

CMFORGE_PRODUCT(avx512::Q1Product) { IntegerProduct<Q1>(w, row_begin, row_end, x, out, out_stride, scratch); }
CMFORGE_PRODUCT(avx512::Q1tProduct) {
  IntegerProduct<Q1t>(w, row_begin, row_end, x, out, out_stride, scratch);
}
CMFORGE_PRODUCT(avx512::Q2tpProduct) {
  IntegerProduct<Q2tp>(w, row_begin, row_end, x, out, out_stride, scratch);
}

}  // namespace cmforge
