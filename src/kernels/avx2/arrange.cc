// Brings activations into the order in which the products read them, once for all tasks of a product: units for few
// tokens (rows.h), tiles for many (blocks.h).
#include "kernels/avx2/integer.h"

namespace cmforge {
namespace {

/// An order as a shuffle of the bytes in each half of a group, and of the words that this leaves: word i is word
/// from[i] of them.
struct Places {
  __m256i bytes;
  int32_t from[8];
};

CMFORGE_INLINE Places PlacesOf(Order order) {
  switch (order) {
    case Order::kEvenOdd:
      return {
          _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15)),
          {0, 1, 4, 5, 2, 3, 6, 7}};
    case Order::kFours:
      return {
          _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15)),
          {0, 4, 1, 5, 2, 6, 3, 7}};
    default:
      return {
          _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)),
          {0, 1, 2, 3, 4, 5, 6, 7}};
  }
}

/// What follows the row's groups up to a whole unit becomes zero.
void ArrangeRow(const QuantizedGroup* groups, int64_t count, const Arrangement& arrangement, UnitInput* out) {
  const Places places = PlacesOf(arrangement.order);
  const __m256i from = Load32(places.from);
  for (int64_t unit = 0; unit < UnitsOf(count); ++unit, ++out) {
    for (int64_t i = 0; i < kUnitGroups; ++i) {
      const int64_t g = unit * kUnitGroups + i, lane = i / 2 + 4 * (i % 2);
      const bool is_there = g < count;
      __m256i q = is_there ? Load32(groups[g].q) : _mm256_setzero_si256();
      q = _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(q, places.bytes), from);
      auto& step = out->step[i / 2];
      _mm_store_si128(reinterpret_cast<__m128i*>(step.first + 16 * (i % 2)), _mm256_castsi256_si128(q));
      _mm_store_si128(reinterpret_cast<__m128i*>(step.second + 16 * (i % 2)), _mm256_extracti128_si256(q, 1));
      out->scale[lane] = is_there ? groups[g].scale : 0.0f;
      out->minus_zero[lane] = is_there ? groups[g].minus_zero[0] / kZeroPoints[0] * arrangement.zero : 0;
    }
  }
}

/// In each 128-bit lane the four vectors' words are a 4x4 matrix: transposed.
CMFORGE_INLINE void TransposeWords(__m256i& a, __m256i& b, __m256i& c, __m256i& d) {
  const __m256i ab_low = _mm256_unpacklo_epi32(a, b), ab_high = _mm256_unpackhi_epi32(a, b);
  const __m256i cd_low = _mm256_unpacklo_epi32(c, d), cd_high = _mm256_unpackhi_epi32(c, d);
  a = _mm256_unpacklo_epi64(ab_low, cd_low);
  b = _mm256_unpackhi_epi64(ab_low, cd_low);
  c = _mm256_unpacklo_epi64(ab_high, cd_high);
  d = _mm256_unpackhi_epi64(ab_high, cd_high);
}

/// Tokens [begin, end) of `x`, whole tiles of them, in the order of the encoding's codes.
void ArrangeTiles(const WeightLayout& w, const TokenRows& x, int64_t begin, int64_t end,
                  avx2::TokenGroup* out) {
  using avx2::kTileTokens;
  const Places places = PlacesOf(ArrangementOf(w.dtype).order);
  const auto zero = static_cast<int>(w.zero);
  const avx2::GroupOrder order(w.groups);
  for (int64_t first = begin; first < end; first += kTileTokens) {
    const int64_t count = end - first < kTileTokens ? end - first : kTileTokens;
    const QuantizedGroup* rows[kTileTokens];
    for (int64_t i = 0; i < count; ++i) rows[i] = x.groups + x.Row(first + i) * x.groups_stride;
    avx2::TokenGroup* to = out + first / kTileTokens * w.groups;
    for (int64_t g = 0; g < w.groups; ++g) {
      avx2::TokenGroup& group = to[order.At(g)];
      for (int64_t eight = 0; eight < kTileTokens; eight += 8) {
        __m256i v[8];
        for (int64_t i = 0; i < 8; ++i) {
          v[i] = eight + i < count ? _mm256_shuffle_epi8(Load32(rows[eight + i][g].q), places.bytes)
                                   : _mm256_setzero_si256();
        }
        // Vector j of each four: word j of the first half, then of the second half of four tokens.
        TransposeWords(v[0], v[1], v[2], v[3]);
        TransposeWords(v[4], v[5], v[6], v[7]);
        __m256i words[8];
        for (int j = 0; j < 4; ++j) {
          words[j] = _mm256_permute2x128_si256(v[j], v[4 + j], 0x20);
          words[4 + j] = _mm256_permute2x128_si256(v[j], v[4 + j], 0x31);
        }
        for (int k = 0; k < 8; ++k)
          _mm256_store_si256(reinterpret_cast<__m256i*>(group.q[k][eight]), words[places.from[k]]);
      }
      for (int64_t i = 0; i < kTileTokens; ++i) {
        group.scale[i] = i < count ? rows[i][g].scale : 0.0f;
        group.minus_zero[i] = i < count ? rows[i][g].minus_zero[zero] : 0;
      }
    }
  }
}

}  // namespace

namespace avx2 {

int64_t ArrangedBytes(const WeightLayout& w, int64_t tokens) {
  if (tokens >= kBlockTokens)
    return TokenTilesOf(tokens) * w.groups * static_cast<int64_t>(sizeof(TokenGroup));
  return tokens * UnitsOf(w.groups) * static_cast<int64_t>(sizeof(UnitInput));
}

void Arrange(const WeightLayout& w, const TokenRows& x, int64_t begin, int64_t end, std::byte* out) {
  if (x.count >= kBlockTokens) return ArrangeTiles(w, x, begin, end, reinterpret_cast<TokenGroup*>(out));
  for (int64_t i = begin; i < end; ++i) {
    ArrangeRow(x.groups + x.Row(i) * x.groups_stride, w.groups, ArrangementOf(w.dtype),
               reinterpret_cast<UnitInput*>(out) + i * UnitsOf(w.groups));
  }
}

}  // namespace avx2
}  // namespace cmforge
