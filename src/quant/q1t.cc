// q1t (spec 3.2): ternary weights {-s, 0, +s} plus outliers kept as f16 by row.
//   { [f16 scale][7 bytes of base-3 codes] } : rows * cols / 32     5 codes a byte (weights 1, 3, 9, 27, 81),
//   the
//                                                                   last byte 2; code 0 is 0, 1 is +s, 2 is
//                                                                   -s
//   [u32 row_ptr : rows + 1]{ [u16 column][f16 value] } : row_ptr[rows]
// A row's entries ascend by column, and the code under an entry is 0, so that adding and replacing agree;
// other files are refused. `column_mean_square` weighs errors and outliers by what the operator really sees.
#include <array>
#include <cmath>
#include <limits>

#include "quant/entries.h"
#include "quant/numeric.h"
#include "quant/outliers.h"
#include "quant/row_blocks.h"

namespace cmforge {
namespace {

constexpr int64_t kTile = 9;
constexpr int64_t kEntry = 4;

std::string Reason(std::span<const int64_t> shape) {
  if (std::string reason = ReasonNotGroups(shape); !reason.empty()) return reason;
  if (shape[1] > 65536) return fmt::format("columns {} are more than a 16-bit index can address", shape[1]);
  return {};
}

/// The five codes of every byte; bytes from 243 on are no code's and read modulo 3 in their last place.
constexpr std::array<std::array<uint8_t, 5>, 256> kCodesOfByte = [] {
  std::array<std::array<uint8_t, 5>, 256> table{};
  for (int byte = 0; byte < 256; ++byte) {
    int rest = byte;
    for (int i = 0; i < 5; ++i, rest /= 3)
      table[static_cast<size_t>(byte)][static_cast<size_t>(i)] = static_cast<uint8_t>(rest % 3);
  }
  return table;
}();

uint8_t CodeOf(const std::byte* codes, int64_t i) {
  return kCodesOfByte[std::to_integer<size_t>(codes[i / 5])][static_cast<size_t>(i % 5)];
}

Result<void> Validate(Bytes payload, std::span<const int64_t> shape) {
  const auto rows = static_cast<uint64_t>(shape[0]);
  const int64_t groups_per_row = shape[1] / kGroup;
  const uint64_t base = GroupBytes(shape, kTile);
  const uint64_t size = payload.size();
  if (base > size || size - base < 4 || rows > (size - base - 4) / 4) {
    return Fail(ErrorKind::kCorrupt,
                fmt::format("{} bytes stored, too few for the codes of shape {}", size, ShapeText(shape)),
                "Bounds");
  }
  const std::byte* const row_ptr = payload.data() + base;
  const std::byte* const entries = row_ptr + 4 * (rows + 1);
  const uint64_t space = size - base - 4 * (rows + 1);
  const uint64_t count = LoadLe<uint32_t>(row_ptr + 4 * rows);
  if (space != count * kEntry) {
    return Fail(ErrorKind::kCorrupt,
                fmt::format("{} outliers need {} bytes, {} are stored", count, count * kEntry, space),
                "Bounds");
  }
  uint64_t at = 0;
  if (LoadLe<uint32_t>(row_ptr) != 0)
    return Fail(ErrorKind::kCorrupt, "the outliers of row 0 do not begin at 0", "Parse");
  for (uint64_t row = 0; row < rows; ++row) {
    const uint64_t end = LoadLe<uint32_t>(row_ptr + 4 * (row + 1));
    if (end < at || end > count) {
      return Fail(ErrorKind::kCorrupt,
                  fmt::format("the outliers of row {} end at {}, not in [{}, {}]", row, end, at, count),
                  "Bounds");
    }
    int64_t least = 0;
    for (; at < end; ++at) {
      const int64_t column = LoadLe<uint16_t>(entries + at * kEntry);
      if (column < least || column >= shape[1]) {
        return Fail(ErrorKind::kCorrupt,
                    fmt::format("an outlier of row {} is at column {}, not in [{}, {})", row, column, least,
                                shape[1]),
                    column < least ? "Parse" : "Bounds");
      }
      const auto tile = row * static_cast<uint64_t>(groups_per_row) + static_cast<uint64_t>(column / kGroup);
      if (CodeOf(payload.data() + tile * kTile + 2, column % kGroup) != 0) {
        return Fail(ErrorKind::kCorrupt,
                    fmt::format("row {} column {} has both a code and an outlier", row, column), "Parse");
      }
      least = column + 1;
    }
  }
  return {};
}

/// A way to code one group: a scale and which weights are not zero.
struct Ternary {
  float scale = 0;
  uint32_t nonzero = 0;  // bit i: weight i
  double error = 0;
};

/// d-weighted squared error of a choice; outliers (bits of `skip`) do not count.
double ErrorOf(const float* w, const double* d, uint32_t skip, const Ternary& choice) {
  double error = 0;
  for (uint32_t i = 0; i < kGroup; ++i) {
    if (skip >> i & 1u) continue;
    const double q = (choice.nonzero >> i & 1u) == 0 ? 0.0 : w[i] >= 0 ? choice.scale : -choice.scale;
    const double difference = w[i] - q;
    error += d[i] * difference * difference;
  }
  return error;
}

Ternary EncodeGroup(const float* w, const double* d, uint32_t skip) {
  float sum = 0;
  int kept = 0;
  for (uint32_t i = 0; i < kGroup; ++i) {
    if (skip >> i & 1u) continue;
    sum += std::fabs(w[i]);
    ++kept;
  }
  const float mean = kept == 0 ? 0.0f : sum / static_cast<float>(kept);

  Ternary plain{.scale = StoredScale(mean)};
  Ternary fitted;
  double weighted = 0, weight = 0;
  for (uint32_t i = 0; i < kGroup; ++i) {
    if (skip >> i & 1u) continue;
    const float magnitude = std::fabs(w[i]);
    if (magnitude >= 0.5f * plain.scale) plain.nonzero |= 1u << i;
    if (magnitude >= 0.7f * mean) {
      fitted.nonzero |= 1u << i;
      weighted += d[i] * static_cast<double>(magnitude);
      weight += d[i];
    }
  }
  plain.error = ErrorOf(w, d, skip, plain);
  if (weight > 0) {
    fitted.scale = StoredScale(static_cast<float>(weighted / weight));
    fitted.error = ErrorOf(w, d, skip, fitted);
    if (fitted.error < plain.error) return fitted;
  }
  return plain;
}

void EncodeRow(const float* w, int64_t cols, std::span<const double> d, std::span<const float> column_weights,
               float threshold, int64_t first_index, std::vector<Ternary>& choices, std::byte* tile,
               std::byte* entries, BadValues& bad) {
  const int64_t groups = cols / kGroup;
  double dot = 0, square = 0;
  for (int64_t g = 0; g < groups; ++g) {
    const float* values = w + g * kGroup;
    const double* weights = d.data() + g * kGroup;
    uint32_t skip = 0;
    for (uint32_t i = 0; i < kGroup; ++i) {
      const int64_t column = g * kGroup + i;
      if (OutlierScore(values[i], column_weights, column) < threshold) continue;
      skip |= 1u << i;
      StoreLe(entries, static_cast<uint16_t>(column));
      StoreLe(entries + 2, StoredOutlier(values[i], first_index + column, bad));
      entries += kEntry;
    }
    const Ternary choice = EncodeGroup(values, weights, skip);
    for (uint32_t i = 0; i < kGroup; ++i) {
      if ((choice.nonzero >> i & 1u) == 0) continue;
      const double q = values[i] >= 0 ? choice.scale : -choice.scale;
      dot += weights[i] * q * values[i];
      square += weights[i] * q * q;
    }
    choices[static_cast<size_t>(g)] = choice;
  }
  const auto correction = static_cast<float>(square > 0 ? std::clamp(dot / square, 0.5, 2.0) : 1.0);
  for (int64_t g = 0; g < groups; ++g, tile += kTile) {
    const Ternary& choice = choices[static_cast<size_t>(g)];
    StoreLe(tile, StoredOutlier(choice.scale * correction, first_index + g * kGroup, bad));
    const float* values = w + g * kGroup;
    for (uint32_t byte = 0; byte < 7; ++byte) {
      int32_t packed = 0;
      for (uint32_t i = std::min<uint32_t>(5 * byte + 5, kGroup); i-- > 5 * byte;) {
        packed = packed * 3 + ((choice.nonzero >> i & 1u) == 0 ? 0 : values[i] >= 0 ? 1 : 2);
      }
      tile[2 + byte] = static_cast<std::byte>(packed);
    }
  }
}

Result<std::vector<std::byte>> Encode(const FloatRows& source, const EncodeOptions& options,
                                      ThreadPool& pool) {
  CMF_CHECK(CheckReason(Reason(source.view.shape)));
  const std::span<const float> importance = options.column_mean_square;
  if (!importance.empty() && static_cast<int64_t>(importance.size()) != source.cols) {
    return Fail(ErrorKind::kUsage, fmt::format("column statistics are for {} columns, the tensor has {}",
                                               importance.size(), source.cols));
  }
  std::vector<double> d(static_cast<size_t>(source.cols), 1.0);
  std::vector<float> column_weights;
  for (size_t i = 0; i < importance.size(); ++i) {
    if (!(importance[i] >= 0) || !std::isfinite(importance[i])) {
      return Fail(ErrorKind::kUsage, fmt::format("column statistics: {} at column {}", importance[i], i));
    }
    d[i] = importance[i];
    column_weights.push_back(std::sqrt(importance[i]));
  }
  CMF_TRY(const int64_t wanted, OutlierCount(options.outlier_fraction, 0.0, source.rows * source.cols));
  // A weight that is zero, or that no input ever reaches, is no outlier, however many are wanted.
  constexpr float kLeastScore = std::numeric_limits<float>::denorm_min();
  CMF_TRY(Outliers outliers, FindOutliers(source, column_weights, wanted, kLeastScore, pool));
  if (outliers.count() > UINT32_MAX) {
    return Fail(ErrorKind::kUsage,
                fmt::format("{} outliers are more than a 32-bit count holds", outliers.count()));
  }
  const int64_t groups = source.cols / kGroup;
  const int64_t base = source.rows * groups * kTile;
  const int64_t overlay = base + 4 * (source.rows + 1);
  std::vector<std::byte> payload(static_cast<size_t>(overlay) + outliers.count() * kEntry);
  for (int64_t row = 0; row <= source.rows; ++row) {
    StoreLe(payload.data() + base + 4 * row,
            static_cast<uint32_t>(outliers.first_of_row[static_cast<size_t>(row)]));
  }
  std::vector<std::vector<Ternary>> choices(static_cast<size_t>(pool.threads()),
                                            std::vector<Ternary>(static_cast<size_t>(groups)));
  CMF_CHECK(ForRowBlocks(source, 1, kInF16, pool, [&](const RowBlock& block) {
    for (int64_t row = block.begin; row < block.end; ++row) {
      EncodeRow(block.values + (row - block.begin) * source.cols, source.cols, d, column_weights,
                outliers.threshold, row * source.cols, choices[static_cast<size_t>(block.worker)],
                payload.data() + row * groups * kTile,
                payload.data() + overlay + outliers.first_of_row[static_cast<size_t>(row)] * kEntry,
                *block.bad);
    }
  }));
  return payload;
}

void Decode(const TensorView& tensor, int64_t begin, int64_t end, float* out) {
  const int64_t cols = tensor.shape[1], groups = cols / kGroup;
  const std::byte* const row_ptr = tensor.bytes.data() + tensor.shape[0] * groups * kTile;
  const std::byte* const entries = row_ptr + 4 * (tensor.shape[0] + 1);
  for (int64_t row = begin; row < end; ++row, out += cols) {
    const std::byte* tile = tensor.bytes.data() + row * groups * kTile;
    for (int64_t g = 0; g < groups; ++g, tile += kTile) {
      const float scale = F16ToF32(LoadLe<uint16_t>(tile));
      const float value_of[3] = {0.0f, scale, -scale};
      for (int64_t i = 0; i < kGroup; ++i) out[g * kGroup + i] = value_of[CodeOf(tile + 2, i)];
    }
    const int64_t last = LoadLe<uint32_t>(row_ptr + 4 * (row + 1));
    for (int64_t entry = LoadLe<uint32_t>(row_ptr + 4 * row); entry < last; ++entry) {
      out[LoadLe<uint16_t>(entries + entry * kEntry)] =
          F16ToF32(LoadLe<uint16_t>(entries + entry * kEntry + 2));
    }
  }
}

}  // namespace

const Encoding kQ1tEncoding = {DType::kQ1t, "q1t", Reason, DependsOnData, Validate, Encode, Decode};

}  // namespace cmforge
