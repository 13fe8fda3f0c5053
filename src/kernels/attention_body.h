// Softmax attention of a few queries over the pages of one kv head; included once by each instruction set's
// file. Queries share every load of a page. Lanes are keys while scoring and value channels while summing, so
// no result depends on the vector width.
#pragma once

#include <limits>
#include <type_traits>

#include "kernels/attention.h"
#include "kernels/elementwise_vec.h"
#include "kernels/isa.h"

namespace cmforge {
namespace {

constexpr int kTileVecs = static_cast<int>(kTilePositions) / kLanes;
constexpr int kPageTiles = static_cast<int>(kPagePositions / kTilePositions);

// Every sum is one chain of fused multiply-adds, so enough of them must be under way to hide its latency, and each
// loaded key or value should serve many queries. Converting as it loads, a block is kInPlace queries high, so that few
// keys are converted twice; over what is unpacked already, six queries take the fewest loads for their sums.
#if defined(CMFORGE_VEC_AVX512)
constexpr int kAccumulators = 16, kInPlace = 8, kUnpackedAccumulators = 24;
#elif defined(CMFORGE_VEC_AVX2)
constexpr int kAccumulators = 8, kInPlace = 4, kUnpackedAccumulators = 12;
#else
constexpr int kAccumulators = 16, kInPlace = 4, kUnpackedAccumulators = 24;
#endif
constexpr int kUnpacked = 6;

constexpr int64_t kMostQueries = 128;  // scored together

/// Tiles whose scores are made together: 1, 2 or 4.
constexpr int TilesAtOnce(int queries, int accumulators) {
  const int tiles = accumulators / queries / kTileVecs;
  return tiles >= 4 ? 4 : tiles >= 2 ? 2 : 1;
}
/// Vectors of channels that are summed together: of whole groups of kKvGroup or of one.
constexpr int ChannelsAtOnce(int queries, int accumulators) {
  const int vecs = accumulators / queries;
  return vecs >= 8 && kLanes == 16 ? 8 : vecs >= 4 ? 4 : vecs >= 2 ? 2 : 1;
}

/// One head's page as the loops below read it: in place, or unpacked.
struct PageView {
  const std::byte* keys = nullptr;
  const float* key_scales = nullptr;
  const std::byte* values = nullptr;
  const float* value_scales = nullptr;
  const std::byte *after_keys = nullptr, *after_values = nullptr;  // what is read next, in place
};

template <KvType kType>
constexpr int64_t kBytesOf = kType == KvType::kF32   ? 4
                             : kType == KvType::kF16 ? 2
                                                     : 1;

// Keys, values and the next page's keys are stretches too short for the processor to foresee. What is asked for:
enum class Asks : uint8_t {
  kNextHalf,  // the next half of a page, into L1
  kNextPage,  // the next page, into L2, whose requests outnumber those of L1 (a tenth faster on a Xeon than into L1)
  kStreams,  // each tile of keys and group of values a little ahead, into L1, by instructions of its own, which the
             // prefetchers of Zen 5 follow; where the next ones begin they learn of it early
};
constexpr int64_t kLine = 64, kLead = 32 * kLine, kFirstLines = 4 * kLine;

template <Asks kAsks>
CMFORGE_INLINE void AskLine(const void* p) {
  __builtin_prefetch(p, 0, kAsks == Asks::kNextPage ? 2 : 3);
}

/// In step i of `steps` through kStreams streams side by side, of kStep bytes a step and lying `stride` bytes apart:
/// asks for a share of what is read after `here`.
template <Asks kAsks, int kStreams, int64_t kStep>
CMFORGE_INLINE void AskAhead(const std::byte* here, const std::byte* after, int64_t stride, int64_t i,
                             int64_t steps) {
  constexpr int64_t kBytes = kAsks == Asks::kStreams ? kStep : kStreams * kStep;
  if (kBytes < kLine && i % (kLine / kBytes) != 0) return;
  for (int64_t at = i * kBytes; at < (i + 1) * kBytes; at += kLine) {
    if constexpr (kAsks == Asks::kStreams) {
      const int64_t over = at + kLead - steps * kStep;
      const std::byte* from = over < 0 ? here + at + kLead : after + over;
#pragma GCC unroll 4
      for (int n = 0; n < kStreams; ++n) AskLine<kAsks>(from + n * stride);
      if (at >= kFirstLines) continue;
#pragma GCC unroll 4
      for (int n = 0; n < kStreams; ++n) AskLine<kAsks>(after + at + n * stride);
    } else {
      AskLine<kAsks>(after + at);
    }
  }
}

template <KvType kType>
CMFORGE_INLINE VecF LoadKv(const std::byte* p, int64_t index) {
  if constexpr (kType == KvType::kF32) {
    return Load(reinterpret_cast<const float*>(p) + index);
  } else if constexpr (kType == KvType::kF16) {
    return LoadF16(reinterpret_cast<const uint16_t*>(p) + index);
  } else {
    return LoadI8(reinterpret_cast<const int8_t*>(p) + index);
  }
}

template <KvType kType>
CMFORGE_INLINE float ScalarKv(const std::byte* p, int64_t index) {
  if constexpr (kType == KvType::kF32) {
    return reinterpret_cast<const float*>(p)[index];
  } else if constexpr (kType == KvType::kF16) {
    return F16ToF32(reinterpret_cast<const uint16_t*>(p)[index]);
  } else {
    return static_cast<float>(reinterpret_cast<const int8_t*>(p)[index]);
  }
}

/// scores[n][position] for kCount queries and kTiles tiles from `tile` on: sums over key_dim in ascending order
/// (with scales: group by group, each group's sum times the key's scale).
template <class Form, int kCount, int kTiles>
CMFORGE_INLINE void ScoreTiles(const KvPageLayout& layout, const PageView& page, int tile,
                               const AttendQuery* queries, float (*scores)[kPagePositions]) {
  constexpr int kVecs = kTiles * kTileVecs;
  const int64_t dim = layout.key_dim;
  constexpr int64_t kStep = kTilePositions * kBytesOf<Form::kType>,
                    kSteps = kStep < kLine ? kLine / kStep : 1;
  const std::byte *keys = page.keys + tile * dim * kStep, *after = page.after_keys + tile * dim * kStep;
  const int64_t stride = dim * kStep;
  const auto row_of = [&](int n, int v) { return &scores[n][tile * kTilePositions + v * kLanes]; };
  const int64_t group = Form::kHasKeyScales ? kKvGroup : dim;
  for (int64_t begin = 0; begin < dim; begin += group) {
    VecF sums[kCount][kVecs] = {};
    const int64_t end = begin + group < dim ? begin + group : dim;
    const auto add = [&](int64_t d) __attribute__((always_inline)) {
      VecF key[kVecs];
      for (int v = 0; v < kVecs; ++v)
        key[v] = LoadKv<Form::kType>(keys + v / kTileVecs * stride + d * kStep, v % kTileVecs * kLanes);
      for (int n = 0; n < kCount; ++n) {
        const VecF q = Set(queries[n].q[d]);
        for (int v = 0; v < kVecs; ++v) sums[n][v] = Fma(q, key[v], sums[n][v]);
      }
    };
    int64_t d = begin;
    for (; d + kSteps <= end; d += kSteps) {  // a line of each tile
      if constexpr (Form::kIsInPlace)
        AskAhead<Form::kAsks, kTiles, kStep * kSteps>(keys, after, stride, d / kSteps, dim / kSteps);
#pragma GCC unroll 4
      for (int64_t i = 0; i < kSteps; ++i) add(d + i);
    }
    for (; d < end; ++d) add(d);
    for (int v = 0; v < kVecs; ++v) {
      if constexpr (Form::kHasKeyScales) {
        const int64_t groups = (dim + kKvGroup - 1) / kKvGroup;
        const VecF scale =
            Load(page.key_scales + ((tile + v / kTileVecs) * groups + begin / kKvGroup) * kTilePositions +
                 v % kTileVecs * kLanes);
        for (int n = 0; n < kCount; ++n)
          sums[n][v] = Fma(sums[n][v], scale, begin == 0 ? VecF{} : Load(row_of(n, v)));
      }
      for (int n = 0; n < kCount; ++n) Store(row_of(n, v), sums[n][v]);
    }
  }
}

/// Tiles [tile, end), kTiles at once as long as there are as many.
template <class Form, int kCount, int kTiles>
CMFORGE_INLINE void ScoreRange(const KvPageLayout& layout, const PageView& page, int tile, int end,
                               const AttendQuery* queries, float (*scores)[kPagePositions]) {
  for (; tile + kTiles <= end; tile += kTiles)
    ScoreTiles<Form, kCount, kTiles>(layout, page, tile, queries, scores);
  if constexpr (kTiles > 1) ScoreRange<Form, kCount, kTiles / 2>(layout, page, tile, end, queries, scores);
}

/// What of a page some of a block's queries see: slots [first, last].
struct Seen {
  int64_t first = kPagePositions, last = -1;

  Seen(const AttendQuery* queries, int count, int64_t origin) {
    for (int n = 0; n < count; ++n) {
      const int64_t from = queries[n].first - origin, to = queries[n].last - origin;
      first = from < first ? from : first;
      last = to > last ? to : last;
    }
    first = first < 0 ? 0 : first;
    last = last < kPagePositions ? last : kPagePositions - 1;
  }
  [[nodiscard]] bool nothing() const { return first > last; }
  [[nodiscard]] int first_tile() const { return static_cast<int>(first / kTilePositions); }
  [[nodiscard]] int end_tile() const { return static_cast<int>(last / kTilePositions) + 1; }
};

/// acc[n][c ...] += sum over slots of weights[n][slot] * value[slot][c ...], slots in ascending order, for as many
/// stretches of kVecs vectors as there are from `c` on. Returns the first channel that is left.
template <class Form, int kCount, int kVecs>
CMFORGE_INLINE int64_t AddChannels(const KvPageLayout& layout, const PageView& page,
                                   const AttendQuery* queries, const float (*weights)[kPagePositions],
                                   const Seen& seen, int64_t c) {
  const int64_t dim = layout.value_dim, groups = (dim + kKvGroup - 1) / kKvGroup;
  // Whole groups of channels, or a part of one.
  constexpr int64_t kWidth = kVecs * kLanes, kGroups = kWidth > kKvGroup ? kWidth / kKvGroup : 1;
  for (; c + kWidth <= dim; c += kWidth) {
    const int64_t width = kWidth >= kKvGroup ? kKvGroup : layout.ValueAt(1, c) - layout.ValueAt(0, c);
    const int64_t origin = c * kPagePositions * kBytesOf<Form::kType>;
    VecF sums[kCount][kVecs];
    for (int n = 0; n < kCount; ++n) {
      for (int v = 0; v < kVecs; ++v) sums[n][v] = Load(queries[n].acc + c + v * kLanes);
    }
    for (int64_t slot = seen.first; slot <= seen.last; ++slot) {
      if constexpr (Form::kIsInPlace) {
        AskAhead<Form::kAsks, kGroups, kWidth / kGroups * kBytesOf<Form::kType>>(
            page.values + origin, page.after_values + origin,
            kKvGroup * kPagePositions * kBytesOf<Form::kType>, slot, kPagePositions);
      }
      VecF value[kVecs];
      for (int v = 0; v < kVecs; ++v) {
        value[v] = LoadKv<Form::kType>(page.values, layout.ValueAt(0, c) + slot * width +
                                                        (v * kLanes / kKvGroup) * kKvGroup * kPagePositions +
                                                        v * kLanes % kKvGroup);
        if constexpr (Form::kHasValueScales)  // the vectors lie in one group, or begin with one
          value[v] *= Set(page.value_scales[slot * groups + c / kKvGroup + v * kLanes / kKvGroup]);
      }
      for (int n = 0; n < kCount; ++n) {
        const VecF weight = Set(weights[n][slot]);
        for (int v = 0; v < kVecs; ++v) sums[n][v] = Fma(weight, value[v], sums[n][v]);
      }
    }
    for (int n = 0; n < kCount; ++n) {
      for (int v = 0; v < kVecs; ++v) Store(queries[n].acc + c + v * kLanes, sums[n][v]);
    }
  }
  return c;
}

/// All channels of kCount queries.
template <class Form, int kCount>
CMFORGE_INLINE void AddValues(const KvPageLayout& layout, const PageView& page, int64_t origin,
                              const AttendQuery* queries, const float (*weights)[kPagePositions]) {
  constexpr int kVecs = ChannelsAtOnce(kCount, Form::kMostAccumulators);
  const int64_t dim = layout.value_dim, groups = (dim + kKvGroup - 1) / kKvGroup;
  const Seen seen(queries, kCount, origin);
  if (seen.nothing()) return;
  int64_t c = AddChannels<Form, kCount, kVecs>(layout, page, queries, weights, seen, 0);
  if constexpr (kVecs > 4) c = AddChannels<Form, kCount, 4>(layout, page, queries, weights, seen, c);
  if constexpr (kVecs > 1) c = AddChannels<Form, kCount, 1>(layout, page, queries, weights, seen, c);
  for (; c < dim; ++c) {
    for (int n = 0; n < kCount; ++n) {
      VecF sum = Set(queries[n].acc[c]);
      for (int64_t slot = seen.first; slot <= seen.last; ++slot) {
        float value = ScalarKv<Form::kType>(page.values, layout.ValueAt(slot, c));
        if constexpr (Form::kHasValueScales) value *= page.value_scales[slot * groups + c / kKvGroup];
        sum = Fma(Set(weights[n][slot]), Set(value), sum);
      }
      queries[n].acc[c] = sum[0];
    }
  }
}

/// Turns the scores of kCount queries into weights, exp(score - max), and brings their sums so far to the new maximum,
/// in steps that each query's work can overlap. Weights of slots that a query does not see are 0.
template <int kCount>
CMFORGE_INLINE void WeighBlock(const AttendArgs& args, AttendQuery* queries, int64_t origin, const Seen& seen,
                               float (*scores)[kPagePositions]) {
  constexpr int kPadded = (kCount + kLanes - 1) / kLanes * kLanes;
  const VecF lowest = Set(-std::numeric_limits<float>::infinity());
  const int begin = seen.first_tile() * kTileVecs, end = seen.end_tile() * kTileVecs;
  alignas(64) float max[kPadded] = {}, fall[kPadded] = {};
  for (int n = 0; n < kCount; ++n) {
    float* row = scores[n];
    const int64_t first = queries[n].first - origin, last = queries[n].last - origin;
    const bool sees_all = first <= begin * kLanes && last >= end * kLanes - 1;
    VecF top = Set(queries[n].max);
    for (int v = begin; v < end; ++v) {
      VecF s = Load(row + v * kLanes) * Set(args.scale);
      if (args.softcap > 0) s = Set(args.softcap) * Tanh(s / Set(args.softcap));
      if (!sees_all) s = Between(v * kLanes, first, last) ? s : lowest;
      Store(row + v * kLanes, s);
      top = Max(top, s);
    }
    max[n] = MaxOf(top);
    // Nothing seen so far, in either part: any finite number leaves weights of 0.
    if (max[n] == lowest[0]) max[n] = 0;
    fall[n] = queries[n].max - max[n];
  }
  for (int i = 0; i < kPadded; i += kLanes) Store(fall + i, Exp(Load(fall + i)));
  for (int n = 0; n < kCount; ++n) {
    float* row = scores[n];
    VecF part[kTileVecs] = {};
    for (int v = begin; v < end; v += kTileVecs) {
      for (int i = 0; i < kTileVecs; ++i) {
        const VecF p = Exp(Load(row + (v + i) * kLanes) - Set(max[n]));
        Store(row + (v + i) * kLanes, p);
        part[i] += p;
      }
    }
    if (max[n] != queries[n].max) {
      Map(queries[n].acc, args.layout->value_dim, queries[n].acc, [=](VecF a) { return a * Set(fall[n]); });
    }
    const float sum = SumOf(part);
    queries[n].sum = queries[n].sum * fall[n] + sum;
    if (sum > 0) queries[n].max = max[n];
  }
}

/// Keys as f32 in the page's order; their scales stay apart.
template <KvType kType>
void UnpackKeys(const KvPageLayout& layout, PageView& page, float* to) {
  const int64_t count = kPagePositions * layout.key_dim;  // whole vectors
  for (int64_t i = 0; i < count; i += kLanes) Store(to + i, LoadKv<kType>(page.keys, i));
  page.keys = reinterpret_cast<const std::byte*>(to);
}

/// Values as f32 in the page's order, scales multiplied.
template <KvType kType>
void UnpackValues(const KvPageLayout& layout, PageView& page, float* to) {
  const int64_t dim = layout.value_dim, groups = (dim + kKvGroup - 1) / kKvGroup;
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t begin = group * kKvGroup, width = dim - begin < kKvGroup ? dim - begin : kKvGroup;
    for (int64_t slot = 0; slot < kPagePositions; ++slot) {
      const float scale = kType == KvType::kQ8 ? page.value_scales[slot * groups + group] : 1.0f;
      const int64_t at = begin * kPagePositions + slot * width;
      int64_t c = 0;
      for (; c + kLanes <= width; c += kLanes)
        Store(to + at + c, LoadKv<kType>(page.values, at + c) * Set(scale));
      for (; c < width; ++c) to[at + c] = ScalarKv<kType>(page.values, at + c) * scale;
    }
  }
  page.values = reinterpret_cast<const std::byte*>(to);
}

/// How the loops above meet a page's numbers: as they are stored, or unpacked (values then have their scales already).
template <KvType kStored, Asks kAsk>
struct InPlace {
  static constexpr KvType kType = kStored;
  static constexpr Asks kAsks = kAsk;
  static constexpr bool kIsInPlace = true, kHasKeyScales = kStored == KvType::kQ8,
                        kHasValueScales = kHasKeyScales;
  static constexpr int kMostAccumulators = kAccumulators, kQueries = kInPlace;
};
template <KvType kStored>
struct Unpacked {
  static constexpr KvType kType = KvType::kF32;
  static constexpr bool kIsInPlace = false, kHasKeyScales = kStored == KvType::kQ8, kHasValueScales = false;
  static constexpr int kMostAccumulators = kUnpackedAccumulators, kQueries = kUnpacked;
};

/// fn<queries>(first query) for all queries in the largest blocks that there are.
template <int kMost, class Fn>
CMFORGE_INLINE void ForBlocks(int64_t n, int64_t count, const Fn& fn) {
  for (; n + kMost <= count; n += kMost) fn(std::integral_constant<int, kMost>{}, n);
  if constexpr (kMost > 4) {
    ForBlocks<4>(n, count, fn);
  } else if constexpr (kMost > 1) {
    ForBlocks<kMost / 2>(n, count, fn);
  }
}

template <class Form>
CMFORGE_INLINE void WeighAll(const AttendArgs& args, const PageView& page, int64_t origin,
                             AttendQuery* queries, int64_t count, float (*scores)[kPagePositions]) {
  ForBlocks<Form::kQueries>(0, count, [&](auto block, int64_t n) {
    constexpr int kCount = block();
    const Seen seen(queries + n, kCount, origin);
    if (seen.nothing()) return;
    ScoreRange<Form, kCount, TilesAtOnce(kCount, Form::kMostAccumulators)>(
        *args.layout, page, seen.first_tile(), seen.end_tile(), queries + n, scores + n);
    WeighBlock<kCount>(args, queries + n, origin, seen, scores + n);
  });
}

template <class Form>
CMFORGE_INLINE void AddAll(const KvPageLayout& layout, const PageView& page, int64_t origin,
                           const AttendQuery* queries, int64_t count,
                           const float (*weights)[kPagePositions]) {
  ForBlocks<Form::kQueries>(0, count, [&](auto block, int64_t n) {
    AddValues<Form, block()>(layout, page, origin, queries + n, weights + n);
  });
}

/// A page and up to kMostQueries queries: all weights, then all values, so that what is unpacked stays in L1 while it
/// is used.
template <KvType kType, Asks kAsks>
void AttendPage(const AttendArgs& args, AttendQuery* queries, int64_t count, const std::byte* bytes,
                const std::byte* next, int64_t origin) {
  const KvPageLayout& layout = *args.layout;
  const std::byte* values = bytes + layout.values;
  PageView page = {bytes,
                   reinterpret_cast<const float*>(bytes + layout.key_scales),
                   values,
                   reinterpret_cast<const float*>(bytes + layout.value_scales),
                   kAsks == Asks::kNextPage ? next : values,
                   kAsks == Asks::kNextPage ? next + layout.values : next};
  alignas(64) float scores[kMostQueries][kPagePositions];
  // One or two blocks of queries convert as they load.
  if (args.unpacked != nullptr && count > 2 * kInPlace) {
    if (kType != KvType::kF32) UnpackKeys<kType>(layout, page, args.unpacked);
    WeighAll<Unpacked<kType>>(args, page, origin, queries, count, scores);
    if (kType != KvType::kF32) UnpackValues<kType>(layout, page, args.unpacked);
    AddAll<Unpacked<kType>>(layout, page, origin, queries, count, scores);
  } else {
    if constexpr (kAsks != Asks::kNextHalf && kType == KvType::kQ8) {
      for (int64_t at = layout.key_scales; at < layout.values; at += kLine) AskLine<kAsks>(next + at);
      const std::byte* scales = (kAsks == Asks::kNextPage ? next : bytes) + layout.value_scales;
      for (int64_t at = 0; at < layout.bytes - layout.value_scales; at += kLine) AskLine<kAsks>(scales + at);
    }
    WeighAll<InPlace<kType, kAsks>>(args, page, origin, queries, count, scores);
    AddAll<InPlace<kType, kAsks>>(layout, page, origin, queries, count, scores);
  }
}

template <KvType kType, Asks kAsks>
void AttendTyped(const AttendArgs& args) {
  for (int64_t position = args.begin; position < args.end; position += kPagePositions) {
    const std::byte* const* pages = args.pages + position / kPagePositions - args.first_page;
    const std::byte* page = pages[0] + args.head_offset;
    for (int64_t n = 0; n < args.count; n += kMostQueries) {
      const int64_t left = args.count - n;
      const std::byte* next = page;
      if (n + kMostQueries >= args.count) {
        if (position + kPagePositions < args.end) {
          next = pages[1] + args.head_offset;
        } else if (args.after != nullptr) {
          next = args.after;
        }
      }
      AttendPage<kType, kAsks>(args, args.queries + n, left < kMostQueries ? left : kMostQueries, page, next,
                               position);
    }
  }
}

template <Asks kAsks>
void AttendAsking(const AttendArgs& args) {
  switch (args.layout->type) {
    case KvType::kF32:
      return AttendTyped<KvType::kF32, kAsks>(args);
    case KvType::kF16:
      return AttendTyped<KvType::kF16, kAsks>(args);
    case KvType::kQ8:
      return AttendTyped<KvType::kQ8, kAsks>(args);
  }
}

void Attend(const AttendArgs& args) {
#if defined(CMFORGE_VEC_AVX512)
  return IsZen5OrLater() ? AttendAsking<Asks::kStreams>(args) : AttendAsking<Asks::kNextPage>(args);
#else
  return AttendAsking<Asks::kNextHalf>(args);
#endif
}

}  // namespace
}  // namespace cmforge
