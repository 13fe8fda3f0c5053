// The weights that q1s and q1t keep outside their codes: added on top of the product of the codes, with f32
// activations. They are few a row, so several rows' are read at once, and their halves converted as vectors, before
// any token meets them.
#include <vector>

#include "base/bytes.h"
#include "base/half.h"
#include "kernels/table.h"

namespace cmforge {
namespace {

constexpr int64_t kEntriesAtOnce = 1024;  // at least, where there are as many: they stay in L1

/// Entries of several rows, one array for each part.
struct Entries {
  std::vector<uint32_t> columns;
  std::vector<uint16_t> values, bases;  // f16: the stored value, and what the codes give there
  std::vector<float> changes;           // the difference

  void Reserve(size_t count) {
    if (count <= columns.size()) return;
    columns.resize(count);
    values.resize(count);
    bases.resize(count);
    changes.resize(count);
  }
};

void ReadQ1s(const WeightLayout& w, int64_t row, int64_t begin, int64_t end, size_t i, Entries& entries) {
  const std::byte* codes = w.codes + row * w.code_stride;
  const auto row_start = static_cast<uint32_t>(row * w.cols);
  for (const std::byte* at = w.overlay + 6 * begin; at != w.overlay + 6 * end; at += 6, ++i) {
    const uint32_t column = LoadLe<uint32_t>(at) - row_start;
    const std::byte* tile = codes + column / kGroupSize * 6;
    const auto bits = std::to_integer<uint32_t>(tile[2 + column % kGroupSize / 8]);
    entries.columns[i] = column;
    entries.values[i] = LoadLe<uint16_t>(at + 4);
    entries.bases[i] = static_cast<uint16_t>(LoadLe<uint16_t>(tile) ^ (~bits >> (column % 8) & 1) << 15);
  }
}

void ReadQ1t(const WeightLayout& w, int64_t row, int64_t begin, int64_t end, size_t i, Entries& entries) {
  static constexpr int kPower[5] = {1, 3, 9, 27, 81};
  const std::byte* codes = w.codes + row * w.code_stride;
  for (const std::byte* at = w.overlay + 4 * begin; at != w.overlay + 4 * end; at += 4, ++i) {
    const uint32_t column = LoadLe<uint16_t>(at), k = column % kGroupSize;
    const std::byte* tile = codes + column / kGroupSize * 9;
    entries.columns[i] = column;
    entries.values[i] = LoadLe<uint16_t>(at + 2);
    const int trit = std::to_integer<int>(tile[2 + k / 5]) / kPower[k % 5] % 3;  // 0: 0, 1: scale, 2: -scale
    const auto scale = LoadLe<uint16_t>(tile);
    entries.bases[i] = static_cast<uint16_t>(trit == 0 ? 0 : scale ^ (trit == 2) << 15);
  }
}

/// Where row `row`'s entries begin; the last row's end is the place of the row after it.
int64_t EntryOf(const WeightLayout& w, int64_t row) {
  if (w.dtype == DType::kQ1s) return static_cast<int64_t>(w.offsets64[row]);
  return LoadLe<uint32_t>(w.offsets32 + 4 * row);
}

typedef float Four __attribute__((vector_size(16)));  // NOLINT: `using` loses the attribute

/// The sum of changes times activations: entry i in partial sum i mod 16, then their tree.
float Dot(const uint32_t* columns, const float* changes, size_t count, const float* x) {
  static_assert(kPartials == 16);
  alignas(16) float partial[kPartials] = {};
  size_t i = 0;
  for (; i + kPartials <= count; i += kPartials) {
#pragma GCC unroll 16
    for (size_t p = 0; p < kPartials; ++p) partial[p] += changes[i + p] * x[columns[i + p]];
  }
  for (size_t p = 0; i + p < count; ++p) partial[p] += changes[i + p] * x[columns[i + p]];
  Four v[4];
  std::memcpy(v, partial, sizeof(v));
  const Four sums = (v[0] + v[2]) + (v[1] + v[3]);
  return (sums[0] + sums[2]) + (sums[1] + sums[3]);
}

}  // namespace

void AddOverlay(const WeightLayout& w, int64_t row_begin, int64_t row_end, const TokenRows& x, float* out,
                int64_t out_stride) {
  const auto read = w.dtype == DType::kQ1s ? ReadQ1s : ReadQ1t;
  Entries entries;
  for (int64_t begin = row_begin; begin < row_end;) {
    const int64_t first = EntryOf(w, begin);
    int64_t end = begin + 1;
    while (end < row_end && EntryOf(w, end) - first < kEntriesAtOnce) ++end;
    const auto count = static_cast<size_t>(EntryOf(w, end) - first);
    entries.Reserve(count);
    for (int64_t row = begin; row < end; ++row) {
      const int64_t own = EntryOf(w, row);
      read(w, row, own, EntryOf(w, row + 1), static_cast<size_t>(own - first), entries);
    }
    for (size_t i = 0; i < count; ++i)
      entries.changes[i] = F16ToF32(entries.values[i]) - F16ToF32(entries.bases[i]);
    for (int64_t t = 0; t < x.count; ++t) {
      const float* input = x.x + x.Row(t) * x.x_stride;
      for (int64_t row = begin; row < end; ++row) {
        const auto own = static_cast<size_t>(EntryOf(w, row) - first),
                   after = static_cast<size_t>(EntryOf(w, row + 1) - first);
        if (own == after) continue;
        out[t * out_stride + row] +=
            Dot(entries.columns.data() + own, entries.changes.data() + own, after - own, input);
      }
    }
    begin = end;
  }
}

}  // namespace cmforge
