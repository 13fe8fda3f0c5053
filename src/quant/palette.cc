#include "quant/palette.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/half.h"

namespace cmforge {
namespace {

// f16 patterns in the order of their values; both zeros share one key.
uint16_t KeyOf(uint16_t pattern) {
  const int magnitude = pattern & 0x7FFF;
  return static_cast<uint16_t>((pattern & 0x8000) != 0 ? 0x8000 - magnitude : 0x8000 + magnitude);
}

double ValueOf(uint16_t key) {
  return key >= 0x8000 ? static_cast<double>(F16ToF32(static_cast<uint16_t>(key - 0x8000)))
                       : -static_cast<double>(F16ToF32(static_cast<uint16_t>(0x8000 - key)));
}

}  // namespace

bool IsPaletteWidth(int bits) { return (bits >= 1 && bits <= 4) || bits == 6 || bits == 8; }

Result<void> PaletteFitter::Collect(std::span<const uint16_t> values, std::span<const float> weights) {
  double floor = 0;
  bool weighted = false;
  if (!weights.empty()) {
    double sum = 0;
    for (size_t j = 0; j < weights.size(); ++j) {
      if (!(weights[j] >= 0) || std::isinf(weights[j])) {
        return Fail(
            ErrorKind::kUsage,
            fmt::format("palette: weight {} of column {} is not a finite number >= 0", weights[j], j));
      }
      sum += static_cast<double>(weights[j]);
    }
    floor = 1e-3 * sum / static_cast<double>(weights.size());
    weighted = sum > 0;  // all zero: nothing is known, every column counts alike
  }

  int lowest = 65535, highest = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if ((values[i] & 0x7C00) == 0x7C00) {
      for (int key = lowest; key <= highest; ++key) mass_of_key_[static_cast<size_t>(key)] = 0;
      return Fail(ErrorKind::kCorrupt,
                  fmt::format("palette: value {} of the group is not a finite f16 number", i));
    }
    const int key = KeyOf(values[i]);
    lowest = std::min(lowest, key);
    highest = std::max(highest, key);
    mass_of_key_[static_cast<size_t>(key)] +=
        weighted ? std::max(static_cast<double>(weights[i % weights.size()]), floor) : 1.0;
  }
  keys_.clear();
  values_.clear();
  masses_.clear();
  for (int key = lowest; key <= highest; ++key) {
    double& mass = mass_of_key_[static_cast<size_t>(key)];
    if (mass == 0) continue;
    keys_.push_back(static_cast<uint16_t>(key));
    values_.push_back(ValueOf(static_cast<uint16_t>(key)));
    masses_.push_back(mass);
    mass = 0;
  }
  return {};
}

// Fills current_[first..last] by divide and conquer: the best beginning of the last cluster moves only upward as
// values are added, because the cost of an interval has the Monge property.
void PaletteFitter::SolveRow(int64_t first, int64_t last, int64_t low, int64_t high, uint16_t* choice) {
  while (first <= last) {
    const int64_t middle = first + (last - first) / 2;
    const double mass = mass_[static_cast<size_t>(middle)];
    const double moment = first_moment_[static_cast<size_t>(middle)];
    double best = std::numeric_limits<double>::infinity();
    int64_t where = low;
    for (int64_t begin = low; begin <= std::min(high, middle - 1); ++begin) {
      const auto b = static_cast<size_t>(begin);
      const double sum = moment - first_moment_[b];
      const double cost = previous_[b] - sum * sum / (mass - mass_[b]);
      if (cost < best) {
        best = cost;
        where = begin;
      }
    }
    current_[static_cast<size_t>(middle)] = best;
    choice[middle] = static_cast<uint16_t>(where);
    SolveRow(first, middle - 1, low, where, choice);
    first = middle + 1;
    low = where;
  }
}

// Cuts the distinct values into `clusters` <= n intervals of least total cost; borders_ are their ends.
void PaletteFitter::Partition(int64_t clusters) {
  const auto n = static_cast<int64_t>(values_.size());
  mass_.assign(static_cast<size_t>(n + 1), 0);
  first_moment_.assign(static_cast<size_t>(n + 1), 0);
  second_moment_.assign(static_cast<size_t>(n + 1), 0);
  double total = 0, mean = 0;
  for (size_t i = 0; i < values_.size(); ++i) {
    total += masses_[i];
    mean += masses_[i] * values_[i];
  }
  mean /= total;
  for (size_t i = 0; i < values_.size(); ++i) {
    const double x = values_[i] - mean;
    mass_[i + 1] = mass_[i] + masses_[i];
    first_moment_[i + 1] = first_moment_[i] + masses_[i] * x;
    second_moment_[i + 1] = second_moment_[i] + masses_[i] * x * x;
  }

  // Costs are kept without second_moment_, which does not depend on the cut; it cancels between rows.
  previous_.resize(static_cast<size_t>(n + 1));
  current_.resize(static_cast<size_t>(n + 1));
  for (size_t i = 1; i <= static_cast<size_t>(n); ++i) {
    previous_[i] = -first_moment_[i] * first_moment_[i] / mass_[i];
  }
  choices_.resize(static_cast<size_t>((clusters + 1) * (n + 1)));
  for (int64_t k = 2; k <= clusters; ++k) {
    uint16_t* choice = choices_.data() + k * (n + 1);
    // The last row is asked for all values only; earlier ones must leave a value for each later cluster.
    const int64_t last = n - (clusters - k);
    SolveRow(k == clusters ? n : k, last, k - 1, last - 1, choice);
    std::swap(previous_, current_);
  }
  borders_.assign(static_cast<size_t>(clusters + 1), 0);
  borders_[static_cast<size_t>(clusters)] = n;
  for (int64_t k = clusters; k >= 2; --k) {
    borders_[static_cast<size_t>(k - 1)] =
        choices_[static_cast<size_t>(k * (n + 1) + borders_[static_cast<size_t>(k)])];
  }
}

Result<double> PaletteFitter::Fit(std::span<const uint16_t> values, std::span<const float> weights, int bits,
                                  std::span<uint16_t> table, std::span<uint8_t> indices) {
  if (!IsPaletteWidth(bits)) {
    return Fail(ErrorKind::kUsage, fmt::format("palette: {} bits: use 1, 2, 3, 4, 6 or 8", bits));
  }
  const size_t entries = size_t{1} << bits;
  if (table.size() != entries || (!indices.empty() && indices.size() != values.size()) ||
      (!weights.empty() && values.size() % weights.size() != 0)) {
    return Fail(
        ErrorKind::kUsage,
        fmt::format("palette: {} values, {} weights, {} table entries and {} indices do not fit {} bits",
                    values.size(), weights.size(), table.size(), indices.size(), bits));
  }
  std::ranges::fill(table, uint16_t{0});
  if (values.empty()) return 0.0;
  CMF_CHECK(Collect(values, weights));

  const size_t clusters = std::min(entries, values_.size());
  Partition(static_cast<int64_t>(clusters));
  for (size_t k = 0; k < clusters; ++k) {
    double mass = 0, sum = 0;
    for (auto i = static_cast<size_t>(borders_[k]); i < static_cast<size_t>(borders_[k + 1]); ++i) {
      mass += masses_[i];
      sum += masses_[i] * values_[i];
    }
    table[k] = F32ToF16(static_cast<float>(sum / mass));
  }

  double error = 0;
  size_t entry = 0;
  for (size_t i = 0; i < values_.size(); ++i) {
    const auto level = [&](size_t k) { return static_cast<double>(F16ToF32(table[k])); };
    while (entry + 1 < clusters && values_[i] > (level(entry) + level(entry + 1)) / 2) ++entry;
    const double off = values_[i] - level(entry);
    error += masses_[i] * off * off;
    index_of_key_[keys_[i]] = static_cast<uint8_t>(entry);
  }
  for (size_t i = 0; i < indices.size(); ++i) indices[i] = index_of_key_[KeyOf(values[i])];
  return error;
}

}  // namespace cmforge
