// Rows of numbers on their way from a source into a graph: a tensor, a part of one, several behind or beside
// each other, scaled. Nothing is read before it is asked for, and then in blocks.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/tensor_source.h"

namespace cmforge::coreml {

struct RowRange {
  int64_t begin = 0, end = 0;
};

struct WeightRows {
  int64_t rows = 0, cols = 0;
  std::function<void(int64_t begin, int64_t end, float* out)> read;  // any thread
  /// How much the square of an error of each number counts, >= 0, in the same shape; none: all alike. What is
  /// done to the rows is done to it, so that a number and its importance stay together.
  std::shared_ptr<const WeightRows> importance;
};

/// A tensor as the source stores it; [r, a, b] has rows of a * b numbers, a vector rows of one.
/// Fails: kNotFound, and kCorrupt or kUnsupported for contents that cannot be decoded (tensor named).
Result<WeightRows> TensorRows(const TensorSource& source, const std::string& name);

/// The ranges of `from` one after another. They must lie inside.
[[nodiscard]] WeightRows SelectRows(WeightRows from, std::vector<RowRange> ranges);

/// All rows of the first, then of the second, ...; equal widths.
[[nodiscard]] WeightRows StackRows(std::vector<WeightRows> parts);

/// Row r of every part side by side; equal numbers of rows.
[[nodiscard]] WeightRows JoinColumns(std::vector<WeightRows> parts);

/// x * scale + offset. Errors count as before in the numbers that were scaled: importance / scale^2.
[[nodiscard]] WeightRows ScaleRows(WeightRows from, float scale, float offset = 0);

/// Rows become columns; holds all of it in memory, so for small tensors. Without importance.
[[nodiscard]] WeightRows TransposeRows(const WeightRows& from);

/// The same row times each of the factors.
[[nodiscard]] WeightRows OuterProduct(std::vector<float> factors, std::vector<float> row);

/// Numbers that were computed, [rows, cols].
[[nodiscard]] WeightRows ComputedRows(int64_t rows, int64_t cols, std::vector<float> values);

}  // namespace cmforge::coreml
