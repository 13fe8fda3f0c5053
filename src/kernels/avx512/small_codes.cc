// q1, q1s, q1t and q2tp: one bit, three levels or two bits a weight. A permutation gives every eight weights
// the bytes that hold their bits, a multishift brings each weight's bits down.
#include "kernels/avx512/integer.h"
#include "kernels/avx512/scales.h"

namespace cmforge {
namespace {

// Tiles of [f16 scale][4 bytes of bits], 24 bytes a step; codes 0 and 2.
class Q1 : public PlainRow<96> {
 public:
  static constexpr bool kIsInterleaved = false;
  static constexpr bool kHasGroupScales = true;
  static constexpr bool kPrefetches = true;
  static constexpr int32_t kZero = 1;

  using PlainRow::PlainRow;

  CMFORGE_INLINE void Codes(const std::byte* at, __m512i (&first)[4], __m512i (&second)[4]) const {
    alignas(64) static constexpr Bytes64 kPlace = [] {  // eight weights: their byte, eight times
      Bytes64 place{};
      for (int i = 0; i < 64; ++i) place.at[i] = static_cast<uint8_t>(6 * (i / 16) + 2 + i / 8 % 2);
      return place;
    }();
    const __m512i shifts = _mm512_set1_epi64(0x060504030201003F), bit = _mm512_set1_epi8(2);
    // Steps 0 and 1 lie in the first 64 bytes, steps 2 and 3 in the last 64 of the unit's 96.
    const __m512i halves[2] = {LoadBytes(at), LoadBytes(at + 32)};
    for (int s = 0; s < 4; ++s) {
      const int skip = 24 * s - 32 * (s / 2);
      const __m512i place =
          _mm512_add_epi8(_mm512_load_si512(kPlace.at), _mm512_set1_epi8(static_cast<char>(skip)));
      const __m512i low = _mm512_permutexvar_epi8(place, halves[s / 2]);
      const __m512i high = _mm512_permutexvar_epi8(_mm512_add_epi8(place, bit), halves[s / 2]);
      first[s] = _mm512_and_si512(_mm512_multishift_epi64_epi8(shifts, low), bit);
      second[s] = _mm512_and_si512(_mm512_multishift_epi64_epi8(shifts, high), bit);
    }
  }

  CMFORGE_INLINE __m512 Scales(const std::byte* at, int64_t) const { return TileScales<6>(at); }
};

// Eight bytes a group, codes 0, 2, 4, 6 from 1.5 times two; ladder scales.
class Q2tp : public PlainRow<128> {
 public:
  static constexpr bool kIsInterleaved = false;
  static constexpr bool kHasGroupScales = true;
  static constexpr bool kPrefetches = false;
  static constexpr int32_t kZero = 3;

  explicit Q2tp(const WeightLayout& w) : PlainRow(w), ladders_(w) {}

  CMFORGE_INLINE void Start(int64_t row) const {
    ladders_.Start(row);
    Prefetch(w_.codes + row * w_.code_stride, kPrefetchAhead);
  }
  CMFORGE_INLINE void Begin(int64_t row, int64_t rows) { ladders_.Begin(row, rows); }
  CMFORGE_INLINE void SetRow(int64_t row) {
    PlainRow::SetRow(row);
    ladders_.SetRow(row);
  }

  CMFORGE_INLINE void Codes(const std::byte* at, __m512i (&first)[4], __m512i (&second)[4]) const {
    alignas(64) static constexpr Bytes64 kPlace = [] {  // eight weights: their two bytes, four times
      Bytes64 place{};
      for (int i = 0; i < 64; ++i) place.at[i] = static_cast<uint8_t>(8 * (i / 16) + 2 * (i / 8 % 2) + i % 2);
      return place;
    }();
    const __m512i shifts = _mm512_set1_epi64(0x0D0B09070503013F), pair = _mm512_set1_epi8(6);
    const __m512i place = _mm512_load_si512(kPlace.at);
    for (int s = 0; s < 4; ++s) {
      const __m512i bytes =
          _mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at + 32 * s)));
      const __m512i low = _mm512_permutexvar_epi8(place, bytes);
      const __m512i high = _mm512_permutexvar_epi8(_mm512_add_epi8(place, _mm512_set1_epi8(4)), bytes);
      first[s] = _mm512_and_si512(_mm512_multishift_epi64_epi8(shifts, low), pair);
      second[s] = _mm512_and_si512(_mm512_multishift_epi64_epi8(shifts, high), pair);
    }
  }

  CMFORGE_INLINE __m512 Scales(const std::byte*, int64_t unit) const { return ladders_.Scales(unit); }

 private:
  Ladders<true> ladders_;
};

// Tiles of [f16 scale][7 bytes of five base-3 digits], 36 bytes a step. Digit i of v is floor(3 frac(v /
// 3^(i+1))): the fraction comes as the low 16 bits of v * ceil(2^16 / 3^(i+1)), too great by less than 1/243,
// so the floor is right.
class Q1t : public PlainRow<144> {
 public:
  static constexpr bool kIsInterleaved = false;
  static constexpr bool kHasGroupScales = true;
  static constexpr bool kPrefetches = true;
  static constexpr int32_t kZero = 1;

  using PlainRow::PlainRow;

  CMFORGE_INLINE void Codes(const std::byte* at, __m512i (&first)[4], __m512i (&second)[4]) const {
    // Digits 0, 1, 2 stand for 0, +1, -1.
    const __m512i of_digit =
        _mm512_broadcast_i32x4(_mm_setr_epi8(1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
    for (int s = 0; s < 4; ++s) {
      // The last step is the end of a vector that begins earlier, so that nothing behind the unit is read.
      const __m512i bytes =
          s < 3 ? LoadBytes(at + 36 * s) : _mm512_maskz_compress_epi32(0xFF80, LoadBytes(at + 36 * s - 28));
      first[s] = _mm512_shuffle_epi8(of_digit, _mm512_packus_epi16(Digits<0>(bytes), Digits<8>(bytes)));
      second[s] = _mm512_shuffle_epi8(of_digit, _mm512_packus_epi16(Digits<16>(bytes), Digits<24>(bytes)));
    }
  }

  CMFORGE_INLINE __m512 Scales(const std::byte* at, int64_t) const { return TileScales<9>(at); }

 private:
  struct Words32 {
    uint16_t at[32];
  };

  /// Eight weights of each group from kFirst on, as 16-bit words in the group's lane.
  template <int kFirst>
  static CMFORGE_INLINE __m512i Digits(__m512i bytes) {
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

CMFORGE_PRODUCT(avx512::Q1Product) {
  IntegerProduct<DType::kQ1, Q1>(w, row_begin, row_end, x, out, out_stride, scratch);
}
CMFORGE_PRODUCT(avx512::Q1tProduct) {
  IntegerProduct<DType::kQ1t, Q1t>(w, row_begin, row_end, x, out, out_stride, scratch);
}
CMFORGE_PRODUCT(avx512::Q2tpProduct) {
  IntegerProduct<DType::kQ2tp, Q2tp>(w, row_begin, row_end, x, out, out_stride, scratch);
}

}  // namespace cmforge
