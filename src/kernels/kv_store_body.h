// Stores keys and values of a few positions in a cache page; included once by each instruction set's file.
#pragma once

#include "kernels/attention.h"
#include "kernels/elementwise_vec.h"

namespace cmforge {
namespace {

/// kLanes floats from x + i; zeros from n on.
CMFORGE_INLINE VecF LoadPadded(const float* x, int64_t i, int64_t n) {
  if (i + kLanes <= n) return Load(x + i);
  float rest[kLanes] = {};
  std::memcpy(rest, x + i, static_cast<size_t>(n - i) * sizeof(float));
  return Load(rest);
}

typedef uint16_t Halves __attribute__((vector_size(16)));
typedef uint8_t Bytes __attribute__((vector_size(16)));
static_assert(kTilePositions == 16);

/// Elements low or high half by half, a b a b ...
CMFORGE_INLINE Halves ZipLow(Halves a, Halves b) {
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}
CMFORGE_INLINE Halves ZipHigh(Halves a, Halves b) {
  return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}
CMFORGE_INLINE Bytes ZipLow(Bytes a, Bytes b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
CMFORGE_INLINE Bytes ZipHigh(Bytes a, Bytes b) {
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}

/// to[c * to_stride + r] = from[r * from_stride + c] for as many rows and columns as Block has elements: zipping row r
/// with row r + half, log2 times, turns rows into columns.
template <class Block, class T>
CMFORGE_INLINE void Transpose(const T* from, int64_t from_stride, T* to, int64_t to_stride) {
  constexpr int kSize = static_cast<int>(sizeof(Block) / sizeof(T));
  Block rows[kSize], zipped[kSize];
  for (int r = 0; r < kSize; ++r) std::memcpy(&rows[r], from + r * from_stride, sizeof(Block));
  for (int step = 1; step < kSize; step *= 2) {
    for (int r = 0; r < kSize / 2; ++r) {
      zipped[2 * r] = ZipLow(rows[r], rows[r + kSize / 2]);
      zipped[2 * r + 1] = ZipHigh(rows[r], rows[r + kSize / 2]);
    }
    for (int r = 0; r < kSize; ++r) rows[r] = zipped[r];
  }
  for (int r = 0; r < kSize; ++r) std::memcpy(to + r * to_stride, &rows[r], sizeof(Block));
}

/// out[i] = x[i] as f16.
CMFORGE_INLINE void StoreHalves(const float* x, int64_t n, uint16_t* out) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) StoreF16(out + i, Load(x + i));
  if (i < n) {
    uint16_t halves[kLanes];
    StoreF16(halves, LoadPadded(x, i, n));
    std::memcpy(out + i, halves, static_cast<size_t>(n - i) * sizeof(uint16_t));
  }
}

/// One group as int8, rounded to nearest; returns the scale, absmax / 127. NaN is -127.
CMFORGE_INLINE float StoreGroup(const float* x, int64_t n, int8_t* out) {
  typedef int8_t Codes __attribute__((vector_size(kLanes)));
  VecF top = {};
  for (int64_t i = 0; i < n; i += kLanes) {
    const VecF value = LoadPadded(x, i, n);
    top = Max(Max(value, -value), top);
  }
  const float max = MaxOf(top);
  const float scale = max / 127.0f, inverse = scale > 0 ? 1.0f / scale : 0.0f;
  for (int64_t i = 0; i < n; i += kLanes) {
    const VecF code = Min(Max(LoadPadded(x, i, n) * Set(inverse), Set(-127.0f)), Set(127.0f));
    // Adding 1.5 * 2^23 rounds to an integer, which then stands in the low mantissa bits.
    const VecI bits = reinterpret_cast<VecI>(code + Set(12582912.0f));
    const Codes codes = __builtin_convertvector(bits, Codes);
    std::memcpy(out + i, &codes, static_cast<size_t>(n - i < kLanes ? n - i : kLanes));
  }
  return scale;
}

/// Keys of up to 16 positions into a tile of [dim][16], from `lane` on, kKvGroup dimensions after another:
/// store(key, n, codes, group, j) encodes those of key j.
template <class Block, class T, class Store>
CMFORGE_INLINE void StoreTile(const float* keys, int64_t stride, int64_t dim, int64_t lane, int64_t count,
                              T* tile, const Store& store) {
  constexpr int64_t kSize = sizeof(Block) / sizeof(T);
  T codes[kTilePositions][kKvGroup] = {};
  for (int64_t begin = 0; begin < dim; begin += kKvGroup) {
    const int64_t n = dim - begin < kKvGroup ? dim - begin : kKvGroup;
    for (int64_t j = 0; j < count; ++j) store(keys + j * stride + begin, n, codes[j], begin / kKvGroup, j);
    T* to = tile + begin * kTilePositions + lane;
    if (count == kTilePositions && n % kSize == 0) {
      for (int64_t j = 0; j < kTilePositions; j += kSize) {
        for (int64_t i = 0; i < n; i += kSize)
          Transpose<Block>(&codes[j][i], kKvGroup, to + i * kTilePositions + j, kTilePositions);
      }
      continue;
    }
    for (int64_t j = 0; j < count; ++j) {
      for (int64_t i = 0; i < n; ++i) to[i * kTilePositions + j] = codes[j][i];
    }
  }
}

void StoreKv(const KvPageLayout& layout, std::byte* page, int64_t slot, int64_t count, const float* keys,
             int64_t key_stride, const float* values, int64_t value_stride) {
  const int64_t lane = slot % kTilePositions;
  if (lane + count > kTilePositions) {
    const int64_t here = kTilePositions - lane;
    StoreKv(layout, page, slot, here, keys, key_stride, values, value_stride);
    return StoreKv(layout, page, slot + here, count - here, keys + here * key_stride, key_stride,
                   values + here * value_stride, value_stride);
  }
  const int64_t key_dim = layout.key_dim, value_dim = layout.value_dim;
  const int64_t key_at = slot / kTilePositions * key_dim * kTilePositions;
  const auto width_at = [=](int64_t c) { return value_dim - c < kKvGroup ? value_dim - c : kKvGroup; };
  switch (layout.type) {
    case KvType::kF32: {
      auto* tile = reinterpret_cast<float*>(page) + key_at + lane;
      for (int64_t j = 0; j < count; ++j) {
        for (int64_t d = 0; d < key_dim; ++d) tile[d * kTilePositions + j] = keys[j * key_stride + d];
        for (int64_t c = 0; c < value_dim; c += kKvGroup) {
          std::memcpy(reinterpret_cast<float*>(page + layout.values) + layout.ValueAt(slot + j, c),
                      values + j * value_stride + c, static_cast<size_t>(width_at(c)) * sizeof(float));
        }
      }
      return;
    }
    case KvType::kF16: {
      StoreTile<Halves>(
          keys, key_stride, key_dim, lane, count, reinterpret_cast<uint16_t*>(page) + key_at,
          [](const float* key, int64_t n, uint16_t* codes, int64_t, int64_t) { StoreHalves(key, n, codes); });
      for (int64_t j = 0; j < count; ++j) {
        for (int64_t c = 0; c < value_dim; c += kKvGroup) {
          StoreHalves(values + j * value_stride + c, width_at(c),
                      reinterpret_cast<uint16_t*>(page + layout.values) + layout.ValueAt(slot + j, c));
        }
      }
      return;
    }
    case KvType::kQ8: {
      const int64_t key_groups = (key_dim + kKvGroup - 1) / kKvGroup,
                    value_groups = (value_dim + kKvGroup - 1) / kKvGroup;
      auto* key_scales = reinterpret_cast<float*>(page + layout.key_scales) +
                         slot / kTilePositions * key_groups * kTilePositions + lane;
      auto* value_scales = reinterpret_cast<float*>(page + layout.value_scales) + slot * value_groups;
      StoreTile<Bytes>(keys, key_stride, key_dim, lane, count, reinterpret_cast<uint8_t*>(page) + key_at,
                       [=](const float* key, int64_t n, uint8_t* codes, int64_t group, int64_t j) {
                         key_scales[group * kTilePositions + j] =
                             StoreGroup(key, n, reinterpret_cast<int8_t*>(codes));
                       });
      for (int64_t j = 0; j < count; ++j) {
        for (int64_t c = 0; c < value_dim; c += kKvGroup) {
          value_scales[j * value_groups + c / kKvGroup] =
              StoreGroup(values + j * value_stride + c, width_at(c),
                         reinterpret_cast<int8_t*>(page + layout.values) + layout.ValueAt(slot + j, c));
        }
      }
      return;
    }
  }
}

}  // namespace
}  // namespace cmforge
