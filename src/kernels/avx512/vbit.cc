// vbit and vbit_ro: every row has its own width, 3 to 8 bits a weight, most significant bit first. Eight
// weights are `width` bytes; a permutation brings them, last byte first, into a 64-bit word, a multishift
// takes the weights out. Width is data (index vector, shifts, mask), so rows of different widths go through
// the same instructions.
#include "kernels/avx512/integer.h"
#include "kernels/avx512/scales.h"

namespace cmforge {
namespace {

struct WidthTables {
  Bytes64 place[9];
  uint64_t shifts[9];
};

alignas(64) constexpr WidthTables kTables = [] {
  WidthTables tables{};
  for (int width = 1; width <= 8; ++width) {
    for (int i = 0; i < 64; ++i) {
      const int byte = width - 1 - i % 8;
      tables.place[width].at[i] = static_cast<uint8_t>(i / 8 * width + (byte < 0 ? 0 : byte));
    }
    for (int i = 0; i < 8; ++i) tables.shifts[width] |= static_cast<uint64_t>((7 - i) * width) << (8 * i);
  }
  return tables;
}();

class Vbit {
 public:
  static constexpr bool kIsInterleaved = false;
  static constexpr bool kHasGroupScales = true;
  static constexpr bool kPrefetches = true;
  static constexpr int32_t kZero = kZeroByRow;

  explicit Vbit(const WeightLayout& w) : w_(w) {}

  void Start(int64_t) const {}
  void Begin(int64_t, int64_t) {}
  CMFORGE_INLINE void SetRow(int64_t row) {
    row_ = w_.codes + VbitRowOffset(w_, row);
    scales_ = w_.scales + 2 * row * w_.groups;
    width_ = static_cast<int64_t>(w_.widths[row]);
    place_ = _mm512_load_si512(kTables.place[width_].at);
    shifts_ = _mm512_set1_epi64(static_cast<int64_t>(kTables.shifts[width_]));
    mask_ = _mm512_set1_epi8(static_cast<char>((1 << width_) - 1));
  }
  [[nodiscard]] int64_t unit_bytes() const { return 64 * width_; }
  CMFORGE_INLINE const std::byte* At(int64_t unit) const { return row_ + unit * 64 * width_; }
  [[nodiscard]] int32_t row_zero() const { return (1 << (width_ - 1)) - 1; }

  CMFORGE_INLINE void Codes(const std::byte* at, __m512i (&first)[4], __m512i (&second)[4]) const {
    const int64_t half = 8 * width_;  // bytes of two groups
    const __mmask64 bytes = LowBytes(half);
    for (int s = 0; s < 4; ++s) {
      const __m512i a = Unpack(LoadBytes(at + 2 * s * half, bytes)),
                    b = Unpack(LoadBytes(at + (2 * s + 1) * half, bytes));
      first[s] = _mm512_shuffle_i32x4(a, b, 0x88);
      second[s] = _mm512_shuffle_i32x4(a, b, 0xDD);
    }
  }

  CMFORGE_INLINE __m512 Scales(const std::byte*, int64_t unit) const {
    return PlaneScales(w_, scales_, unit);
  }

 private:
  CMFORGE_INLINE __m512i Unpack(__m512i bytes) const {
    return _mm512_and_si512(_mm512_multishift_epi64_epi8(shifts_, _mm512_permutexvar_epi8(place_, bytes)),
                            mask_);
  }

  const WeightLayout& w_;
  const std::byte* row_ = nullptr;
  const std::byte* scales_ = nullptr;
  int64_t width_ = 0;
  __m512i place_, shifts_, mask_;
};

}  // namespace

CMFORGE_PRODUCT(avx512::VbitProduct) {
  IntegerProduct<DType::kVbit, Vbit>(w, row_begin, row_end, x, out, out_stride, scratch);
}

}  // namespace cmforge
