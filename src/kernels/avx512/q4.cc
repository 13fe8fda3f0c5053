// q4_block, q4_tiled and q4tp: 64 bytes of codes a step and row, even elements in the low halves of the
// bytes, odd ones in the high halves. They differ in where codes and scales lie.
#include "kernels/avx512/integer.h"
#include "kernels/avx512/scales.h"

namespace cmforge {
namespace {

CMFORGE_INLINE void SplitNibbles(__m512i bytes, __m512i& even, __m512i& odd) {
  const __m512i low = _mm512_set1_epi8(15);
  even = _mm512_and_si512(bytes, low);
  odd = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), low);
}

// Codes of a row in one piece; scales are made for all groups of the four rows beforehand.
class PlainNibbles : public PlainRows {
 public:
  static constexpr bool kIsInterleaved = true;
  static constexpr bool kHasGroupScales = true;
  static constexpr int32_t kZero = 8;

  PlainNibbles(const WeightLayout& w, const int64_t (&rows)[4], float* scales)
      : PlainRows(w, rows), full_(w.groups / 4), tail_bytes_(w.groups % 4 * 16), scales_(scales) {}

  [[nodiscard]] int64_t full_steps() const { return full_; }

  template <bool kIsTail>
  CMFORGE_INLINE void Codes(int r, int64_t block, __m512i& first, __m512i& second) const {
    const std::byte* at = row_[r] + block * 64;
    SplitNibbles(kIsTail ? LoadBytes(at, LowBytes(tail_bytes_)) : LoadBytes(at), first, second);
  }

  template <bool kIsTail>
  CMFORGE_INLINE __m512 Scales(int64_t block) const {
    return _mm512_load_ps(scales_ + 16 * block);
  }

  CMFORGE_INLINE void Prefetch(int r, int64_t block) const { PrefetchLine(row_[r] + ahead_ + block * 64); }

 private:
  int64_t full_, tail_bytes_;
  const float* scales_;
};

class Q4Block : public PlainNibbles {
 public:
  Q4Block(const WeightLayout& w, const int64_t (&rows)[4], float* scales) : PlainNibbles(w, rows, scales) {
    PlaneScales(w, rows, scales);
  }
};

class Q4tp : public PlainNibbles {
 public:
  Q4tp(const WeightLayout& w, const int64_t (&rows)[4], float* scales) : PlainNibbles(w, rows, scales) {
    LadderScales<false>(w, rows, scales);
  }
};

// Tiles of [f16 scale][16 bytes]: a step is 72 bytes of a row, read as two overlapping vectors.
class Q4Tiled : public PlainRows {
 public:
  static constexpr bool kIsInterleaved = true;
  static constexpr bool kHasGroupScales = true;
  static constexpr int32_t kZero = 8;

  Q4Tiled(const WeightLayout& w, const int64_t (&rows)[4], float*)
      : PlainRows(w, rows), full_(w.groups / 4), tail_bytes_(w.groups % 4 * kTile) {}

  [[nodiscard]] int64_t full_steps() const { return full_; }

  template <bool kIsTail>
  CMFORGE_INLINE void Codes(int r, int64_t block, __m512i& first, __m512i& second) const {
    const std::byte* at = row_[r] + block * kStep;
    const __m512i a = kIsTail ? LoadBytes(at, LowBytes(tail_bytes_)) : LoadBytes(at);
    const __m512i b = kIsTail ? LoadBytes(at + 8, LowBytes(tail_bytes_ - 8)) : LoadBytes(at + 8);
    // Byte 16 g + k of the codes is byte 18 g + 2 + k of the step; the last tile is taken from the second
    // vector.
    alignas(64) static constexpr Bytes64 kPlace = [] {
      Bytes64 place{};
      for (int i = 0; i < 64; ++i) {
        const int byte = i / 16 * 18 + 2 + i % 16;
        place.at[i] = static_cast<uint8_t>(i < 48 ? byte : 64 + byte - 8);
      }
      return place;
    }();
    SplitNibbles(_mm512_permutex2var_epi8(a, _mm512_load_si512(kPlace.at), b), first, second);
  }

  template <bool kIsTail>
  CMFORGE_INLINE __m512 Scales(int64_t block) const {
    return TileScales<kIsTail, kTile>(row_, block * kStep, tail_bytes_);
  }

  CMFORGE_INLINE void Prefetch(int r, int64_t block) const {
    PrefetchLine(row_[r] + ahead_ + block * kStep);
    if (block % 8 == 0) PrefetchLine(row_[r] + ahead_ + block * kStep - 64);
  }

 private:
  static constexpr int64_t kTile = 18, kStep = 4 * kTile;
  int64_t full_, tail_bytes_;
};

}  // namespace

CMFORGE_PRODUCT(avx512::Q4BlockProduct) {
  IntegerProduct<Q4Block>(w, row_begin, row_end, x, out, out_stride, scratch);
}
CMFORGE_PRODUCT(avx512::Q4tpProduct) {
  IntegerProduct<Q4tp>(w, row_begin, row_end, x, out, out_stride, scratch);
}
CMFORGE_PRODUCT(avx512::Q4TiledProduct) {
  IntegerProduct<Q4Tiled>(w, row_begin, row_end, x, out, out_stride, scratch);
}

}  // namespace cmforge
