// q1s (spec 3.2): the signs of q1 plus the largest weights of the tensor kept as f16.
//   { [f16 scale][4 bytes of signs] } : rows * cols / 32
//   [u32 count]{ [u32 flat index][f16 value] } : count      ascending by index; an entry replaces the sign's
//   value
// Scales are the mean magnitude of the other weights; signs are decided with error diffusion along the row,
// in which outliers take no part. Entries that do not ascend are refused: rows are found by bisection.
#include <cmath>

#include "quant/entries.h"
#include "quant/outliers.h"
#include "quant/q1_tile.h"
#include "quant/row_blocks.h"

namespace cmforge {
namespace {

constexpr double kStandardFraction = 0.01;
constexpr int64_t kEntry = 6;

std::string Reason(std::span<const int64_t> shape) {
  if (std::string reason = ReasonNotGroups(shape); !reason.empty()) return reason;
  if (ElementCount(shape).value_or(INT64_MAX) > int64_t{1} << 32) {
    return fmt::format("shape {} has more elements than a 32-bit index can address", ShapeText(shape));
  }
  return {};
}

Result<void> Validate(Bytes payload, std::span<const int64_t> shape) {
  const uint64_t base = GroupBytes(shape, kSignTile);
  if (payload.size() < 4 || base > payload.size() - 4) {
    return Fail(
        ErrorKind::kCorrupt,
        fmt::format("{} bytes stored, too few for the signs of shape {}", payload.size(), ShapeText(shape)),
        "Bounds");
  }
  const uint64_t count = LoadLe<uint32_t>(payload.data() + base);
  const uint64_t space = payload.size() - base - 4;
  if (space != count * kEntry) {
    return Fail(ErrorKind::kCorrupt,
                fmt::format("{} outliers need {} bytes, {} are stored", count, count * kEntry, space),
                "Bounds");
  }
  const auto elements = static_cast<uint64_t>(*ElementCount(shape));
  uint64_t least = 0;
  const std::byte* entry = payload.data() + base + 4;
  for (uint64_t i = 0; i < count; ++i, entry += kEntry) {
    const uint64_t index = LoadLe<uint32_t>(entry);
    if (index >= elements || index < least) {
      return Fail(ErrorKind::kCorrupt,
                  fmt::format("outlier {} is at element {}, not in [{}, {})", i, index, least, elements),
                  index >= elements ? "Bounds" : "Parse");
    }
    least = index + 1;
  }
  return {};
}

/// One row; its outliers go to `entries` in order.
void EncodeRow(const float* w, int64_t cols, float threshold, int64_t first_index, std::byte* tile,
               std::byte* entries, BadValues& bad) {
  float carry = 0;
  for (int64_t first = 0; first < cols; first += kGroup, tile += kSignTile) {
    float sum = 0;
    int kept = 0;
    for (int64_t i = first; i < first + kGroup; ++i) {
      const float magnitude = std::fabs(w[i]);
      if (magnitude >= threshold) continue;
      sum += magnitude;
      ++kept;
    }
    const float scale =
        CheckedScale(kept == 0 ? 0.0f : sum / static_cast<float>(kept), first_index + first, bad);
    uint32_t bits = 0;
    for (uint32_t i = 0; i < kGroup; ++i) {
      const float value = w[first + i];
      if (std::fabs(value) >= threshold) {
        bits |= static_cast<uint32_t>(value >= 0) << i;
        StoreLe(entries, static_cast<uint32_t>(first_index + first + i));
        StoreLe(entries + 4, StoredOutlier(value, first_index + first + i, bad));
        entries += kEntry;
        continue;
      }
      const float wanted = value + carry;
      const bool positive = wanted >= 0;
      bits |= static_cast<uint32_t>(positive) << i;
      carry = wanted - (positive ? scale : -scale);
    }
    StoreSignTile(scale, bits, tile);
  }
}

Result<std::vector<std::byte>> Encode(const FloatRows& source, const EncodeOptions& options,
                                      ThreadPool& pool) {
  CMF_CHECK(CheckReason(Reason(source.view.shape)));
  CMF_TRY(const int64_t wanted,
          OutlierCount(options.outlier_fraction, kStandardFraction, source.rows * source.cols));
  CMF_TRY(const Outliers outliers, FindOutliers(source, {}, wanted, 0.0f, pool));
  if (outliers.count() > UINT32_MAX) {
    return Fail(ErrorKind::kUsage,
                fmt::format("{} outliers are more than a 32-bit count holds", outliers.count()));
  }
  const int64_t row_bytes = source.cols / kGroup * kSignTile;
  const int64_t base = source.rows * row_bytes;
  std::vector<std::byte> payload(static_cast<size_t>(base) + 4 + outliers.count() * kEntry);
  StoreLe(payload.data() + base, static_cast<uint32_t>(outliers.count()));
  CMF_CHECK(ForRowBlocks(source, 1, kInF16, pool, [&](const RowBlock& block) {
    for (int64_t row = block.begin; row < block.end; ++row) {
      std::byte* entries =
          payload.data() + base + 4 + outliers.first_of_row[static_cast<size_t>(row)] * kEntry;
      EncodeRow(block.values + (row - block.begin) * source.cols, source.cols, outliers.threshold,
                row * source.cols, payload.data() + row * row_bytes, entries, *block.bad);
    }
  }));
  return payload;
}

void Decode(const TensorView& tensor, int64_t begin, int64_t end, float* out) {
  const int64_t cols = tensor.shape[1];
  const int64_t tiles_per_row = cols / kGroup;
  const std::byte* tile = tensor.bytes.data() + begin * tiles_per_row * kSignTile;
  for (int64_t i = 0; i < (end - begin) * tiles_per_row; ++i, tile += kSignTile) {
    DecodeSignTile(tile, out + i * kGroup);
  }
  const std::byte* const overlay = tensor.bytes.data() + tensor.shape[0] * tiles_per_row * kSignTile;
  const int64_t count = LoadLe<uint32_t>(overlay);
  const auto index_of = [&](int64_t entry) {
    return int64_t{LoadLe<uint32_t>(overlay + 4 + entry * kEntry)};
  };
  int64_t low = 0, high = count;  // the first entry at or after the first element
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (index_of(middle) < begin * cols)
      low = middle + 1;
    else
      high = middle;
  }
  for (; low < count && index_of(low) < end * cols; ++low) {
    out[index_of(low) - begin * cols] = F16ToF32(LoadLe<uint16_t>(overlay + 4 + low * kEntry + 4));
  }
}

}  // namespace

const Encoding kQ1sEncoding = {DType::kQ1s, "q1s", Reason, DependsOnData, Validate, Encode, Decode};

}  // namespace cmforge
