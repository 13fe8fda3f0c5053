// Products that skip columns: of a matrix whose input is zero in many groups of 32 columns (neurons that a task mask
// has switched off) only the live groups are read and multiplied. Where an instruction set has a product that walks the
// list of live groups, it reads them in place. Elsewhere the bytes of the live groups of a block of rows are copied
// together into scratch, in the encoding's own layout, and the ordinary product runs on that; so every encoding and
// instruction set is served, at the price of one copy of what is read anyway, which many tokens do not feel. Both give
// the same bits.
//
// The live groups are summed as if they were the whole row: the result differs in rounding from the product over all
// columns, but depends, as ever, on the row, the token and the groups alone.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/activations.h"
#include "kernels/kernels.h"
#include "kernels/table.h"
#include "model/tensor_source.h"

namespace cmforge {

/// One matrix seen through some of its groups. Points into the matrix and into `groups`.
class LiveGroups {
 public:
  /// `groups`: ascending, at least one. The matrix CanSkipGroups.
  LiveGroups(const WeightLayout& whole, std::span<const int32_t> groups);

  /// What a product needs to know of the narrow matrix, apart from its rows: 32 columns a group.
  [[nodiscard]] const WeightLayout& layout() const { return narrow_; }
  /// The same groups where they lie. Null: rows that end within a group have to be gathered.
  [[nodiscard]] const WeightLayout* in_place() const {
    return in_place_.live != nullptr ? &in_place_ : nullptr;
  }

  /// Rows that are gathered at a time, and the bytes of memory that takes.
  [[nodiscard]] static int64_t BlockRows(int64_t tokens) { return tokens >= 8 ? 128 : 32; }
  [[nodiscard]] int64_t BlockBytes(int64_t rows) const;

  /// A block of rows as a matrix of its own.
  struct Block {
    WeightLayout layout;
    TensorView view;  // float encodings: what layout.view points to
  };
  /// Copies the live groups of rows [begin, end) into `memory` (64-byte aligned). `block` must stay where it is.
  void Gather(int64_t begin, int64_t end, std::byte* memory, Block& block) const;

 private:
  const WeightLayout& whole_;
  std::span<const int32_t> groups_;
  WeightLayout narrow_, in_place_;
  std::vector<int32_t> live_;       // in_place_.live
  std::vector<std::byte> columns_;  // q8_2f: the column field of the live groups
  int64_t group_bytes_ = 0;         // of codes, where that is the same for all rows
};

/// The rows of `input` that `tokens` names (all when empty), their live columns alone, side by side. Kept in `input`;
/// valid until it is set anew or asked for other groups.
Activations& LiveColumns(ThreadPool& pool, Activations& input, std::span<const int32_t> groups,
                         std::span<const int32_t> tokens);

/// The same rows and columns in int8, for `narrow`, the layout() of these groups.
[[nodiscard]] TokenRows QuantizeLive(const KernelTable& table, ThreadPool& pool, Activations& input,
                                     const WeightLayout& narrow, std::span<const int32_t> groups,
                                     std::span<const int32_t> tokens);

}  // namespace cmforge
