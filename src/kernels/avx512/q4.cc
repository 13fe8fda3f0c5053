// q4_block, q4_tiled and q4tp: 16 bytes a group, even elements in the low halves of the bytes, odd ones in
// the high halves. They differ in where codes and scales lie.
#include "kernels/avx512/integer.h"
#include "kernels/avx512/nibbles.h"
#include "kernels/avx512/scales.h"

namespace cmforge {
namespace {

// Codes of a row in one piece, scales elsewhere.
class PlainNibbles : public PlainRow<256> {
 public:
  static constexpr bool kIsInterleaved = true;
  static constexpr bool kHasGroupScales = true;
  static constexpr bool kPrefetches = false;
  static constexpr int32_t kZero = 8;

  using PlainRow::PlainRow;

  template <int kStep>
  CMFORGE_INLINE void Step(const std::byte* at, __m512i& first, __m512i& second) const {
    SplitNibbles(LoadBytes(at + 64 * kStep), first, second);
  }
};

// Its scales are a stream of their own, too thin for the processor to foresee.
constexpr int64_t kScalesAhead = 512;

class Q4Block : public PlainNibbles {
 public:
  using PlainNibbles::PlainNibbles;

  CMFORGE_INLINE void SetRow(int64_t row) {
    PlainNibbles::SetRow(row);
    scales_ = w_.scales + 2 * row * w_.groups;
    Prefetch(scales_ + kScalesAhead, 2 * w_.groups);
  }
  CMFORGE_INLINE __m512 Scales(const std::byte*, int64_t unit) const {
    return PlaneScales(w_, scales_, unit);
  }

 private:
  const std::byte* scales_ = nullptr;
};

class Q4tp : public PlainNibbles {
 public:
  explicit Q4tp(const WeightLayout& w) : PlainNibbles(w), ladders_(w) {}

  CMFORGE_INLINE void Start(int64_t row) const {
    ladders_.Start(row);
    Prefetch(w_.codes + row * w_.code_stride, kPrefetchAhead);
  }
  CMFORGE_INLINE void Begin(int64_t row, int64_t rows) { ladders_.Begin(row, rows); }
  CMFORGE_INLINE void SetRow(int64_t row) {
    PlainNibbles::SetRow(row);
    ladders_.SetRow(row);
  }
  CMFORGE_INLINE __m512 Scales(const std::byte*, int64_t unit) const { return ladders_.Scales(unit); }

 private:
  Ladders<false> ladders_;
};

// Tiles of [f16 scale][16 bytes]: a step is 72 bytes, a unit 288, read as four vectors and a half.
class Q4Tiled : public PlainRow<288> {
 public:
  static constexpr bool kIsInterleaved = true;
  static constexpr bool kHasGroupScales = true;
  static constexpr bool kPrefetches = true;
  static constexpr int32_t kZero = 8;

  using PlainRow::PlainRow;

  template <int kStep>
  CMFORGE_INLINE void Step(const std::byte* at, __m512i& first, __m512i& second) const {
    constexpr int kFrom = 64 * kStep, kNext = kStep < 3 ? kFrom + 64 : 288 - 64;
    SplitNibbles(
        _mm512_permutex2var_epi8(LoadBytes(at + kFrom), _mm512_load_si512(Place<kStep, kFrom, kNext>()),
                                 LoadBytes(at + kNext)),
        first, second);
  }

  CMFORGE_INLINE __m512 Scales(const std::byte* at, int64_t) const { return TileScales<18>(at); }

 private:
  /// Where a step's 64 bytes of codes are, in two vectors that begin at bytes kFrom and kNext of the unit.
  template <int kStep, int kFrom, int kNext>
  static CMFORGE_INLINE const uint8_t* Place() {
    alignas(64) static constexpr Bytes64 kPlace = [] {
      Bytes64 place{};
      for (int i = 0; i < 64; ++i) {
        const int byte = 72 * kStep + 18 * (i / 16) + 2 + i % 16;
        place.at[i] = static_cast<uint8_t>(byte < kFrom + 64 ? byte - kFrom : 64 + byte - kNext);
      }
      return place;
    }();
    return kPlace.at;
  }
};

}  // namespace

CMFORGE_PRODUCT(avx512::Q4BlockProduct) {
  IntegerProduct<DType::kQ4Block, Q4Block>(w, row_begin, row_end, x, out, out_stride, scratch);
}
CMFORGE_PRODUCT(avx512::Q4tpProduct) {
  IntegerProduct<DType::kQ4tp, Q4tp>(w, row_begin, row_end, x, out, out_stride, scratch);
}
CMFORGE_PRODUCT(avx512::Q4TiledProduct) {
  IntegerProduct<DType::kQ4Tiled, Q4Tiled>(w, row_begin, row_end, x, out, out_stride, scratch);
}

}  // namespace cmforge
