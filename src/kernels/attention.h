// Attention over cached keys and values: how a cache page is laid out and what the kernel computes.
//
// A page holds kPagePositions consecutive positions of one kv head:
//   keys    4 tiles of 16 positions, each [key_dim][16], so that scores of 16 keys are one vector
//   scales  q8 only: per tile [ceil(key_dim / 32)][16] f32
//   values  groups of 32 channels (the last may have fewer), each [64][channels], so that lines of several groups
//           come in step, streams that a processor's prefetchers follow one by one
//   scales  q8 only: [64][ceil(value_dim / 32)] f32
// Pages start at multiples of 64 positions, counted from position 0, and softmax is accumulated page by page
// in that grid: the order of operations of a row is fixed by its position alone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/language_model.h"

namespace cmforge {

inline constexpr int64_t kPagePositions = 64;
inline constexpr int64_t kTilePositions = 16;
inline constexpr int64_t kKvGroup = 32;  // q8: elements that share a scale

/// Byte offsets inside one head's page.
struct KvPageLayout {
  KvPageLayout() = default;
  KvPageLayout(KvType type, int64_t key_dim, int64_t value_dim);

  KvType type = KvType::kF32;
  int64_t key_dim = 0, value_dim = 0;
  int64_t key_scales = 0, values = 0, value_scales = 0;
  int64_t bytes = 0;  // of the whole page, a multiple of 64

  /// Index, among the values, of a slot's channel c; those of its group of kKvGroup follow.
  [[nodiscard]] int64_t ValueAt(int64_t slot, int64_t c) const {
    const int64_t group = c / kKvGroup * kKvGroup, left = value_dim - group;
    return group * kPagePositions + slot * (left < kKvGroup ? left : kKvGroup) + c - group;
  }

  /// The stored numbers again (FloatKernels::store_kv), for tests.
  void Load(const std::byte* page, int64_t slot, float* key, float* value) const;
};

/// One query row of one query head: sees positions first..last, both included.
struct AttendQuery {
  const float* q = nullptr;  // [key_dim]
  int64_t first = 0, last = 0;
  float* acc = nullptr;  // [value_dim]: sum of exp(score - max) * value
  float max = 0;         // of the scores seen; -infinity when none
  float sum = 0;         // of exp(score - max)
};

struct AttendArgs {
  const KvPageLayout* layout = nullptr;
  float scale = 1;
  float softcap = 0;               // 0: none; else cap * tanh(score / cap), after the scale
  AttendQuery* queries = nullptr;  // state in and out; AttendBegin starts it
  int64_t count = 0;
  const std::byte* const* pages = nullptr;  // pages[i]: positions from (first_page + i) * 64
  int64_t head_offset = 0;                  // of this kv head inside a page block
  int64_t first_page = 0;
  int64_t begin = 0, end = 0;        // positions to visit; begin is a multiple of 64
  const std::byte* after = nullptr;  // a head's page that is read soon after these, to be asked for; or null
  float* unpacked =
      nullptr;  // 64-byte aligned room for UnpackedFloats(), or null: then many queries take longer
};

/// Keys or values of one head's page as f32.
[[nodiscard]] inline int64_t UnpackedFloats(const KvPageLayout& layout) {
  const int64_t dim = layout.key_dim > layout.value_dim ? layout.key_dim : layout.value_dim;
  return kPagePositions * dim;
}

/// Empty state.
void AttendBegin(AttendQuery& query, int64_t value_dim);
/// Adds what `part` has seen (other positions of the same query) to `into`.
void AttendMerge(AttendQuery& into, const AttendQuery& part, int64_t value_dim);
/// out = acc / sum; zeros when nothing was seen.
void AttendFinish(const AttendQuery& query, int64_t value_dim, float* out);

}  // namespace cmforge
