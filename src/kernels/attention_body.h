// Softmax attention of a few queries over the pages of one kv head; included once by each instruction set's
// file. Queries share every load of a page. Lanes are keys while scoring and value channels while summing, so
// no result depends on the vector width.
#pragma once

#include <limits>

#include "kernels/attention.h"
#include "kernels/elementwise_vec.h"

namespace cmforge {
namespace {

constexpr int kTileVecs = static_cast<int>(kTilePositions) / kLanes;
constexpr int kPageTiles = static_cast<int>(kPagePositions / kTilePositions);

// Every sum is one chain of fused multiply-adds, so enough of them must be under way to hide its latency, and each
// loaded and converted key or value should serve many queries: accumulators in flight, and queries at once.
#if defined(CMFORGE_VEC_AVX512)
constexpr int kAccumulators = 16, kQueriesAtOnce = 8;
#elif defined(CMFORGE_VEC_AVX2)
constexpr int kAccumulators = 8, kQueriesAtOnce = 4;
#else
constexpr int kAccumulators = 16, kQueriesAtOnce = 4;
#endif

constexpr int64_t kMostQueries = 64;  // scored together

constexpr int Clamped(int x, int low, int high) { return x < low ? low : x > high ? high : x; }
/// Tiles whose scores are made together.
constexpr int TilesAtOnce(int queries) { return Clamped(kAccumulators / queries / kTileVecs, 1, kPageTiles); }
/// Vectors of channels that are summed together.
constexpr int ChannelsAtOnce(int queries) { return Clamped(kAccumulators / queries, 1, 4); }

/// One head's page as the loops below read it: in place, or unpacked.
struct PageView {
  const std::byte* keys = nullptr;
  const float* key_scales = nullptr;
  const std::byte* values = nullptr;
  const float* value_scales = nullptr;
  const std::byte *after_keys = nullptr, *after_values = nullptr;  // what is read next
};

template <KvType kType>
constexpr int64_t kBytesOf = kType == KvType::kF32   ? 4
                             : kType == KvType::kF16 ? 2
                                                     : 1;

/// Asks for the lines that begin in step i, of kBytes bytes, of a stretch that is read soon: keys, values and the next
/// page's keys are stretches too short for the processor to foresee.
template <int64_t kBytes>
CMFORGE_INLINE void PrefetchStep(const std::byte* stretch, int64_t i) {
  constexpr int64_t kLine = 64;
  if constexpr (kBytes >= kLine) {
    for (int64_t at = 0; at < kBytes; at += kLine) __builtin_prefetch(stretch + i * kBytes + at);
  } else {
    if (i % (kLine / kBytes) == 0) __builtin_prefetch(stretch + i * kBytes);
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
template <KvType kType, bool kHasScales, int kCount, int kTiles>
CMFORGE_INLINE void ScoreTiles(const KvPageLayout& layout, const PageView& page, int tile,
                               const AttendQuery* queries, float (*scores)[kPagePositions]) {
  constexpr int kVecs = kTiles * kTileVecs;
  const int64_t dim = layout.key_dim;
  // Vector v of the tiles, dimension d.
  const auto key_at = [&](int v, int64_t d) {
    return LoadKv<kType>(page.keys,
                         ((tile + v / kTileVecs) * dim + d) * kTilePositions + v % kTileVecs * kLanes);
  };
  const std::byte* ahead = page.after_keys + tile * dim * kTilePositions * kBytesOf<kType>;
  const auto row_of = [&](int n, int v) { return &scores[n][tile * kTilePositions + v * kLanes]; };
  const int64_t group = kHasScales ? kKvGroup : dim;
  for (int64_t begin = 0; begin < dim; begin += group) {
    VecF sums[kCount][kVecs] = {};
    const int64_t end = begin + group < dim ? begin + group : dim;
    for (int64_t d = begin; d < end; ++d) {
      PrefetchStep<kTiles * kTilePositions * kBytesOf<kType>>(ahead, d);
      VecF keys[kVecs];
      for (int v = 0; v < kVecs; ++v) keys[v] = key_at(v, d);
      for (int n = 0; n < kCount; ++n) {
        const VecF q = Set(queries[n].q[d]);
        for (int v = 0; v < kVecs; ++v) sums[n][v] = Fma(q, keys[v], sums[n][v]);
      }
    }
    for (int v = 0; v < kVecs; ++v) {
      if constexpr (kHasScales) {
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

/// Scores of kCount queries against the positions of the page that one of them sees; the others' are lowest.
template <KvType kType, bool kHasScales, int kCount>
CMFORGE_INLINE void ScorePage(const KvPageLayout& layout, const PageView& page, int64_t origin,
                              const AttendQuery* queries, float (*scores)[kPagePositions]) {
  constexpr int kTiles = TilesAtOnce(kCount);
  int64_t first = kPagePositions, last = -1;
  for (int n = 0; n < kCount; ++n) {
    first = queries[n].first - origin < first ? queries[n].first - origin : first;
    last = queries[n].last - origin > last ? queries[n].last - origin : last;
  }
  for (int tile = 0; tile < kPageTiles; tile += kTiles) {
    if (tile * kTilePositions <= last && (tile + kTiles) * kTilePositions > first) {
      ScoreTiles<kType, kHasScales, kCount, kTiles>(layout, page, tile, queries, scores);
      continue;
    }
    const VecF lowest = Set(-std::numeric_limits<float>::infinity());
    for (int n = 0; n < kCount; ++n) {
      for (int v = 0; v < kTiles * kTileVecs; ++v)
        Store(&scores[n][tile * kTilePositions + v * kLanes], lowest);
    }
  }
}

/// A query that sees some of the page, and its weights of the page's positions.
struct Weighted {
  AttendQuery* query;
  const float* weights;  // [kPagePositions]
};

/// acc[n][c ...] += sum over slots of weights[n][slot] * value[slot][c ...], slots in ascending order, for as many
/// stretches of kVecs vectors as there are from `c` on. Returns the first channel that is left.
template <KvType kType, bool kHasScales, int kCount, int kVecs>
CMFORGE_INLINE int64_t AddChannels(const KvPageLayout& layout, const PageView& page, const Weighted* queries,
                                   int64_t slots, int64_t c) {
  const int64_t dim = layout.value_dim, groups = (dim + kKvGroup - 1) / kKvGroup;
  for (; c + kVecs * kLanes <= dim; c += kVecs * kLanes) {
    const std::byte* ahead = page.after_values + c * kPagePositions * kBytesOf<kType>;
    VecF sums[kCount][kVecs];
    for (int n = 0; n < kCount; ++n) {
      for (int v = 0; v < kVecs; ++v) sums[n][v] = Load(queries[n].query->acc + c + v * kLanes);
    }
    for (int64_t slot = 0; slot < slots; ++slot) {
      PrefetchStep<kVecs * kLanes * kBytesOf<kType>>(ahead, slot);
      VecF value[kVecs];
      for (int v = 0; v < kVecs; ++v) {
        value[v] = LoadKv<kType>(page.values, slot * dim + c + v * kLanes);
        if constexpr (kHasScales)  // the vectors lie in one group, or begin with one
          value[v] *= Set(page.value_scales[slot * groups + c / kKvGroup + v * kLanes / kKvGroup]);
      }
      for (int n = 0; n < kCount; ++n) {
        const VecF weight = Set(queries[n].weights[slot]);
        for (int v = 0; v < kVecs; ++v) sums[n][v] = Fma(weight, value[v], sums[n][v]);
      }
    }
    for (int n = 0; n < kCount; ++n) {
      for (int v = 0; v < kVecs; ++v) Store(queries[n].query->acc + c + v * kLanes, sums[n][v]);
    }
  }
  return c;
}

/// All channels of kCount queries.
template <KvType kType, bool kHasScales, int kCount>
CMFORGE_INLINE void AddValues(const KvPageLayout& layout, const PageView& page, const Weighted* queries,
                              int64_t origin) {
  const int64_t dim = layout.value_dim, groups = (dim + kKvGroup - 1) / kKvGroup;
  int64_t slots = 0;
  for (int n = 0; n < kCount; ++n) {
    const int64_t end = queries[n].query->last - origin + 1;
    slots = end > slots ? end : slots;
  }
  slots = slots < kPagePositions ? slots : kPagePositions;
  int64_t c = AddChannels<kType, kHasScales, kCount, ChannelsAtOnce(kCount)>(layout, page, queries, slots, 0);
  c = AddChannels<kType, kHasScales, kCount, 1>(layout, page, queries, slots, c);
  for (; c < dim; ++c) {
    for (int n = 0; n < kCount; ++n) {
      VecF sum = Set(queries[n].query->acc[c]);
      for (int64_t slot = 0; slot < slots; ++slot) {
        float value = ScalarKv<kType>(page.values, slot * dim + c);
        if constexpr (kHasScales) value *= page.value_scales[slot * groups + c / kKvGroup];
        sum = Fma(Set(queries[n].weights[slot]), Set(value), sum);
      }
      queries[n].query->acc[c] = sum[0];
    }
  }
}

/// Turns a query's scores into weights, exp(score - max), and brings its sums so far to the new maximum. False when it
/// sees nothing of the page.
CMFORGE_INLINE bool WeighPage(const AttendArgs& args, AttendQuery& query, int64_t origin, float* row) {
  constexpr int kVecs = static_cast<int>(kPagePositions) / kLanes;
  const int64_t first = query.first - origin, last = query.last - origin;
  if (first >= kPagePositions || last < 0) return false;
  VecF top = Set(-std::numeric_limits<float>::infinity());
  for (int v = 0; v < kVecs; ++v) {
    VecF s = Load(row + v * kLanes) * Set(args.scale);
    if (args.softcap > 0) s = Set(args.softcap) * Tanh(s / Set(args.softcap));
    Store(row + v * kLanes, s);
  }
  if (first > 0 || last < kPagePositions - 1) {
    for (int64_t j = 0; j < kPagePositions; ++j) {
      if (j < first || j > last) row[j] = -std::numeric_limits<float>::infinity();
    }
  }
  for (int v = 0; v < kVecs; ++v) top = Max(top, Load(row + v * kLanes));
  float page_max = -std::numeric_limits<float>::infinity();
  for (int j = 0; j < kLanes; ++j) page_max = top[j] > page_max ? top[j] : page_max;
  const float max = page_max > query.max ? page_max : query.max;
  // exp of the difference; both are lowest only while nothing was seen, where the factor does not matter.
  const float shrink = query.max == max ? 1.0f : Exp(Set(query.max - max))[0];
  alignas(64) float part[kTilePositions] = {};
  for (int v = 0; v < kTileVecs; ++v) {
    VecF sum = {};
    for (int tile = 0; tile < kPageTiles; ++tile) {
      float* at = row + tile * kTilePositions + v * kLanes;
      const VecF p = Exp(Load(at) - Set(max));
      Store(at, p);
      sum += p;
    }
    Store(part + v * kLanes, sum);
  }
  for (int width = 8; width > 0; width /= 2) {
    for (int j = 0; j < width; ++j) part[j] += part[j + width];
  }
  if (shrink != 1.0f) {
    Map(query.acc, args.layout->value_dim, query.acc, [=](VecF a) { return a * Set(shrink); });
  }
  query.sum = query.sum * shrink + part[0];
  query.max = max;
  return true;
}

/// Keys as f32 in the page's order; their scales stay apart.
template <KvType kType>
void UnpackKeys(const KvPageLayout& layout, PageView& page, float* to) {
  const int64_t count = kPagePositions * layout.key_dim;  // whole vectors
  for (int64_t i = 0; i < count; i += kLanes) Store(to + i, LoadKv<kType>(page.keys, i));
  page.keys = page.after_keys = reinterpret_cast<const std::byte*>(to);
}

/// Values as f32, scales multiplied.
template <KvType kType>
void UnpackValues(const KvPageLayout& layout, PageView& page, float* to) {
  const int64_t dim = layout.value_dim, groups = (dim + kKvGroup - 1) / kKvGroup;
  for (int64_t slot = 0; slot < kPagePositions; ++slot) {
    const auto scale_of = [&](int64_t c) {
      return kType == KvType::kQ8 ? page.value_scales[slot * groups + c / kKvGroup] : 1.0f;
    };
    int64_t c = 0;
    for (; c + kLanes <= dim; c += kLanes)
      Store(to + slot * dim + c, LoadKv<kType>(page.values, slot * dim + c) * Set(scale_of(c)));
    for (; c < dim; ++c) to[slot * dim + c] = ScalarKv<kType>(page.values, slot * dim + c) * scale_of(c);
  }
  page.values = page.after_values = reinterpret_cast<const std::byte*>(to);
}

/// Scores of all queries, in the largest blocks that there are.
template <KvType kType, bool kHasScales>
CMFORGE_INLINE void ScoreAll(const KvPageLayout& layout, const PageView& page, int64_t origin,
                             const AttendQuery* queries, int64_t count, float (*scores)[kPagePositions]) {
  int64_t n = 0;
  if constexpr (kQueriesAtOnce >= 8) {
    for (; n + 8 <= count; n += 8)
      ScorePage<kType, kHasScales, 8>(layout, page, origin, queries + n, scores + n);
  }
  for (; n + 4 <= count; n += 4)
    ScorePage<kType, kHasScales, 4>(layout, page, origin, queries + n, scores + n);
  for (; n + 2 <= count; n += 2)
    ScorePage<kType, kHasScales, 2>(layout, page, origin, queries + n, scores + n);
  for (; n < count; ++n) ScorePage<kType, kHasScales, 1>(layout, page, origin, queries + n, scores + n);
}

template <KvType kType, bool kHasScales>
CMFORGE_INLINE void AddAll(const KvPageLayout& layout, const PageView& page, int64_t origin,
                           const Weighted* queries, int64_t count) {
  int64_t n = 0;
  if constexpr (kQueriesAtOnce >= 8) {
    for (; n + 8 <= count; n += 8) AddValues<kType, kHasScales, 8>(layout, page, queries + n, origin);
  }
  for (; n + 4 <= count; n += 4) AddValues<kType, kHasScales, 4>(layout, page, queries + n, origin);
  for (; n + 2 <= count; n += 2) AddValues<kType, kHasScales, 2>(layout, page, queries + n, origin);
  for (; n < count; ++n) AddValues<kType, kHasScales, 1>(layout, page, queries + n, origin);
}

/// A page and up to kMostQueries queries: all scores, then all weights, then all values, so that what is unpacked
/// stays in L1 while it is used.
template <KvType kType>
void AttendPage(const AttendArgs& args, AttendQuery* queries, int64_t count, const std::byte* bytes,
                const std::byte* next, int64_t origin) {
  const KvPageLayout& layout = *args.layout;
  const std::byte* values = bytes + layout.values;
  PageView page = {bytes,  reinterpret_cast<const float*>(bytes + layout.key_scales),
                   values, reinterpret_cast<const float*>(bytes + layout.value_scales),
                   values, next};
  // One or two blocks of queries convert as they load.
  const bool unpacks = kType != KvType::kF32 && args.unpacked != nullptr && count > 2 * kQueriesAtOnce;
  constexpr bool kHasScales = kType == KvType::kQ8;
  alignas(64) float scores[kMostQueries][kPagePositions];
  if (unpacks) {
    UnpackKeys<kType>(layout, page, args.unpacked);
    ScoreAll<KvType::kF32, kHasScales>(layout, page, origin, queries, count, scores);
  } else {
    ScoreAll<kType, kHasScales>(layout, page, origin, queries, count, scores);
  }
  Weighted seen[kMostQueries];
  int64_t seen_count = 0;
  for (int64_t n = 0; n < count; ++n) {
    if (WeighPage(args, queries[n], origin, scores[n])) seen[seen_count++] = {queries + n, scores[n]};
  }
  if (unpacks) {
    UnpackValues<kType>(layout, page, args.unpacked);
    AddAll<KvType::kF32, false>(layout, page, origin, seen, seen_count);
  } else {
    AddAll<kType, kHasScales>(layout, page, origin, seen, seen_count);
  }
}

template <KvType kType>
void AttendTyped(const AttendArgs& args) {
  for (int64_t position = args.begin; position < args.end; position += kPagePositions) {
    const std::byte* const* pages = args.pages + position / kPagePositions - args.first_page;
    const std::byte* page = pages[0] + args.head_offset;
    for (int64_t n = 0; n < args.count; n += kMostQueries) {
      const int64_t left = args.count - n;
      const bool is_last = n + kMostQueries >= args.count && position + kPagePositions < args.end;
      const std::byte* next = is_last ? pages[1] + args.head_offset : page;
      AttendPage<kType>(args, args.queries + n, left < kMostQueries ? left : kMostQueries, page, next,
                        position);
    }
  }
}

void Attend(const AttendArgs& args) {
  switch (args.layout->type) {
    case KvType::kF32:
      return AttendTyped<KvType::kF32>(args);
    case KvType::kF16:
      return AttendTyped<KvType::kF16>(args);
    case KvType::kQ8:
      return AttendTyped<KvType::kQ8>(args);
  }
}

}  // namespace
}  // namespace cmforge
