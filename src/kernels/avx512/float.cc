// Float products: f32, f16 and bf16 weights read in place for few tokens; for many tokens, and for every
// other encoding in exact mode, a block of rows is decoded to f32 once and meets all tokens. A vector is the
// sixteen partial sums of one output, so nothing is reduced before the end of the row.
#include "kernels/avx512/integer.h"

namespace cmforge {
namespace {

struct F32 {
  static constexpr int64_t kBytes = 4;
  static CMFORGE_INLINE __m512 Load(const std::byte* p) { return _mm512_loadu_ps(p); }
  static CMFORGE_INLINE __m512 Load(const std::byte* p, __mmask16 mask) {
    return _mm512_maskz_loadu_ps(mask, p);
  }
};

struct F16 {
  static constexpr int64_t kBytes = 2;
  static CMFORGE_INLINE __m512 Load(const std::byte* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static CMFORGE_INLINE __m512 Load(const std::byte* p, __mmask16 mask) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, p));
  }
};

struct Bf16 {
  static constexpr int64_t kBytes = 2;
  static CMFORGE_INLINE __m512 Widen(__m256i x) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
  }
  static CMFORGE_INLINE __m512 Load(const std::byte* p) {
    return Widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static CMFORGE_INLINE __m512 Load(const std::byte* p, __mmask16 mask) {
    return Widen(_mm256_maskz_loadu_epi16(mask, p));
  }
};

/// The float tree of four vectors (table.h), one sum a lane.
CMFORGE_INLINE __m128 Trees(__m512 a, __m512 b, __m512 c, __m512 d) {
  const auto four = [](__m512 v) {
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    return _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  };
  __m128 p0 = four(a), p1 = four(b), p2 = four(c), p3 = four(d);
  _MM_TRANSPOSE4_PS(p0, p1, p2, p3);
  return _mm_add_ps(_mm_add_ps(p0, p2), _mm_add_ps(p1, p3));
}

// Four rows by up to six tokens: 24 accumulators, four weights, one activation.
constexpr int kTokenTile6 = 6;

template <class Float, int kTokens>
CMFORGE_INLINE void Tile(const std::byte* const (&w)[4], int64_t ahead, int64_t cols,
                         const float* const (&x)[kTokens], __mmask8 rows, float* out, int64_t out_stride) {
  __m512 sums[kTokens][4];
  for (int t = 0; t < kTokens; ++t) {
    for (int r = 0; r < 4; ++r) sums[t][r] = _mm512_setzero_ps();
  }
  int64_t c = 0;
  for (; c + 16 <= cols; c += 16) {
    __m512 weights[4];
    for (int r = 0; r < 4; ++r) {
      weights[r] = Float::Load(w[r] + c * Float::kBytes);
      if (ahead > 0) PrefetchLine(w[r] + c * Float::kBytes + ahead);
    }
#pragma GCC unroll 6
    for (int t = 0; t < kTokens; ++t) {
      const __m512 value = _mm512_loadu_ps(x[t] + c);
#pragma GCC unroll 4
      for (int r = 0; r < 4; ++r) sums[t][r] = _mm512_fmadd_ps(weights[r], value, sums[t][r]);
    }
  }
  if (c < cols) {
    const __mmask16 mask = LowLanes(cols - c);
    for (int r = 0; r < 4; ++r) {
      const __m512 weights = Float::Load(w[r] + c * Float::kBytes, mask);
      for (int t = 0; t < kTokens; ++t) {
        sums[t][r] = _mm512_fmadd_ps(weights, _mm512_maskz_loadu_ps(mask, x[t] + c), sums[t][r]);
      }
    }
  }
  for (int t = 0; t < kTokens; ++t) {
    _mm_mask_storeu_ps(out + t * out_stride, rows, Trees(sums[t][0], sums[t][1], sums[t][2], sums[t][3]));
  }
}

template <class Float, int kTokens>
void TileOf(const std::byte* const (&w)[4], int64_t ahead, int64_t cols, __mmask8 rows, const TokenRows& x,
            int64_t token, float* out, int64_t out_stride) {
  const float* values[kTokens];
  for (int t = 0; t < kTokens; ++t) values[t] = x.x + x.Row(token + t) * x.x_stride;
  Tile<Float, kTokens>(w, ahead, cols, values, rows, out + token * out_stride, out_stride);
}

/// `count` tokens (at most six) against `row_count` rows at `w`, `stride` bytes apart.
template <class Float>
void Rows(const std::byte* w, int64_t stride, bool prefetch, int64_t row_count, int64_t cols,
          const TokenRows& x, int64_t token, int64_t count, float* out, int64_t out_stride) {
  for (int64_t r = 0; r < row_count; r += 4) {
    const int64_t left = row_count - r < 4 ? row_count - r : 4;
    const std::byte* four[4];
    for (int64_t i = 0; i < 4; ++i) four[i] = w + (r + (i < left ? i : left - 1)) * stride;
    const auto mask = static_cast<__mmask8>((1 << left) - 1);
    const int64_t ahead = prefetch ? 4 * stride : 0;
    switch (count) {
      case 1:
        TileOf<Float, 1>(four, ahead, cols, mask, x, token, out + r, out_stride);
        break;
      case 2:
        TileOf<Float, 2>(four, ahead, cols, mask, x, token, out + r, out_stride);
        break;
      case 3:
        TileOf<Float, 3>(four, ahead, cols, mask, x, token, out + r, out_stride);
        break;
      case 4:
        TileOf<Float, 4>(four, ahead, cols, mask, x, token, out + r, out_stride);
        break;
      case 5:
        TileOf<Float, 5>(four, ahead, cols, mask, x, token, out + r, out_stride);
        break;
      default:
        TileOf<Float, 6>(four, ahead, cols, mask, x, token, out + r, out_stride);
        break;
    }
  }
}

template <class Float>
void InPlace(const WeightLayout& w, int64_t row_begin, int64_t row_end, const TokenRows& x, float* out,
             int64_t out_stride) {
  Rows<Float>(w.codes + row_begin * w.code_stride, w.code_stride, true, row_end - row_begin, w.cols, x, 0,
              x.count, out + row_begin, out_stride);
}

// Decoded rows that are kept at a time: a share of L2.
int64_t BlockRows(int64_t cols) {
  constexpr int64_t kBudget = 256 << 10;
  const int64_t rows = kBudget / (4 * cols) / 4 * 4;
  return rows < 4 ? 4 : rows > 32 ? 32 : rows;
}

}  // namespace

int64_t avx512::FloatScratchBytes(const WeightLayout& w) { return 4 * w.cols * BlockRows(w.cols); }

CMFORGE_PRODUCT(avx512::FloatProduct) {
  if (x.count <= kTokenTile6) {
    if (w.dtype == DType::kF32) return InPlace<F32>(w, row_begin, row_end, x, out, out_stride);
    if (w.dtype == DType::kF16) return InPlace<F16>(w, row_begin, row_end, x, out, out_stride);
    if (w.dtype == DType::kBF16) return InPlace<Bf16>(w, row_begin, row_end, x, out, out_stride);
  }
  const int64_t block = BlockRows(w.cols);
  for (int64_t row = row_begin; row < row_end; row += block) {
    const int64_t count = row_end - row < block ? row_end - row : block;
    DecodeRows(w, row, row + count, reinterpret_cast<float*>(scratch));
    for (int64_t token = 0; token < x.count; token += kTokenTile6) {
      const int64_t tokens = x.count - token < kTokenTile6 ? x.count - token : kTokenTile6;
      Rows<F32>(scratch, 4 * w.cols, false, count, w.cols, x, token, tokens, out + row, out_stride);
    }
  }
}

}  // namespace cmforge
