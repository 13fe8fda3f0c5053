// Finding and reporting values that cannot be stored.
#include "quant/row_blocks.h"

#include <cmath>

namespace cmforge {

void BadValues::AddNonFinite(int64_t index) { Merge({.non_finite = 1, .first = index}); }

void BadValues::AddUnfit(int64_t index) { Merge({.unfit = 1, .first = index}); }

void BadValues::Merge(const BadValues& other) {
  non_finite += other.non_finite;
  unfit += other.unfit;
  if (other.first >= 0 && (first < 0 || other.first < first)) first = other.first;
}

void FindNonFinite(const float* values, int64_t count, int64_t first_index, BadValues& bad) {
  int32_t any = 0;
  for (int64_t i = 0; i < count; ++i) any |= std::isfinite(values[i]) ? 0 : 1;
  if (any == 0) return;
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(values[i])) bad.AddNonFinite(first_index + i);
  }
}

namespace {

/// Calls fn(row-major index, value) for every weight, in order; a double as it is, whether or not it fits a float.
template <class Fn>
void ForWeights(const FloatRows& source, Fn&& fn) {
  std::vector<float> row(static_cast<size_t>(source.cols));
  for (int64_t r = 0; r < source.rows; ++r) {
    const int64_t first = r * source.cols;
    if (source.view.dtype == DType::kF64) {
      for (int64_t i = first; i < first + source.cols; ++i)
        fn(i, LoadLe<double>(source.view.bytes.data() + i * 8));
      continue;
    }
    source.Read(r, r + 1, row.data());
    for (int64_t i = 0; i < source.cols; ++i) fn(first + i, static_cast<double>(row[static_cast<size_t>(i)]));
  }
}

}  // namespace

Result<void> ReportBadValues(const BadValues& bad, std::string_view storage, const FloatRows& source) {
  if (bad.first < 0) return {};
  // Encoders tally scales of groups, and doubles as floats that became infinite.
  struct Place {
    int64_t count = 0, at = -1;
    double value = 0;
  } non_finite, largest, first;
  ForWeights(source, [&](int64_t i, double value) {
    if (!std::isfinite(value) && non_finite.count++ == 0) non_finite.at = i, non_finite.value = value;
    if (largest.at < 0 || std::fabs(value) > std::fabs(largest.value)) largest.at = i, largest.value = value;
    if (i == bad.first) first.at = i, first.value = value;
  });
  const auto shown = [&](const char* which, const Place& place) {
    const bool is_double = source.view.dtype == DType::kF64;
    return fmt::format(
        "the {} is {} at row {} column {}", which,
        is_double ? fmt::format("{}", place.value) : fmt::format("{}", static_cast<float>(place.value)),
        place.at / source.cols, place.at % source.cols);
  };
  if (non_finite.count > 0) {
    return Fail(ErrorKind::kCorrupt, fmt::format("{} values are NaN or infinite, {}: fetch the weights again",
                                                 non_finite.count, shown("first", non_finite)));
  }
  const bool is_too_large = std::fabs(largest.value) > static_cast<double>(kF16Max);
  return Fail(
      ErrorKind::kCorrupt,
      fmt::format("{} numbers do not fit {}, {}: store this tensor as f32", bad.unfit + bad.non_finite,
                  storage, is_too_large ? shown("largest", largest) : shown("first", first)));
}

Result<void> CheckFinite(const FloatRows& source, ThreadPool& pool) {
  return ForRowBlocks(source, 1, "f32", pool, [](const RowBlock&) {});
}

}  // namespace cmforge
