// Few tokens on the live groups of rows, read where they lie: a unit (rows.h) is the next sixteen groups of the list
// w.live, whose codes are put together in registers. What the copy of gathered groups costs, loads and stores of every
// byte, is saved; the sums are the same.
//
// Gaps keep the processor from prefetching what comes next, so each group asks for its own place in the next row: only
// lines that are read are fetched.
#include "kernels/avx512/integer.h"
#include "kernels/avx512/nibbles.h"
#include "kernels/avx512/scales.h"

namespace cmforge {
namespace {

/// kBytes a group, its codes at kCodes of them.
template <int64_t kBytes, int64_t kCodes>
class LiveRow {
 public:
  static constexpr bool kPrefetches = false;  // Codes() does

  explicit LiveRow(const WeightLayout& w) : w_(w) {}

  CMFORGE_INLINE void Start(int64_t) const {}
  CMFORGE_INLINE void Begin(int64_t, int64_t) {}
  CMFORGE_INLINE void SetRow(int64_t row) { row_ = w_.codes + row * w_.code_stride; }
  static constexpr int64_t unit_bytes() { return 0; }
  /// Where the list of the unit's groups is.
  CMFORGE_INLINE const std::byte* At(int64_t unit) const {
    return reinterpret_cast<const std::byte*>(w_.live + unit * kUnitGroups);
  }

 protected:
  CMFORGE_INLINE const std::byte* Group(const std::byte* at, int64_t i) const {
    const std::byte* group = row_ + kBytes * reinterpret_cast<const int32_t*>(at)[i];
    PrefetchLine(group + w_.code_stride);
    return group + kCodes;
  }
  /// The unit's groups in unit order.
  static CMFORGE_INLINE __m512i Groups(const std::byte* at) {
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_epi32(order, LoadBytes(at));
  }
  /// Scales of the groups that there are, zeros for what fills the last unit up.
  CMFORGE_INLINE __m512 Present(__m512 scales, int64_t unit) const {
    return _mm512_maskz_mov_ps(GroupsOfUnit(w_, unit), scales);
  }

  const WeightLayout& w_;
  const std::byte* row_ = nullptr;
};

class LiveQ8 : public LiveRow<32, 0> {
 public:
  static constexpr bool kHasGroupScales = false;
  static constexpr int32_t kZero = 128;

  using LiveRow::LiveRow;

  CMFORGE_INLINE void Codes(const std::byte* at, __m512i (&first)[4], __m512i (&second)[4]) const {
    const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
    for (int s = 0; s < 4; ++s) {
      const __m512i a = Pair(at, 4 * s), b = Pair(at, 4 * s + 2);
      first[s] = _mm512_xor_si512(_mm512_shuffle_i32x4(a, b, 0x88), sign);
      second[s] = _mm512_xor_si512(_mm512_shuffle_i32x4(a, b, 0xDD), sign);
    }
  }

 private:
  CMFORGE_INLINE __m512i Pair(const std::byte* at, int i) const {
    const auto load = [&](int64_t group) {
      return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(Group(at, group)));
    };
    return _mm512_inserti64x4(_mm512_castsi256_si512(load(i)), load(i + 1), 1);
  }
};

template <int64_t kBytes, int64_t kCodes>
class LiveNibbles : public LiveRow<kBytes, kCodes> {
 public:
  static constexpr bool kIsInterleaved = true;
  static constexpr bool kHasGroupScales = true;
  static constexpr int32_t kZero = 8;

  using LiveRow<kBytes, kCodes>::LiveRow;

  CMFORGE_INLINE void Codes(const std::byte* at, __m512i (&first)[4], __m512i (&second)[4]) const {
    for (int s = 0; s < 4; ++s) {
      const auto load = [&](int64_t group) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(this->Group(at, 4 * s + group)));
      };
      __m512i four = _mm512_castsi128_si512(load(0));
      four = _mm512_mask_broadcast_i32x4(four, 0x00F0, load(1));
      four = _mm512_mask_broadcast_i32x4(four, 0x0F00, load(2));
      four = _mm512_mask_broadcast_i32x4(four, 0xF000, load(3));
      SplitNibbles(four, first[s], second[s]);
    }
  }
};

class LiveQ4Block : public LiveNibbles<16, 0> {
 public:
  using LiveNibbles::LiveNibbles;

  CMFORGE_INLINE void SetRow(int64_t row) {
    LiveNibbles::SetRow(row);
    scales_ = w_.scales + 2 * row * w_.whole_groups - 2;
  }
  /// Words whose high halves are the scales: what lies before a plane of scales may be read, what lies behind may not.
  CMFORGE_INLINE __m512 Scales(const std::byte* at, int64_t unit) const {
    const __m512i words = _mm512_i32gather_epi32(Groups(at), scales_, 2);
    return Present(_mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(words, 16))), unit);
  }

 private:
  const std::byte* scales_ = nullptr;
};

class LiveQ4Tiled : public LiveNibbles<18, 2> {
 public:
  using LiveNibbles::LiveNibbles;

  CMFORGE_INLINE __m512 Scales(const std::byte* at, int64_t unit) const {
    const __m512i groups = Groups(at), nine = _mm512_add_epi32(groups, _mm512_slli_epi32(groups, 3));
    const __m512i words = _mm512_i32gather_epi32(nine, row_, 2);
    return Present(_mm512_cvtph_ps(_mm512_cvtepi32_epi16(words)), unit);
  }
};

class LiveQ4tp : public LiveNibbles<16, 0> {
 public:
  explicit LiveQ4tp(const WeightLayout& w) : LiveNibbles(w), ladders_(w) {}

  CMFORGE_INLINE void Start(int64_t row) const { ladders_.Start(row); }
  CMFORGE_INLINE void Begin(int64_t row, int64_t rows) { ladders_.Begin(row, rows); }
  CMFORGE_INLINE void SetRow(int64_t row) {
    LiveNibbles::SetRow(row);
    ladders_.SetRow(row);
    rungs_ = w_.rungs + row * w_.rung_stride - 3;
  }
  /// Words whose last byte holds the rung's last bit, for the same reason.
  CMFORGE_INLINE __m512 Scales(const std::byte* at, int64_t unit) const {
    const __m512i groups = Groups(at), bits = _mm512_add_epi32(groups, _mm512_slli_epi32(groups, 2));
    const __m512i last = _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(4)), 3);
    const __m512i words = _mm512_i32gather_epi32(last, rungs_, 1);
    const __m512i shifts =
        _mm512_add_epi32(_mm512_sub_epi32(bits, _mm512_slli_epi32(last, 3)), _mm512_set1_epi32(24));
    const __m512i rungs = _mm512_and_si512(_mm512_srlv_epi32(words, shifts), _mm512_set1_epi32(31));
    return Present(ladders_.Values(rungs), unit);
  }

 private:
  Ladders<false> ladders_;
  const std::byte* rungs_ = nullptr;
};

template <class Encoding>
CMFORGE_PRODUCT(Product) {
  (void)scratch;
  RowsProduct<Encoding>(w, row_begin, row_end, x, out, out_stride);
}

}  // namespace

ProductFn avx512::LiveProduct(const WeightLayout& w, int64_t tokens) {
  if (tokens >= kBlockTokens) return nullptr;  // the copy is made once for all of them
  switch (w.dtype) {
    case DType::kQ8Row:
    case DType::kQ8TwoField:
      return Product<LiveQ8>;
    case DType::kQ4Block:
      return Product<LiveQ4Block>;
    case DType::kQ4Tiled:
      return Product<LiveQ4Tiled>;
    case DType::kQ4tp:
      return Product<LiveQ4tp>;
    default:
      return nullptr;
  }
}

}  // namespace cmforge
