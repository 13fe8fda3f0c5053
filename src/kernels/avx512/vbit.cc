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
  static constexpr int32_t kZero = kZeroByRow;

  Vbit(const WeightLayout& w, const int64_t (&rows)[4], float* scales)
      : full_(w.groups / 4), tail_groups_(w.groups % 4), scales_(scales) {
    for (int r = 0; r < 4; ++r) {
      row_[r] = w.codes + VbitRowOffset(w, rows[r]);
      width_[r] = static_cast<int64_t>(w.widths[rows[r]]);
    }
    const int64_t four = VbitRowOffset(w, rows[3] + 1) - VbitRowOffset(w, rows[0]);
    ahead_ = (kPrefetchBytes + four - 1) / four * four;
    PlaneScales(w, rows, scales);
  }

  [[nodiscard]] int64_t full_steps() const { return full_; }

  template <bool kIsTail>
  CMFORGE_INLINE void Codes(int r, int64_t block, __m512i& first, __m512i& second) const {
    const int64_t half = 8 * width_[r];  // bytes of two groups
    const std::byte* at = row_[r] + 2 * half * block;
    const int64_t tail_bytes = 4 * width_[r] * tail_groups_;
    const __m512i a = Unpack(r, LoadBytes(at, LowBytes(kIsTail && tail_bytes < half ? tail_bytes : half)));
    const __m512i b = Unpack(r, LoadBytes(at + half, LowBytes(kIsTail ? tail_bytes - half : half)));
    first = _mm512_shuffle_i32x4(a, b, 0x88);
    second = _mm512_shuffle_i32x4(a, b, 0xDD);
  }

  template <bool kIsTail>
  CMFORGE_INLINE __m512 Scales(int64_t block) const {
    return _mm512_load_ps(scales_ + 16 * block);
  }

  CMFORGE_INLINE void Prefetch(int r, int64_t block) const {
    PrefetchLine(row_[r] + ahead_ + 16 * width_[r] * block);
    PrefetchLine(row_[r] + ahead_ + 16 * width_[r] * block + 64);
  }

  [[nodiscard]] int32_t RowZero(int r) const { return (1 << (width_[r] - 1)) - 1; }

  CMFORGE_INLINE __m512i MinusZero(__m512i minus_sum) const {
    const __m128i zeros = _mm_setr_epi32(RowZero(0), RowZero(1), RowZero(2), RowZero(3));
    return _mm512_mullo_epi32(minus_sum, _mm512_broadcast_i32x4(zeros));
  }

 private:
  CMFORGE_INLINE __m512i Unpack(int r, __m512i bytes) const {
    const int64_t width = width_[r];
    const __m512i words = _mm512_permutexvar_epi8(_mm512_load_si512(kTables.place[width].at), bytes);
    const __m512i shifts = _mm512_set1_epi64(static_cast<int64_t>(kTables.shifts[width]));
    const __m512i mask = _mm512_set1_epi8(static_cast<char>((1 << width) - 1));
    return _mm512_and_si512(_mm512_multishift_epi64_epi8(shifts, words), mask);
  }

  static constexpr int64_t kPrefetchBytes = 4096;
  const std::byte* row_[4];
  int64_t width_[4];
  int64_t ahead_, full_, tail_groups_;
  const float* scales_;
};

}  // namespace

CMFORGE_PRODUCT(avx512::VbitProduct) {
  IntegerProduct<Vbit>(w, row_begin, row_end, x, out, out_stride, scratch);
}

}  // namespace cmforge
