// vbit and vbit_ro: every row has its own width, 3 to 8 bits a weight, most significant bit first. Eight weights are
// `width` bytes. A shuffle gives each weight the two bytes that hold it, first byte on top; a multiplication shifts its
// bits to the top of the word, a shift brings them down. Width is data (places, factors, shift), so rows of different
// widths go through the same instructions.
#include "kernels/avx2/integer.h"
#include "kernels/avx2/scales.h"

namespace cmforge {
namespace {

struct WidthTable {
  int8_t place[2][16];  // of weights 0 - 7 and 8 - 15
  int16_t factor[8];
};

struct WidthTables {
  WidthTable of[9];
};
alignas(16) constexpr WidthTables kTables = [] {
  WidthTables tables{};
  for (int width = 1; width <= 8; ++width) {
    for (int i = 0; i < 16; ++i) {
      const int byte = i * width / 8;
      auto& place = tables.of[width].place[i / 8];
      place[2 * (i % 8)] = static_cast<int8_t>(byte < 15 ? byte + 1 : 15);
      place[2 * (i % 8) + 1] = static_cast<int8_t>(byte);
    }
    for (int i = 0; i < 8; ++i) tables.of[width].factor[i] = static_cast<int16_t>(1 << (i * width % 8));
  }
  return tables;
}();

class Vbit {
 public:
  static constexpr Order kOrder = Order::kHalves;
  static constexpr bool kHasGroupScales = true, kIsWide = true, kIsLive = false;
  static constexpr int32_t kZero = -1;  // counted from 127 as the table has it, less 128
  static constexpr int64_t kOverread = 16;

  explicit Vbit(const WeightLayout& w) : w_(w) {}

  void Begin(int64_t, int64_t) {}
  CMFORGE_INLINE void SetRow(int64_t row) {
    row_ = w_.codes + VbitRowOffset(w_, row);
    scales_ = w_.scales + 2 * row * w_.groups;
    width_ = static_cast<int64_t>(w_.widths[row]);
    const WidthTable& table = kTables.of[width_];
    for (int i = 0; i < 2; ++i) place_[i] = _mm256_broadcastsi128_si256(Load16(table.place[i]));
    factor_ = _mm256_broadcastsi128_si256(Load16(table.factor));
    down_ = _mm_cvtsi32_si128(static_cast<int>(16 - width_));
    const int zero = (1 << (width_ - 1)) - 1;
    shift_ = _mm256_set1_epi8(static_cast<char>(kZero - zero));
  }
  [[nodiscard]] int64_t unit_bytes() const { return 4 * width_ * kUnitGroups; }
  CMFORGE_INLINE const std::byte* At(int64_t unit) const { return row_ + unit * unit_bytes(); }

  CMFORGE_INLINE void Codes(const std::byte* at, __m256i (&first)[4], __m256i (&second)[4]) const {
    const int64_t half = 2 * width_;  // bytes of 16 weights
    for (int s = 0; s < 4; ++s) {
      const std::byte* two = at + 4 * half * s;
      first[s] = Unpack(Lanes(Load16(two), Load16(two + 2 * half)));
      second[s] = Unpack(Lanes(Load16(two + half), Load16(two + 3 * half)));
    }
  }

  template <bool kIsFull>
  CMFORGE_INLINE __m256 Scales(const std::byte*, int64_t unit) const {
    return PlaneScales<kIsFull>(w_, scales_, unit);
  }

 private:
  CMFORGE_INLINE __m256i Unpack(__m256i bytes) const {
    const auto eight = [&](__m256i place) {
      const __m256i top = _mm256_mullo_epi16(_mm256_shuffle_epi8(bytes, place), factor_);
      return _mm256_srl_epi16(top, down_);
    };
    return _mm256_add_epi8(_mm256_packus_epi16(eight(place_[0]), eight(place_[1])), shift_);
  }

  const WeightLayout& w_;
  const std::byte* row_ = nullptr;
  const std::byte* scales_ = nullptr;
  int64_t width_ = 0;
  __m256i place_[2], factor_, shift_;
  __m128i down_;
};

}  // namespace

CMFORGE_PRODUCT(avx2::VbitProduct) {
  IntegerProduct<DType::kVbit, Vbit>(w, row_begin, row_end, x, out, out_stride, scratch);
}

}  // namespace cmforge
