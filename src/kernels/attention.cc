// Cache pages and the arithmetic around the attention kernel that needs no vectors.
#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/bytes.h"
#include "base/half.h"

namespace cmforge {
namespace {

int64_t ElementBytes(KvType type) { return type == KvType::kF32 ? 4 : type == KvType::kF16 ? 2 : 1; }
int64_t Groups(int64_t dim) { return (dim + kKvGroup - 1) / kKvGroup; }
int64_t Aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

KvPageLayout::KvPageLayout(KvType kv_type, int64_t key_width, int64_t value_width)
    : type(kv_type), key_dim(key_width), value_dim(value_width) {
  const int64_t element = ElementBytes(type);
  const bool has_scales = type == KvType::kQ8;
  key_scales = Aligned(kPagePositions * key_dim * element);
  values = key_scales + (has_scales ? kPagePositions * Groups(key_dim) * 4 : 0);
  value_scales = Aligned(values + kPagePositions * value_dim * element);
  bytes = Aligned(value_scales + (has_scales ? kPagePositions * Groups(value_dim) * 4 : 0));
}

void KvPageLayout::Load(const std::byte* page, int64_t slot, float* key, float* value) const {
  const int64_t tile = slot / kTilePositions, lane = slot % kTilePositions;
  const int64_t origin = tile * key_dim * kTilePositions + lane;
  const auto* key_scale =
      reinterpret_cast<const float*>(page + key_scales) + tile * Groups(key_dim) * kTilePositions;
  const auto* value_scale = reinterpret_cast<const float*>(page + value_scales) + slot * Groups(value_dim);
  const auto number = [this](const std::byte* base, int64_t index) {
    switch (type) {
      case KvType::kF32:
        return reinterpret_cast<const float*>(base)[index];
      case KvType::kF16:
        return F16ToF32(reinterpret_cast<const uint16_t*>(base)[index]);
      case KvType::kQ8:
        break;
    }
    return static_cast<float>(reinterpret_cast<const int8_t*>(base)[index]);
  };
  for (int64_t d = 0; d < key_dim; ++d) {
    key[d] = number(page, origin + d * kTilePositions);
    if (type == KvType::kQ8) key[d] *= key_scale[d / kKvGroup * kTilePositions + lane];
  }
  for (int64_t d = 0; d < value_dim; ++d) {
    value[d] = number(page + values, ValueAt(slot, d));
    if (type == KvType::kQ8) value[d] *= value_scale[d / kKvGroup];
  }
}

void AttendBegin(AttendQuery& query, int64_t value_dim) {
  query.max = -std::numeric_limits<float>::infinity();
  query.sum = 0;
  std::fill_n(query.acc, value_dim, 0.0f);
}

void AttendMerge(AttendQuery& into, const AttendQuery& part, int64_t value_dim) {
  if (part.sum == 0) return;
  const float max = std::max(into.max, part.max);
  const float keep = into.sum == 0 ? 0.0f : static_cast<float>(std::exp(static_cast<double>(into.max - max)));
  const auto add = static_cast<float>(std::exp(static_cast<double>(part.max - max)));
  for (int64_t d = 0; d < value_dim; ++d) into.acc[d] = into.acc[d] * keep + part.acc[d] * add;
  into.sum = into.sum * keep + part.sum * add;
  into.max = max;
}

void AttendFinish(const AttendQuery& query, int64_t value_dim, float* out) {
  const float inverse = query.sum > 0 ? 1.0f / query.sum : 0.0f;
  for (int64_t d = 0; d < value_dim; ++d) out[d] = query.acc[d] * inverse;
}

}  // namespace cmforge
