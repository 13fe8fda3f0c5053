// How a function's constants are stored: dense numbers, palettes, scaled integers, sparse; how many bits, and how many
// output channels share a table.
#pragma once

#include "coreml/function_view.h"

namespace cmforge::coreml {

struct StoredForm {
  enum class Kind : uint8_t { kDense, kPalette, kScaled, kSparse };

  Kind kind = Kind::kDense;
  mil::DataType dtype = mil::DataType::kFloat16;  // of the numbers, indices or scaled integers
  int64_t bits = 16;                              // of each
  int64_t channels_per_table = 0;                 // of palettes; 0: one table for all
  mil::TensorType dense;                          // after decoding
  uint64_t table_bytes = 0;                       // tables and scales
  uint64_t stored_bytes = 0;                      // all of it in the file
  const mil::BlobRef* place = nullptr;            // where its main part lies; null: in the program

  [[nodiscard]] int64_t elements() const { return ElementCount(dense.shape).value_or(0); }
};

/// Of a const or constexpr operation with a tensor of numbers; nothing for others.
[[nodiscard]] std::optional<StoredForm> FormOf(const FunctionView& function, const mil::Operation& op);

/// A table that rows are looked up in and nothing else is done with: it stays outside the Neural Engine.
[[nodiscard]] bool IsTable(const FunctionView& function, const mil::Operation& op);

}  // namespace cmforge::coreml
