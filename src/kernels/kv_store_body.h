// Stores one position's key and value in a cache page; included once by each instruction set's file.
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

/// out[i * stride] = x[i] as f16.
CMFORGE_INLINE void StoreHalves(const float* x, int64_t n, uint16_t* out, int64_t stride) {
  for (int64_t i = 0; i < n; i += kLanes) {
    uint16_t halves[kLanes];
    StoreF16(halves, LoadPadded(x, i, n));
    const int64_t count = n - i < kLanes ? n - i : kLanes;
    for (int64_t j = 0; j < count; ++j) out[(i + j) * stride] = halves[j];
  }
}

/// One group as int8 at out[i * stride], rounded to nearest; returns the scale, absmax / 127. NaN is -127.
CMFORGE_INLINE float StoreGroup(const float* x, int64_t n, int8_t* out, int64_t stride) {
  VecF top = {};
  for (int64_t i = 0; i < n; i += kLanes) {
    const VecF value = LoadPadded(x, i, n);
    top = Max(Max(value, -value), top);
  }
  float max = 0;
  for (int j = 0; j < kLanes; ++j) max = top[j] > max ? top[j] : max;
  const float scale = max / 127.0f, inverse = scale > 0 ? 1.0f / scale : 0.0f;
  for (int64_t i = 0; i < n; i += kLanes) {
    const VecF code = Min(Max(LoadPadded(x, i, n) * Set(inverse), Set(-127.0f)), Set(127.0f));
    // Adding 1.5 * 2^23 rounds to an integer, which then stands in the low mantissa bits.
    const VecI bits = reinterpret_cast<VecI>(code + Set(12582912.0f));
    const int64_t count = n - i < kLanes ? n - i : kLanes;
    for (int64_t j = 0; j < count; ++j) out[(i + j) * stride] = static_cast<int8_t>(bits[j]);
  }
  return scale;
}

CMFORGE_INLINE void StoreGroups(const float* x, int64_t n, int8_t* out, int64_t stride, float* scales,
                                int64_t scale_stride) {
  for (int64_t i = 0; i < n; i += kKvGroup) {
    const int64_t count = n - i < kKvGroup ? n - i : kKvGroup;
    scales[i / kKvGroup * scale_stride] = StoreGroup(x + i, count, out + i * stride, stride);
  }
}

void StoreKv(const KvPageLayout& layout, std::byte* page, int64_t slot, const float* key,
             const float* value) {
  const int64_t tile = slot / kTilePositions, lane = slot % kTilePositions;
  const int64_t key_at = tile * layout.key_dim * kTilePositions + lane, value_at = slot * layout.value_dim;
  switch (layout.type) {
    case KvType::kF32: {
      auto* keys = reinterpret_cast<float*>(page) + key_at;
      for (int64_t d = 0; d < layout.key_dim; ++d) keys[d * kTilePositions] = key[d];
      std::memcpy(reinterpret_cast<float*>(page + layout.values) + value_at, value,
                  static_cast<size_t>(layout.value_dim) * sizeof(float));
      return;
    }
    case KvType::kF16:
      StoreHalves(key, layout.key_dim, reinterpret_cast<uint16_t*>(page) + key_at, kTilePositions);
      StoreHalves(value, layout.value_dim, reinterpret_cast<uint16_t*>(page + layout.values) + value_at, 1);
      return;
    case KvType::kQ8: {
      const int64_t key_groups = (layout.key_dim + kKvGroup - 1) / kKvGroup,
                    value_groups = (layout.value_dim + kKvGroup - 1) / kKvGroup;
      auto* key_scales =
          reinterpret_cast<float*>(page + layout.key_scales) + tile * key_groups * kTilePositions + lane;
      auto* value_scales = reinterpret_cast<float*>(page + layout.value_scales) + slot * value_groups;
      StoreGroups(key, layout.key_dim, reinterpret_cast<int8_t*>(page) + key_at, kTilePositions, key_scales,
                  kTilePositions);
      StoreGroups(value, layout.value_dim, reinterpret_cast<int8_t*>(page + layout.values) + value_at, 1,
                  value_scales, 1);
      return;
    }
  }
}

}  // namespace
}  // namespace cmforge
