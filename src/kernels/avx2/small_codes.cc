// q1, q1s, q1t and q2tp: one bit, three levels or two bits a weight.
#include "kernels/avx2/integer.h"
#include "kernels/avx2/scales.h"

namespace cmforge {
namespace {

// Tiles of [f16 scale][4 bytes of bits]; codes 0 and 2.
template <bool kLive>
class Q1 : public GroupRow<6, kLive> {
 public:
  static constexpr Order kOrder = Order::kHalves;
  static constexpr bool kHasGroupScales = true, kIsWide = false;
  static constexpr int32_t kZero = 1;

  using GroupRow<6, kLive>::GroupRow;

  CMFORGE_INLINE void Codes(const std::byte* at, __m256i (&first)[4], __m256i (&second)[4]) const {
    const __m256i bit = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
    const __m256i bytes_01 = _mm256_broadcastsi128_si256(_mm_set_epi64x(0x0101010101010101, 0));
    const __m256i bytes_23 =
        _mm256_broadcastsi128_si256(_mm_set_epi64x(0x0303030303030303, 0x0202020202020202));
    for (int s = 0; s < 4; ++s) {
      const auto bits = [&](int i) {
        return _mm_cvtsi32_si128(LoadAs<int32_t>(this->Group(at, 2 * s + i) + 2));
      };
      const __m256i two = Lanes(bits(0), bits(1));
      const auto codes = [&](__m256i bytes) {
        const __m256i spread = _mm256_and_si256(_mm256_shuffle_epi8(two, bytes), bit);
        return _mm256_and_si256(_mm256_cmpeq_epi8(spread, bit), _mm256_set1_epi8(2));
      };
      first[s] = codes(bytes_01);
      second[s] = codes(bytes_23);
    }
  }

  template <bool kIsFull>
  CMFORGE_INLINE __m256 Scales(const std::byte* at, int64_t) const {
    return ScalesAt([&](int i) { return this->GroupAgain(at, i); });
  }
};

// Eight bytes a group, codes 0, 2, 4, 6 from 1.5 times two; ladder scales. A byte's four weights go to four places.
template <bool kLive>
class Q2tp : public GroupRow<8, kLive> {
  using Base = GroupRow<8, kLive>;

 public:
  static constexpr Order kOrder = Order::kFours;
  static constexpr bool kHasGroupScales = true, kIsWide = false;
  static constexpr int32_t kZero = 3;

  explicit Q2tp(const WeightLayout& w) : Base(w), ladders_(w) {}

  CMFORGE_INLINE void Begin(int64_t row, int64_t rows) { ladders_.Begin(row, rows); }
  CMFORGE_INLINE void SetRow(int64_t row) {
    Base::SetRow(row);
    ladders_.SetRow(row);
  }

  CMFORGE_INLINE void Codes(const std::byte* at, __m256i (&first)[4], __m256i (&second)[4]) const {
    const __m256i pair = _mm256_set1_epi8(3);
    for (int s = 0; s < 4; ++s) {
      const auto twice = [&](int i) { return _mm_set1_epi64x(LoadAs<int64_t>(this->Group(at, 2 * s + i))); };
      const __m256i two = Lanes(twice(0), twice(1));
      const auto codes = [&](int64_t shift) {
        const __m256i shifts = _mm256_broadcastsi128_si256(_mm_set_epi64x(shift + 2, shift));
        const __m256i code = _mm256_and_si256(_mm256_srlv_epi64(two, shifts), pair);
        return _mm256_add_epi8(code, code);
      };
      first[s] = codes(0);
      second[s] = codes(4);
    }
  }

  template <bool kIsFull>
  CMFORGE_INLINE __m256 Scales(const std::byte* at, int64_t unit) const {
    if constexpr (kLive) return ladders_.LiveScales(reinterpret_cast<const int32_t*>(at));
    return ladders_.template Scales<kIsFull>(unit);
  }

 private:
  Ladders<true> ladders_;
};

struct Words8 {
  uint16_t at[8];
};

// Tiles of [f16 scale][7 bytes of five base-3 digits]. Digit i of v is floor(3 frac(v / 3^(i+1))): the fraction comes
// as the low 16 bits of v * ceil(2^16 / 3^(i+1)), too great by less than 1/243, so the floor is right.
template <bool kLive>
class Q1t : public GroupRow<9, kLive> {
 public:
  static constexpr Order kOrder = Order::kHalves;
  static constexpr bool kHasGroupScales = true, kIsWide = false;
  static constexpr int32_t kZero = 1;

  using GroupRow<9, kLive>::GroupRow;

  CMFORGE_INLINE void Codes(const std::byte* at, __m256i (&first)[4], __m256i (&second)[4]) const {
    // Digits 0, 1, 2 stand for 0, +1, -1.
    const __m256i of_digit =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
    for (int s = 0; s < 4; ++s) {
      const __m256i bytes = Lanes(Load8(this->Group(at, 2 * s) + 1), Load8(this->Group(at, 2 * s + 1) + 1));
      first[s] = _mm256_shuffle_epi8(of_digit, _mm256_packus_epi16(Digits<0>(bytes), Digits<8>(bytes)));
      second[s] = _mm256_shuffle_epi8(of_digit, _mm256_packus_epi16(Digits<16>(bytes), Digits<24>(bytes)));
    }
  }

  template <bool kIsFull>
  CMFORGE_INLINE __m256 Scales(const std::byte* at, int64_t) const {
    return ScalesAt([&](int i) { return this->GroupAgain(at, i); });
  }

 private:
  /// Eight weights of each group from kFirst on, as 16-bit words in the group's lane. The first byte is none of theirs.
  template <int kFirst>
  static CMFORGE_INLINE __m256i Digits(__m256i bytes) {
    alignas(16) static constexpr Words8 kPlace = [] {
      Words8 place{};
      for (int i = 0; i < 8; ++i) place.at[i] = static_cast<uint16_t>(0x8000 | (1 + (kFirst + i) / 5));
      return place;
    }();
    alignas(16) static constexpr Words8 kFactor = [] {
      constexpr uint16_t kOf[5] = {21846, 7282, 2428, 810, 270};
      Words8 factor{};
      for (int i = 0; i < 8; ++i) factor.at[i] = kOf[(kFirst + i) % 5];
      return factor;
    }();
    const __m256i value = _mm256_shuffle_epi8(bytes, _mm256_broadcastsi128_si256(Load16(kPlace.at)));
    const __m256i fraction = _mm256_mullo_epi16(value, _mm256_broadcastsi128_si256(Load16(kFactor.at)));
    return _mm256_mulhi_epu16(fraction, _mm256_set1_epi16(3));
  }
};

}  // namespace

CMFORGE_PRODUCT(avx2::Q1Product) {
  IntegerProduct<DType::kQ1, Q1<false>>(w, row_begin, row_end, x, out, out_stride, scratch);
}
CMFORGE_PRODUCT(avx2::Q1LiveProduct) {
  IntegerProduct<DType::kQ1, Q1<true>>(w, row_begin, row_end, x, out, out_stride, scratch);
}
CMFORGE_PRODUCT(avx2::Q1tProduct) {
  IntegerProduct<DType::kQ1t, Q1t<false>>(w, row_begin, row_end, x, out, out_stride, scratch);
}
CMFORGE_PRODUCT(avx2::Q1tLiveProduct) {
  IntegerProduct<DType::kQ1t, Q1t<true>>(w, row_begin, row_end, x, out, out_stride, scratch);
}
CMFORGE_PRODUCT(avx2::Q2tpProduct) {
  IntegerProduct<DType::kQ2tp, Q2tp<false>>(w, row_begin, row_end, x, out, out_stride, scratch);
}
CMFORGE_PRODUCT(avx2::Q2tpLiveProduct) {
  IntegerProduct<DType::kQ2tp, Q2tp<true>>(w, row_begin, row_end, x, out, out_stride, scratch);
}

}  // namespace cmforge
