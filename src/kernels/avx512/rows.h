// Few tokens: weights stream by once. A task's rows are cut into four ranges that advance together, a unit of
// each in turn: four ascending streams keep more cache lines under way than one does, since prefetchers follow
// each stream only to the end of its page (Emerald Rapids, one core, 4 KiB pages: one stream 13.1 GB/s, four
// 15.5; on 2 MiB pages 16.4 and 16.5).
//
// A unit is 512 columns: 16 groups, one for each partial sum. An encoding gives for each of a unit's four
// steps (four groups) two vectors of unsigned codes with 16 codes of each group in the group's 128-bit lane
// (its first and second half, or its even and odd elements), and the unit's 16 group scales. Two integer dot
// products a step leave four words per group; three rounds of unpack-and-add turn a unit's words into its 16
// group sums, in lanes 4 * (group % 4) + group / 4 ("unit order"); one convert and one fused multiply-add
// finish 512 weights.
//
//   class Encoding {                             // made once a task
//     static constexpr bool kIsInterleaved;      // even/odd elements instead of halves
//     static constexpr bool kHasGroupScales;
//     static constexpr bool kPrefetches;         // rows do not lie on cache lines
//     static constexpr int32_t kZero;            // of its codes; kZeroByRow: row_zero() says
//     explicit Encoding(const WeightLayout& w);
//     void Start(int64_t row) const;             // of a range: may ask for what its first rows read
//     void Begin(int64_t row, int64_t rows);     // these rows follow, at most kRowsAtOnce; may prepare them
//     void SetRow(int64_t row);
//     int64_t unit_bytes() const;
//     const std::byte* At(int64_t unit) const;   // the unit's codes
//     template <int kStep> void Step(const std::byte* at, __m512i& first, __m512i& second) const;
//     void Codes(const std::byte* at, __m512i (&first)[4], __m512i (&second)[4]) const;  // where steps share work
//     __m512 Scales(const std::byte* at, int64_t unit) const;   // unit order
//   };
// The last unit of a row may be partial: then what follows the row is read too, and meets zero activations.
// At the end of the payload it is read from a copy instead.
#pragma once

#include "kernels/avx512/common.h"

namespace cmforge {
namespace {

constexpr int64_t kStreams = 4;
constexpr int64_t kTokenTile = 4;  // tokens that share one unpacking
constexpr int64_t kRowsAtOnce = 4;
constexpr int64_t kUnitSteps = 4, kStepGroups = 4, kUnitGroups = 16, kUnitColumns = 512;
constexpr int64_t kUnitBytesMax = 512;
constexpr int32_t kZeroByRow = -1;  // as Encoding::kZero

/// One unit's activations, arranged for the encoding.
struct alignas(64) UnitInput {
  struct {
    int8_t first[64], second[64];  // lane of the group: the 16 elements that match Codes()
  } step[kUnitSteps];
  float scale[kUnitGroups];         // unit order
  int32_t minus_zero[kUnitGroups];  // unit order, -kZero * sum
};

constexpr int64_t UnitsOf(int64_t groups) { return (groups + kUnitGroups - 1) / kUnitGroups; }

// Ranges that advance together are prefetched by hand where loads straddle cache lines, which confuses the
// processor's prefetchers, and everywhere where that pays (WantsPrefetch): Emerald Rapids, one core, from memory, q8_row
// 12.0 GB/s without and 14.5 with; Zen 5 25 and 31, and two cores 50 and 60. On Zen 4 prefetching whole lines that are
// read in order costs a fifth.
constexpr int64_t kPrefetchAhead = 2048;
CMFORGE_INLINE void PrefetchLine(const std::byte* at) {
  _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T0);
}
CMFORGE_INLINE void Prefetch(const std::byte* at, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) PrefetchLine(at + i);
}

template <class Encoding>
concept HasSteps = requires(const Encoding& row, const std::byte* at, __m512i& v) {
  row.template Step<0>(at, v, v);
};

/// All four steps of the unit at `at`.
template <class Encoding>
CMFORGE_INLINE void CodesOf(const Encoding& row, const std::byte* at, __m512i (&first)[kUnitSteps],
                            __m512i (&second)[kUnitSteps]) {
  if constexpr (HasSteps<Encoding>) {
    row.template Step<0>(at, first[0], second[0]);
    row.template Step<1>(at, first[1], second[1]);
    row.template Step<2>(at, first[2], second[2]);
    row.template Step<3>(at, first[3], second[3]);
  } else {
    row.Codes(at, first, second);
  }
}

/// Where to read a partial unit from: in place, or from `copy` where the payload ends before the unit does.
template <class Encoding>
CMFORGE_INLINE const std::byte* PartialUnitAt(const Encoding& row, const WeightLayout& w, int64_t unit,
                                              std::byte* copy) {
  const std::byte* at = row.At(unit);
  const int64_t left = w.end - at, wanted = row.unit_bytes();
  if (wanted <= left) return at;
  for (int64_t i = 0; i < wanted; i += 64)
    _mm512_storeu_si512(copy + i, LoadBytes(at + i, LowBytes(left - i)));
  return copy;
}

/// The mask, in unit order, of the groups that a partial unit has.
CMFORGE_INLINE __mmask16 GroupsOfUnit(const WeightLayout& w, int64_t unit) {
  const __m512i group = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm512_cmplt_epi32_mask(group, _mm512_set1_epi32(static_cast<int>(w.groups - unit * kUnitGroups)));
}

/// Adds a unit to the partial sums (unit order) of each token.
template <class Encoding, int kTokens, bool kIsFull>
CMFORGE_INLINE void Unit(const Encoding& row, const WeightLayout& w, int64_t unit,
                         const UnitInput* const (&x)[kTokens], __m512 (&partials)[kTokens]) {
  alignas(64) std::byte copy[kIsFull ? 1 : kUnitBytesMax];
  const std::byte* at = kIsFull ? row.At(unit) : PartialUnitAt(row, w, unit, copy);
  __m512i first[kUnitSteps], second[kUnitSteps];
  CodesOf(row, at, first, second);
  __m512 weight_scales = _mm512_setzero_ps();
  if constexpr (Encoding::kHasGroupScales) {
    weight_scales = row.Scales(at, unit);
    if constexpr (!kIsFull) weight_scales = _mm512_maskz_mov_ps(GroupsOfUnit(w, unit), weight_scales);
  }
  for (int t = 0; t < kTokens; ++t) {
    const UnitInput& in = x[t][unit];
    __m512i dots[kUnitSteps];
    for (int s = 0; s < kUnitSteps; ++s) {
      dots[s] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), first[s], _mm512_load_si512(in.step[s].first));
      dots[s] = _mm512_dpbusd_epi32(dots[s], second[s], _mm512_load_si512(in.step[s].second));
    }
    __m512i minus_zero = _mm512_load_si512(in.minus_zero);
    if constexpr (Encoding::kZero == kZeroByRow) {
      minus_zero = _mm512_mullo_epi32(minus_zero, _mm512_set1_epi32(row.row_zero()));
    }
    const __m512i sums = _mm512_add_epi32(SumFours(dots[0], dots[1], dots[2], dots[3]), minus_zero);
    __m512 scales = _mm512_load_ps(in.scale);
    if constexpr (Encoding::kHasGroupScales) scales = _mm512_mul_ps(weight_scales, scales);
    partials[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums), scales, partials[t]);
  }
}

/// A full unit of every stream for one token, a step of each in turn: memory answers short stretches of four streams
/// faster than whole units (Zen 5, one core, q8_row 27 and 30 GB/s, q4_tiled 27 and 29).
template <class Encoding>
CMFORGE_INLINE void SteppedUnit(Encoding* const (&stream)[kStreams], int64_t unit, const UnitInput& in,
                                bool prefetches, __m512 (&partials)[kStreams][1]) {
  __m512i dots[kStreams][kUnitSteps];
  const auto step = [&]<int kStep>() {
    constexpr int64_t kBegin = Encoding::unit_bytes() * kStep / kUnitSteps,
                      kEnd = Encoding::unit_bytes() * (kStep + 1) / kUnitSteps;
    const __m512i x_first = _mm512_load_si512(in.step[kStep].first),
                  x_second = _mm512_load_si512(in.step[kStep].second);
#pragma GCC unroll 4
    for (int64_t s = 0; s < kStreams; ++s) {
      const std::byte* at = stream[s]->At(unit);
      if (prefetches) {  // lines that begin in the step
        for (int64_t i = (kBegin + 63) / 64 * 64; i < kEnd; i += 64) PrefetchLine(at + kPrefetchAhead + i);
      }
      __m512i first, second;
      stream[s]->template Step<kStep>(at, first, second);
      dots[s][kStep] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), first, x_first);
      dots[s][kStep] = _mm512_dpbusd_epi32(dots[s][kStep], second, x_second);
    }
  };
  step.template operator()<0>();
  step.template operator()<1>();
  step.template operator()<2>();
  step.template operator()<3>();
#pragma GCC unroll 4
  for (int64_t s = 0; s < kStreams; ++s) {
    const __m512i sums = _mm512_add_epi32(SumFours(dots[s][0], dots[s][1], dots[s][2], dots[s][3]),
                                          _mm512_load_si512(in.minus_zero));
    __m512 scales = _mm512_load_ps(in.scale);
    if constexpr (Encoding::kHasGroupScales)
      scales = _mm512_mul_ps(stream[s]->Scales(stream[s]->At(unit), unit), scales);
    partials[s][0] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums), scales, partials[s][0]);
  }
}

/// The tree of table.h over four rows' partial sums in unit order: partial 4 s + i is lane 4 i + s.
CMFORGE_INLINE __m128 TreesOfUnitOrder(__m512 a, __m512 b, __m512 c, __m512 d) {
  const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));  // s and s + 2
  const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
  const __m512d ab_pairs = _mm512_castps_pd(ab), cd_pairs = _mm512_castps_pd(cd);
  const __m512 rows = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(ab_pairs, cd_pairs)),  // s and s + 1
                                    _mm512_castpd_ps(_mm512_unpackhi_pd(ab_pairs, cd_pairs)));
  const __m256 half =
      _mm256_add_ps(_mm512_castps512_ps256(rows), _mm512_extractf32x8_ps(rows, 1));  // i and i + 2
  return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

/// One row of each stream, a unit of each in turn: rows at[s], of which the first `streams` are stored.
template <class Encoding, int kTokens>
CMFORGE_INLINE void TokensOfRows(Encoding* const (&stream)[kStreams], const int64_t (&at)[kStreams],
                                 int64_t streams, const WeightLayout& w, const TokenRows& x, int64_t token,
                                 float* out, int64_t out_stride) {
  const int64_t units = UnitsOf(w.groups), full_units = w.cols / kUnitColumns;
  const bool prefetches = Encoding::kPrefetches || x.wants_prefetch;
  const UnitInput* inputs[kTokens];
  for (int t = 0; t < kTokens; ++t) {
    inputs[t] = reinterpret_cast<const UnitInput*>(x.arranged) + (token + t) * units;
  }
  __m512 partials[kStreams][kTokens];
  for (int64_t s = 0; s < kStreams; ++s) {
    for (int t = 0; t < kTokens; ++t) partials[s][t] = _mm512_setzero_ps();
  }
  for (int64_t unit = 0; unit < full_units; ++unit) {
    // Loads of its own for each stream, here and above: where one load goes from stream to stream, prefetchers that
    // follow a load (Zen 5) see steps of that distance and fetch what nobody reads, as much again as what is read.
    if constexpr (kTokens == 1 && HasSteps<Encoding>) {
      SteppedUnit(stream, unit, inputs[0][unit], prefetches, partials);
      continue;
    }
#pragma GCC unroll 4
    for (int64_t s = 0; s < kStreams; ++s) {
      const Encoding& row = *stream[s];
      if (prefetches) Prefetch(row.At(unit) + kPrefetchAhead, row.unit_bytes());
      Unit<Encoding, kTokens, true>(row, w, unit, inputs, partials[s]);
    }
  }
  if (full_units < units) {
    for (int64_t s = 0; s < kStreams; ++s)
      Unit<Encoding, kTokens, false>(*stream[s], w, full_units, inputs, partials[s]);
  }
  for (int t = 0; t < kTokens; ++t) {
    alignas(16) float y[kStreams];
    _mm_store_ps(y, TreesOfUnitOrder(partials[0][t], partials[1][t], partials[2][t], partials[3][t]));
    for (int64_t s = 0; s < streams; ++s) {
      if constexpr (!Encoding::kHasGroupScales) y[s] *= HalfAt(w.scales + 2 * at[s]);
      out[(token + t) * out_stride + at[s]] = y[s];
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
  // Of all ranges, before the first waits for its own.
  for (int64_t s = 0; s < kStreams; ++s) made[s].Start(begin_of(s));
  for (int64_t i = 0; begin_of(0) + i < row_end; ++i) {
    Encoding* stream[kStreams];
    int64_t at[kStreams];
    int64_t streams = 0;
    for (int64_t s = 0; s < kStreams; ++s) {
      const int64_t begin = begin_of(s), left = begin_of(s + 1) - begin - i;
      if (left <= 0) continue;  // ranges differ by one row
      Encoding& own = made[s];
      if (i % kRowsAtOnce == 0) own.Begin(begin + i, left < kRowsAtOnce ? left : kRowsAtOnce);
      own.SetRow(begin + i);
      stream[streams] = &own;
      at[streams++] = begin + i;
    }
    if (streams == 0) break;
    for (int64_t s = streams; s < kStreams; ++s) stream[s] = stream[0];
    AllTokensOfRows(stream, at, streams, w, x, out, out_stride);
  }
}

}  // namespace
}  // namespace cmforge
