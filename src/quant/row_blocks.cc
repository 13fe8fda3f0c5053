// Finding and reporting values that cannot be stored.
#include "quant/row_blocks.h"

#include <cmath>

namespace cmforge {

void BadValues::AddNonFinite(int64_t index, float bad) {
  Merge({.non_finite = 1, .first = index, .value = bad});
}

void BadValues::AddUnfit(int64_t index, float bad) { Merge({.unfit = 1, .first = index, .value = bad}); }

void BadValues::Merge(const BadValues& other) {
  non_finite += other.non_finite;
  unfit += other.unfit;
  if (other.first >= 0 && (first < 0 || other.first < first)) {
    first = other.first;
    value = other.value;
  }
}

void FindNonFinite(const float* values, int64_t count, int64_t first_index, BadValues& bad) {
  int32_t any = 0;
  for (int64_t i = 0; i < count; ++i) any |= std::isfinite(values[i]) ? 0 : 1;
  if (any == 0) return;
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(values[i])) bad.AddNonFinite(first_index + i, values[i]);
  }
}

Result<void> ReportBadValues(const BadValues& bad, std::string_view storage, int64_t cols) {
  if (bad.first < 0) return {};
  const std::string first =
      fmt::format("the first is {} at row {} column {}", bad.value, bad.first / cols, bad.first % cols);
  if (bad.non_finite > 0) {
    return Fail(ErrorKind::kCorrupt, fmt::format("{} values are NaN or infinite, {}", bad.non_finite, first));
  }
  return Fail(ErrorKind::kUsage, fmt::format("{} numbers do not fit {}, {}: store this tensor as f32",
                                             bad.unfit, storage, first));
}

}  // namespace cmforge
