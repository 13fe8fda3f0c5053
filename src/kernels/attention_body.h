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

constexpr int Clamped(int x, int low, int high) { return x < low ? low : x > high ? high : x; }
/// Tiles whose scores are made together. q8 has two accumulators for each score.
template <KvType kType>
constexpr int TilesAtOnce(int queries) {
  return Clamped(kAccumulators / (kType == KvType::kQ8 ? 2 : 1) / queries / kTileVecs, 1, kPageTiles);
}
/// Vectors of channels that are summed together.
constexpr int ChannelsAtOnce(int queries) { return Clamped(kAccumulators / queries, 1, 4); }

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
/// (q8: group by group, each group's sum times the key's scale).
template <KvType kType, int kCount, int kTiles>
CMFORGE_INLINE void ScoreTiles(const KvPageLayout& layout, const std::byte* page, int tile,
                               const AttendQuery* queries, float (*scores)[kPagePositions]) {
  constexpr int kVecs = kTiles * kTileVecs;
  const int64_t dim = layout.key_dim;
  // Vector v of the tiles, dimension d.
  const auto key_at = [&](int v, int64_t d) {
    return LoadKv<kType>(page, ((tile + v / kTileVecs) * dim + d) * kTilePositions + v % kTileVecs * kLanes);
  };
  VecF total[kCount][kVecs] = {};
  if constexpr (kType == KvType::kQ8) {
    const int64_t groups = (dim + kKvGroup - 1) / kKvGroup;
    const auto* scales = reinterpret_cast<const float*>(page + layout.key_scales);
    for (int64_t g = 0; g < groups; ++g) {
      VecF part[kCount][kVecs] = {};
      const int64_t stop = g * kKvGroup + kKvGroup < dim ? g * kKvGroup + kKvGroup : dim;
      for (int64_t d = g * kKvGroup; d < stop; ++d) {
        VecF keys[kVecs];
        for (int v = 0; v < kVecs; ++v) keys[v] = key_at(v, d);
        for (int n = 0; n < kCount; ++n) {
          const VecF q = Set(queries[n].q[d]);
          for (int v = 0; v < kVecs; ++v) part[n][v] = Fma(q, keys[v], part[n][v]);
        }
      }
      for (int v = 0; v < kVecs; ++v) {
        const VecF scale =
            Load(scales + ((tile + v / kTileVecs) * groups + g) * kTilePositions + v % kTileVecs * kLanes);
        for (int n = 0; n < kCount; ++n) total[n][v] = Fma(part[n][v], scale, total[n][v]);
      }
    }
  } else {
    for (int64_t d = 0; d < dim; ++d) {
      VecF keys[kVecs];
      for (int v = 0; v < kVecs; ++v) keys[v] = key_at(v, d);
      for (int n = 0; n < kCount; ++n) {
        const VecF q = Set(queries[n].q[d]);
        for (int v = 0; v < kVecs; ++v) total[n][v] = Fma(q, keys[v], total[n][v]);
      }
    }
  }
  for (int n = 0; n < kCount; ++n) {
    for (int v = 0; v < kVecs; ++v) Store(&scores[n][tile * kTilePositions + v * kLanes], total[n][v]);
  }
}

/// acc[n][c ...] += sum over slots of weights[n][slot] * value[slot][c ...], slots in ascending order, for as many
/// stretches of kVecs vectors as there are from `c` on. Returns the first channel that is left.
template <KvType kType, int kCount, int kVecs>
CMFORGE_INLINE int64_t AddChannels(const KvPageLayout& layout, const std::byte* page,
                                   AttendQuery* const* queries, const float (*weights)[kPagePositions],
                                   int64_t slots, int64_t c) {
  const int64_t dim = layout.value_dim, groups = (dim + kKvGroup - 1) / kKvGroup;
  const std::byte* values = page + layout.values;
  const auto* scales = reinterpret_cast<const float*>(page + layout.value_scales);
  for (; c + kVecs * kLanes <= dim; c += kVecs * kLanes) {
    VecF sums[kCount][kVecs];
    for (int n = 0; n < kCount; ++n) {
      for (int v = 0; v < kVecs; ++v) sums[n][v] = Load(queries[n]->acc + c + v * kLanes);
    }
    for (int64_t slot = 0; slot < slots; ++slot) {
      VecF value[kVecs];
      for (int v = 0; v < kVecs; ++v) {
        value[v] = LoadKv<kType>(values, slot * dim + c + v * kLanes);
        if constexpr (kType == KvType::kQ8)
          value[v] *= Set(scales[slot * groups + (c + v * kLanes) / kKvGroup]);
      }
      for (int n = 0; n < kCount; ++n) {
        const VecF weight = Set(weights[n][slot]);
        for (int v = 0; v < kVecs; ++v) sums[n][v] = Fma(weight, value[v], sums[n][v]);
      }
    }
    for (int n = 0; n < kCount; ++n) {
      for (int v = 0; v < kVecs; ++v) Store(queries[n]->acc + c + v * kLanes, sums[n][v]);
    }
  }
  return c;
}

/// All channels.
template <KvType kType, int kCount>
CMFORGE_INLINE void AddValues(const KvPageLayout& layout, const std::byte* page, AttendQuery* const* queries,
                              const float (*weights)[kPagePositions], int64_t slots) {
  const int64_t dim = layout.value_dim;
  const std::byte* values = page + layout.values;
  const int64_t groups = (dim + kKvGroup - 1) / kKvGroup;
  const auto* scales = reinterpret_cast<const float*>(page + layout.value_scales);
  int64_t c = AddChannels<kType, kCount, ChannelsAtOnce(kCount)>(layout, page, queries, weights, slots, 0);
  c = AddChannels<kType, kCount, 1>(layout, page, queries, weights, slots, c);
  for (; c < dim; ++c) {
    for (int n = 0; n < kCount; ++n) {
      VecF sum = Set(queries[n]->acc[c]);
      for (int64_t slot = 0; slot < slots; ++slot) {
        float value = ScalarKv<kType>(values, slot * dim + c);
        if constexpr (kType == KvType::kQ8) value *= scales[slot * groups + c / kKvGroup];
        sum = Fma(Set(weights[n][slot]), Set(value), sum);
      }
      queries[n]->acc[c] = sum[0];
    }
  }
}

template <KvType kType, int kCount>
CMFORGE_INLINE void AttendPage(const AttendArgs& args, AttendQuery* queries, const std::byte* page,
                               int64_t origin) {
  const KvPageLayout& layout = *args.layout;
  alignas(64) float scores[kCount][kPagePositions];
  constexpr int kTiles = TilesAtOnce<kType>(kCount);
  for (int tile = 0; tile < kPageTiles; tile += kTiles) {
    ScoreTiles<kType, kCount, kTiles>(layout, page, tile, queries, scores);
  }
  const VecF lowest = Set(-std::numeric_limits<float>::infinity());
  AttendQuery* live[kCount];
  int64_t slots = 0;
  int count = 0;
  for (int n = 0; n < kCount; ++n) {
    AttendQuery& query = queries[n];
    const int64_t first = query.first - origin, last = query.last - origin;
    float* row = scores[n];
    VecF top = lowest;
    for (int v = 0; v < static_cast<int>(kPagePositions) / kLanes; ++v) {
      VecF s = Load(row + v * kLanes) * Set(args.scale);
      if (args.softcap > 0) s = Set(args.softcap) * Tanh(s / Set(args.softcap));
      Store(row + v * kLanes, s);
    }
    if (first > 0 || last < kPagePositions - 1) {
      for (int64_t j = 0; j < kPagePositions; ++j) {
        if (j < first || j > last) row[j] = -std::numeric_limits<float>::infinity();
      }
    }
    for (int v = 0; v < static_cast<int>(kPagePositions) / kLanes; ++v)
      top = Max(top, Load(row + v * kLanes));
    float page_max = -std::numeric_limits<float>::infinity();
    for (int j = 0; j < kLanes; ++j) page_max = top[j] > page_max ? top[j] : page_max;
    const bool is_seen = first < kPagePositions && last >= 0;
    if (!is_seen) continue;
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
      Map(query.acc, layout.value_dim, query.acc, [=](VecF a) { return a * Set(shrink); });
    }
    query.sum = query.sum * shrink + part[0];
    query.max = max;
    const int64_t end = last + 1 < kPagePositions ? last + 1 : kPagePositions;
    slots = end > slots ? end : slots;
    if (count < n) std::memmove(scores[count], row, sizeof(scores[0]));
    live[count++] = &query;
  }
  if (count == kCount) {
    AddValues<kType, kCount>(layout, page, live, scores, slots);
  } else {
    for (int n = 0; n < count; ++n) AddValues<kType, 1>(layout, page, live + n, scores + n, slots);
  }
}

template <KvType kType>
void AttendTyped(const AttendArgs& args) {
  for (int64_t position = args.begin; position < args.end; position += kPagePositions) {
    const std::byte* page = args.pages[position / kPagePositions - args.first_page] + args.head_offset;
    int64_t n = 0;
    if constexpr (kQueriesAtOnce >= 8) {
      for (; n + 8 <= args.count; n += 8) AttendPage<kType, 8>(args, args.queries + n, page, position);
    }
    for (; n + 4 <= args.count; n += 4) AttendPage<kType, 4>(args, args.queries + n, page, position);
    for (; n + 2 <= args.count; n += 2) AttendPage<kType, 2>(args, args.queries + n, page, position);
    for (; n < args.count; ++n) AttendPage<kType, 1>(args, args.queries + n, page, position);
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
