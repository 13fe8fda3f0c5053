// Few tokens: weights stream by once, unpacked in registers. A task's rows are cut into ranges that advance together, a
// pair of units of each in turn, so that several ascending streams keep cache lines under way.
//
// A unit is 256 columns: eight groups, so two units are one turn of the sixteen partial sums. An encoding gives for
// each of a unit's four steps (two groups) two vectors of codes with 16 codes of each group in the group's 128-bit lane
// (its first and second half, its even and odd elements, or as Order says), and the unit's group scales. The sums of a
// unit's groups come out in lanes group / 2 + 4 * (group % 2) ("unit order").
//
// Codes are small (below 16) or wide (signed bytes). Sums of products of small codes fit 16 bits until a group's 32
// products are down to two; wide ones are multiplied as |code| times the activation with the code's sign, since two
// products of an unsigned and a signed byte may not fit 16 bits, and are added in 32.
//
//   class Encoding {                             // made once a task
//     static constexpr Order kOrder;
//     static constexpr bool kHasGroupScales, kIsWide;
//     static constexpr bool kIsLive;             // of a matrix seen through some of its groups
//     static constexpr int32_t kZero;            // of its codes
//     static constexpr int64_t kOverread;        // bytes past a unit that are read too
//     explicit Encoding(const WeightLayout& w);
//     void Begin(int64_t row, int64_t rows);     // these rows follow, at most kRowsAtOnce; may prepare them
//     void SetRow(int64_t row);
//     int64_t unit_bytes() const;
//     const std::byte* At(int64_t unit) const;   // the unit's codes; where the list of its groups is
//     void Codes(const std::byte* at, __m256i (&first)[4], __m256i (&second)[4]) const;
//     template <bool kIsFull> __m256 Scales(const std::byte* at, int64_t unit) const;   // unit order
//   };
// The last unit of a row may be partial: then what follows the row is read too, and meets zero activations. At the end
// of the payload it is read from a copy instead.
#pragma once

#include "kernels/avx2/common.h"

namespace cmforge {
namespace {

constexpr int64_t kStreams = 4;
constexpr int64_t kTokenTile = 4;  // tokens that share one unpacking
constexpr int64_t kRowsAtOnce = 32;
constexpr int64_t kUnitSteps = 4, kUnitGroups = 8, kUnitColumns = 256;
constexpr int64_t kUnitBytesMax = 256;

/// Which elements of a group are its first 16: the first half, the even ones, or those at 0 and 1 modulo 4.
enum class Order : uint8_t { kHalves, kEvenOdd, kFours };

/// One unit's activations, arranged for the encoding.
struct alignas(32) UnitInput {
  struct {
    int8_t first[32], second[32];  // lane of the group: the 16 elements that match Codes()
  } step[kUnitSteps];
  float scale[kUnitGroups];         // unit order
  int32_t minus_zero[kUnitGroups];  // unit order, -kZero * sum
};

constexpr int64_t UnitsOf(int64_t groups) { return (groups + kUnitGroups - 1) / kUnitGroups; }

/// Units that have all their groups and columns.
template <class Encoding>
CMFORGE_INLINE int64_t FullUnits(const WeightLayout& w) {
  return Encoding::kIsLive ? w.groups / kUnitGroups : w.cols / kUnitColumns;
}

constexpr int64_t kPrefetchAhead = 1024;

/// Where to read a unit from: in place, or from `copy` where the payload ends before the unit does.
template <class Encoding>
CMFORGE_INLINE const std::byte* LastUnitAt(const Encoding& row, const WeightLayout& w, int64_t unit,
                                           std::byte* copy) {
  const std::byte* at = row.At(unit);
  if constexpr (Encoding::kIsLive) return at;
  const int64_t left = w.end - at, wanted = row.unit_bytes() + Encoding::kOverread;
  if (wanted <= left) return at;
  for (int64_t i = 0; i < wanted; ++i) copy[i] = i < left ? at[i] : std::byte{0};
  return copy;
}

/// Zero for the lanes, in unit order, of groups that a partial unit does not have.
CMFORGE_INLINE __m256 WithoutMissing(__m256 scales, const WeightLayout& w, int64_t unit) {
  const __m256i group = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
  const __m256i count = _mm256_set1_epi32(static_cast<int>(w.groups - unit * kUnitGroups));
  return _mm256_and_ps(scales, _mm256_castsi256_ps(_mm256_cmpgt_epi32(count, group)));
}

/// The integer sums of a unit's groups.
template <bool kIsWide>
CMFORGE_INLINE __m256i UnitSums(const __m256i (&first)[kUnitSteps], const __m256i (&second)[kUnitSteps],
                                const UnitInput& in) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i v[kUnitSteps];
#pragma GCC unroll 4
  for (int s = 0; s < kUnitSteps; ++s) {
    const __m256i a = Load32(in.step[s].first), b = Load32(in.step[s].second);
    if constexpr (kIsWide) {
      const auto dot = [&](__m256i codes, __m256i x) {
        return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(x, codes)),
                                 ones);
      };
      v[s] = _mm256_add_epi32(dot(first[s], a), dot(second[s], b));
    } else {
      v[s] = _mm256_add_epi16(_mm256_maddubs_epi16(first[s], a), _mm256_maddubs_epi16(second[s], b));
    }
  }
  if constexpr (kIsWide) {
    const __m256i low =
        _mm256_add_epi32(_mm256_unpacklo_epi32(v[0], v[1]), _mm256_unpackhi_epi32(v[0], v[1]));
    const __m256i high =
        _mm256_add_epi32(_mm256_unpacklo_epi32(v[2], v[3]), _mm256_unpackhi_epi32(v[2], v[3]));
    return _mm256_add_epi32(_mm256_unpacklo_epi64(low, high), _mm256_unpackhi_epi64(low, high));
  } else {
    const __m256i low =
        _mm256_add_epi16(_mm256_unpacklo_epi64(v[0], v[1]), _mm256_unpackhi_epi64(v[0], v[1]));
    const __m256i high =
        _mm256_add_epi16(_mm256_unpacklo_epi64(v[2], v[3]), _mm256_unpackhi_epi64(v[2], v[3]));
    const __m256i fours = _mm256_packs_epi32(_mm256_madd_epi16(low, ones), _mm256_madd_epi16(high, ones));
    return _mm256_madd_epi16(fours, ones);
  }
}

/// Adds a unit to half of the partial sums (unit order) of each token.
template <class Encoding, int kTokens, bool kIsFull>
CMFORGE_INLINE void Unit(const Encoding& row, const WeightLayout& w, int64_t unit,
                         const UnitInput* const (&x)[kTokens], __m256 (&partials)[kTokens][2], int half) {
  alignas(32) std::byte copy[kIsFull ? 1 : kUnitBytesMax + Encoding::kOverread];
  const std::byte* at = kIsFull ? row.At(unit) : LastUnitAt(row, w, unit, copy);
  __m256i first[kUnitSteps], second[kUnitSteps];
  row.Codes(at, first, second);
  __m256 weight_scales = _mm256_setzero_ps();
  if constexpr (Encoding::kHasGroupScales) {
    weight_scales = row.template Scales<kIsFull>(at, unit);
    if constexpr (!kIsFull) weight_scales = WithoutMissing(weight_scales, w, unit);
  }
#pragma GCC unroll 4
  for (int t = 0; t < kTokens; ++t) {
    const UnitInput& in = x[t][unit];
    __m256i sums = UnitSums<Encoding::kIsWide>(first, second, in);
    if constexpr (Encoding::kZero != 0) sums = _mm256_add_epi32(sums, Load32(in.minus_zero));
    __m256 scales = _mm256_load_ps(in.scale);
    if constexpr (Encoding::kHasGroupScales) scales = _mm256_mul_ps(weight_scales, scales);
    partials[t][half] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums), scales, partials[t][half]);
  }
}

/// The tree of table.h over partial sums in unit order.
CMFORGE_INLINE float TreeOfUnitOrder(const __m256 (&partials)[2]) {
  const __m256 eight = _mm256_add_ps(partials[0], partials[1]);
  const __m256 four = _mm256_add_ps(eight, _mm256_permute_ps(eight, 0xEE));
  const __m256 two = _mm256_add_ps(four, _mm256_permute_ps(four, 0x55));
  return _mm_cvtss_f32(_mm_add_ss(_mm256_castps256_ps128(two), _mm256_extractf128_ps(two, 1)));
}

/// One row of each stream, two units of each in turn: rows at[s], of which the first `streams` are stored.
template <class Encoding, int kTokens>
CMFORGE_INLINE void TokensOfRows(Encoding* const (&stream)[kStreams], const int64_t (&at)[kStreams],
                                 int64_t streams, const WeightLayout& w, const TokenRows& x, int64_t token,
                                 float* out, int64_t out_stride) {
  const int64_t units = UnitsOf(w.groups);
  int64_t full_units = FullUnits<Encoding>(w);
  if constexpr (Encoding::kOverread > 0) {
    for (int64_t s = 0; s < streams; ++s) {
      if (full_units > 0 && w.end - stream[s]->At(full_units) < Encoding::kOverread) --full_units;
    }
  }
  const UnitInput* inputs[kTokens];
  for (int t = 0; t < kTokens; ++t) {
    inputs[t] = reinterpret_cast<const UnitInput*>(x.arranged) + (token + t) * units;
  }
  __m256 partials[kStreams][kTokens][2];
  for (int64_t s = 0; s < kStreams; ++s) {
    for (int t = 0; t < kTokens; ++t) partials[s][t][0] = partials[s][t][1] = _mm256_setzero_ps();
  }
  int64_t unit = 0;
  for (; unit + 2 <= full_units; unit += 2) {
    // Loads of its own for each stream (avx512/rows.h).
#pragma GCC unroll 4
    for (int64_t s = 0; s < kStreams; ++s) {
      const Encoding& row = *stream[s];
      if (x.wants_prefetch && !Encoding::kIsLive) {
        for (int64_t i = 0; i < 2 * row.unit_bytes(); i += 64)
          PrefetchLine(row.At(unit) + kPrefetchAhead + i);
      }
      Unit<Encoding, kTokens, true>(row, w, unit, inputs, partials[s], 0);
      Unit<Encoding, kTokens, true>(row, w, unit + 1, inputs, partials[s], 1);
    }
  }
  for (; unit < units; ++unit) {
    for (int64_t s = 0; s < kStreams; ++s) {
      if (unit % 2 == 0) {
        Unit<Encoding, kTokens, false>(*stream[s], w, unit, inputs, partials[s], 0);
      } else {
        Unit<Encoding, kTokens, false>(*stream[s], w, unit, inputs, partials[s], 1);
      }
    }
  }
  for (int64_t s = 0; s < streams; ++s) {
    for (int t = 0; t < kTokens; ++t) {
      float y = TreeOfUnitOrder(partials[s][t]);
      if constexpr (!Encoding::kHasGroupScales) y *= HalfAt(w.scales + 2 * at[s]);
      out[(token + t) * out_stride + at[s]] = y;
    }
  }
}

template <class Encoding>
CMFORGE_INLINE void AllTokensOfRows(Encoding* const (&stream)[kStreams], const int64_t (&at)[kStreams],
                                    int64_t streams, const WeightLayout& w, const TokenRows& x, float* out,
                                    int64_t out_stride) {
  int64_t token = 0;
  for (; token + kTokenTile <= x.count; token += kTokenTile) {
    TokensOfRows<Encoding, kTokenTile>(stream, at, streams, w, x, token, out, out_stride);
  }
  switch (x.count - token) {
    case 3:
      TokensOfRows<Encoding, 3>(stream, at, streams, w, x, token, out, out_stride);
      break;
    case 2:
      TokensOfRows<Encoding, 2>(stream, at, streams, w, x, token, out, out_stride);
      break;
    case 1:
      TokensOfRows<Encoding, 1>(stream, at, streams, w, x, token, out, out_stride);
      break;
    default:
      break;
  }
}

/// The task's rows in kStreams ranges that advance together.
template <class Encoding>
void RowsProduct(const WeightLayout& w, int64_t row_begin, int64_t row_end, const TokenRows& x, float* out,
                 int64_t out_stride) {
  Encoding made[kStreams] = {Encoding(w), Encoding(w), Encoding(w), Encoding(w)};
  const int64_t count = row_end - row_begin;
  const auto begin_of = [&](int64_t s) { return row_begin + count * s / kStreams; };
  for (int64_t i = 0; i < (count + kStreams - 1) / kStreams; ++i) {
    Encoding* stream[kStreams];
    int64_t at[kStreams];
    int64_t streams = 0;
    for (int64_t s = 0; s < kStreams; ++s) {
      const int64_t begin = begin_of(s), left = begin_of(s + 1) - begin - i;
      if (left <= 0) continue;
      Encoding& own = made[s];
      if (i % kRowsAtOnce == 0) own.Begin(begin + i, left < kRowsAtOnce ? left : kRowsAtOnce);
      own.SetRow(begin + i);
      stream[streams] = &own;
      at[streams++] = begin + i;
    }
    for (int64_t s = streams; s < kStreams; ++s) stream[s] = stream[0];  // ranges differ by one row
    AllTokensOfRows(stream, at, streams, w, x, out, out_stride);
  }
}

}  // namespace
}  // namespace cmforge
