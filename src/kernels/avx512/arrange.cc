// Brings activations into the order in which the products read them, once for all tasks of a product: units for
// few tokens (rows.h), tiles for many (blocks.h).
#include "kernels/avx512/integer.h"

namespace cmforge {
namespace {

/// `count` is a multiple of four; what follows up to a whole unit becomes zero.
template <bool kIsInterleaved>
void ArrangeRow(const QuantizedGroup* groups, int64_t count, int32_t zero, UnitInput* out) {
  const __m128i even_odd = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
  for (int64_t unit = 0; unit < UnitsOf(count); ++unit, ++out) {
    __m512i tails[kUnitSteps];  // of each step, four groups' (scale, -8 sum, -127 sum, -128 sum)
    for (int64_t s = 0; s < kUnitSteps; ++s) {
      tails[s] = _mm512_setzero_si512();
      auto& step = out->step[s];
      const QuantizedGroup* four = groups + unit * kUnitGroups + s * kStepGroups;
      if (unit * kUnitGroups + s * kStepGroups >= count) {
        _mm512_store_si512(step.first, tails[s]);
        _mm512_store_si512(step.second, tails[s]);
        continue;
      }
      for (int64_t i = 0; i < kStepGroups; ++i) {
        __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(four[i].q));
        __m128i second = _mm_loadu_si128(reinterpret_cast<const __m128i*>(four[i].q + 16));
        if constexpr (kIsInterleaved) {
          const __m128i low = _mm_shuffle_epi8(first, even_odd), high = _mm_shuffle_epi8(second, even_odd);
          first = _mm_unpacklo_epi64(low, high);
          second = _mm_unpackhi_epi64(low, high);
        }
        _mm_store_si128(reinterpret_cast<__m128i*>(step.first + 16 * i), first);
        _mm_store_si128(reinterpret_cast<__m128i*>(step.second + 16 * i), second);
      }
      const auto tail = [&](int64_t i) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(&four[i].scale));
      };
      tails[s] = _mm512_inserti32x4(
          _mm512_inserti32x4(_mm512_inserti32x4(_mm512_castsi128_si512(tail(0)), tail(1), 1), tail(2), 2),
          tail(3), 3);
    }
    // Lane i of vector s is group 4 s + i: words transposed, lane i is (s = 0 .. 3) of each field, which is
    // unit order.
    TransposeWords(tails[0], tails[1], tails[2], tails[3]);
    _mm512_store_si512(out->scale, tails[0]);
    const __m512i minus_sum = _mm512_srai_epi32(tails[1], 3);
    _mm512_store_si512(out->minus_zero, _mm512_mullo_epi32(minus_sum, _mm512_set1_epi32(zero)));
  }
}

/// Tokens [begin, end) of `x`, whole tiles of them, in the order of the encoding's codes.
void ArrangeTiles(const WeightLayout& w, const TokenRows& x, int64_t begin, int64_t end,
                  avx512::TokenGroup* out) {
  // A group is twelve words: q, the scale and three zero points' products, one of which is wanted.
  static_assert(sizeof(QuantizedGroup) == 48);
  const auto zero = 9 + static_cast<int>(w.zero);
  alignas(64) static constexpr Bytes64 kEvenOdd = [] {
    Bytes64 place{};
    for (int i = 0; i < 64; ++i) place.at[i] = static_cast<uint8_t>(i < 32 ? 2 * (i % 16) + i / 16 : i);
    return place;
  }();
  const __m512i even_odd = _mm512_load_si512(kEvenOdd.at);
  const bool is_interleaved = ArrangementOf(w.dtype).is_interleaved;
  const avx512::GroupOrder order(w.groups);
  for (int64_t first = begin; first < end; first += avx512::kTileTokens) {
    const int64_t count = end - first < avx512::kTileTokens ? end - first : avx512::kTileTokens;
    const QuantizedGroup* rows[avx512::kTileTokens];
    for (int64_t i = 0; i < count; ++i) rows[i] = x.groups + x.Row(first + i) * x.groups_stride;
    avx512::TokenGroup* to = out + first / avx512::kTileTokens * w.groups;
    for (int64_t g = 0; g < w.groups; ++g) {
      __m512i words[16];
      for (int64_t i = 0; i < 16; ++i) {
        words[i] = _mm512_setzero_si512();
        if (i < count) words[i] = _mm512_maskz_loadu_epi32(0x0FFF, rows[i] + g);
        if (is_interleaved) words[i] = _mm512_permutexvar_epi8(even_odd, words[i]);
      }
      Transpose16(words);
      avx512::TokenGroup& group = to[order.At(g)];
      for (int k = 0; k < 8; ++k) _mm512_store_si512(group.q[k], words[k]);
      _mm512_store_si512(group.scale, words[8]);
      _mm512_store_si512(group.minus_zero, words[zero]);
    }
  }
}

}  // namespace

namespace avx512 {

int64_t ArrangedBytes(const WeightLayout& w, int64_t tokens) {
  if (tokens >= kBlockTokens)
    return TokenTilesOf(tokens) * w.groups * static_cast<int64_t>(sizeof(TokenGroup));
  return tokens * UnitsOf(w.groups) * static_cast<int64_t>(sizeof(UnitInput));
}

void Arrange(const WeightLayout& w, const TokenRows& x, int64_t begin, int64_t end, std::byte* out) {
  if (x.count >= kBlockTokens) return ArrangeTiles(w, x, begin, end, reinterpret_cast<TokenGroup*>(out));
  const Arrangement order = ArrangementOf(w.dtype);
  for (int64_t i = begin; i < end; ++i) {
    const QuantizedGroup* row = x.groups + x.Row(i) * x.groups_stride;
    UnitInput* units = reinterpret_cast<UnitInput*>(out) + i * UnitsOf(w.groups);
    if (order.is_interleaved) {
      ArrangeRow<true>(row, x.groups_stride, order.zero, units);
    } else {
      ArrangeRow<false>(row, x.groups_stride, order.zero, units);
    }
  }
}

}  // namespace avx512
}  // namespace cmforge
