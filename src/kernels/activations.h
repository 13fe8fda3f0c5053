// The int8 form of an operator's input, kept beside the f32 rows so that all matrices reading it share it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/table.h"

namespace cmforge {

/// Below this many elements one thread is done before the others have woken.
inline constexpr int64_t kParallelElements = 32768;

/// Buffers of one quantization; they only grow.
struct QuantizedRows {
  bool is_valid = false;
  int64_t stride = 0;                  // groups from row to row
  std::vector<QuantizedGroup> groups;  // [tokens, stride]

  // q8_2f multiplies its own column field into the input, so each such matrix has a quantization of its own.
  struct ForColumns {
    const std::byte* columns = nullptr;
    std::unique_ptr<QuantizedRows> rows;
  };
  std::vector<ForColumns> for_columns;

  // A product that skips groups of columns: the live ones side by side (live_groups.h).
  std::vector<float> live_x;
  std::unique_ptr<Activations> live;
};

/// The int8 form of `input` for `weight`, made now if this is the first to want it.
[[nodiscard]] TokenRows QuantizeFor(const KernelTable& table, ThreadPool& pool, Activations& input,
                                    const WeightLayout& weight);

/// The int8 rows of `input` as `weight` wants them, sized and counted as made: the caller fills every group of them.
[[nodiscard]] QuantizedRows& RowsToQuantize(Activations& input, const WeightLayout& weight);

/// The f32 rows alone.
[[nodiscard]] TokenRows FloatRowsOf(const Activations& input);

}  // namespace cmforge
