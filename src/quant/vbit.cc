// vbit and vbit_ro (spec 3.2): each row has its own width of 3, 4, 5, 6 or 8 bits; vbit_ro adds a table of
// where rows begin.
//   [u8 width : rows][f16 scale : rows * cols/32][vbit_ro: u32 offset : rows + 1][packed rows]
// A packed row is its codes in turn, high bit first; cols is a multiple of 32, so every group of 32 begins at
// a byte. w = (code - L) * scale, L = 2^(width-1) - 1, scale = absmax(group) / L. Offsets count from the
// packed area.
#include <cmath>
#include <cstring>

#include "quant/entries.h"
#include "quant/least_error.h"
#include "quant/numeric.h"
#include "quant/row_blocks.h"
#include "quant/vbit_allocation.h"

namespace cmforge {
namespace {

bool IsWidth(int width) { return width == 3 || width == 4 || width == 5 || width == 6 || width == 8; }

constexpr int32_t MiddleCode(int width) { return (1 << (width - 1)) - 1; }

/// Where the parts of a payload begin.
struct Layout {
  Layout(std::span<const int64_t> shape, bool has_offsets)
      : rows(shape[0]),
        groups_per_row(shape[1] / kGroup),
        scales(rows),
        offsets(scales + rows * groups_per_row * 2),
        packed(offsets + (has_offsets ? (rows + 1) * 4 : 0)) {}

  [[nodiscard]] int64_t RowBytes(int width) const { return groups_per_row * 4 * width; }

  int64_t rows, groups_per_row;
  int64_t scales, offsets, packed;  // bytes from the start
};

/// Eight codes are kWidth bytes.
template <int kWidth>
void PackEight(const uint8_t* codes, std::byte* out) {
  uint64_t bits = 0;
  for (int i = 0; i < 8; ++i) bits = bits << kWidth | codes[i];
  bits = __builtin_bswap64(bits << (64 - 8 * kWidth));
  std::memcpy(out, &bits, kWidth);
}

template <int kWidth>
void EncodeRow(const float* w, int64_t groups, int64_t first_index, bool least_error, std::byte* scales,
               std::byte* packed, BadValues& bad) {
  constexpr int32_t kMiddle = MiddleCode(kWidth);
  for (int64_t group = 0; group < groups; ++group, w += kGroup) {
    float scale =
        CheckedScale(AbsMax(w, kGroup) / static_cast<float>(kMiddle), first_index + group * kGroup, bad);
    if (least_error && scale <= kF16Max)
      scale = LeastErrorScale(w, -float{kMiddle}, float{kMiddle + 1}, scale);
    StoreLe(scales + 2 * group, F32ToF16(scale));
    uint8_t codes[kGroup];
    for (int i = 0; i < kGroup; ++i) {
      codes[i] = static_cast<uint8_t>(Code(w[i] / scale, -float{kMiddle}, float{kMiddle + 1}) + kMiddle);
    }
    for (int i = 0; i < kGroup; i += 8, packed += kWidth) PackEight<kWidth>(codes + i, packed);
  }
}

template <int kWidth>
void DecodeRow(const std::byte* scales, const std::byte* packed, int64_t groups, float* out) {
  for (int64_t group = 0; group < groups; ++group) {
    const float scale = F16ToF32(LoadLe<uint16_t>(scales + 2 * group));
    for (int eight = 0; eight < 4; ++eight, packed += kWidth, out += 8) {
      uint64_t bits = 0;
      std::memcpy(&bits, packed, kWidth);
      bits = __builtin_bswap64(bits);
      for (int i = 0; i < 8; ++i) {
        const auto code = static_cast<int32_t>(bits >> (64 - kWidth * (i + 1)) & ((1u << kWidth) - 1));
        out[i] = static_cast<float>(code - MiddleCode(kWidth)) * scale;
      }
    }
  }
}

/// Calls the instance of a function template for a width.
#define CMF_BY_WIDTH(width, Function, ...) \
  switch (width) {                         \
    case 3:                                \
      Function<3>(__VA_ARGS__);            \
      break;                               \
    case 4:                                \
      Function<4>(__VA_ARGS__);            \
      break;                               \
    case 5:                                \
      Function<5>(__VA_ARGS__);            \
      break;                               \
    case 6:                                \
      Function<6>(__VA_ARGS__);            \
      break;                               \
    case 8:                                \
      Function<8>(__VA_ARGS__);            \
      break;                               \
    default:                               \
      break; /* refused by Validate */     \
  }

template <bool kHasOffsets>
Result<void> Validate(Bytes payload, std::span<const int64_t> shape) {
  const auto rows = static_cast<uint64_t>(shape[0]);
  // A width byte is stored for every row, so a true payload bounds the rows before anything is multiplied.
  const uint64_t scale_bytes = GroupBytes(shape, 2);
  const uint64_t per_row = kHasOffsets ? 5 : 1, fixed = kHasOffsets ? 4 : 0;
  const uint64_t size = payload.size();
  if (scale_bytes > size || size - scale_bytes < fixed || rows > (size - scale_bytes - fixed) / per_row) {
    return Fail(
        ErrorKind::kCorrupt,
        fmt::format("{} bytes stored, too few for the widths and scales of shape {}", size, ShapeText(shape)),
        "Bounds");
  }
  const Layout layout(shape, kHasOffsets);
  const auto packed_size = payload.size() - static_cast<uint64_t>(layout.packed);
  uint64_t at = 0;
  for (int64_t row = 0; row < layout.rows; ++row) {
    const int width = std::to_integer<int>(payload[static_cast<size_t>(row)]);
    if (!IsWidth(width)) {
      return Fail(ErrorKind::kCorrupt, fmt::format("row {} is {} bits wide, not 3, 4, 5, 6 or 8", row, width),
                  "Parse");
    }
    if (kHasOffsets) {
      const auto offset = LoadLe<uint32_t>(payload.data() + layout.offsets + 4 * row);
      if (offset != at) {
        return Fail(ErrorKind::kCorrupt,
                    fmt::format("row {} begins at byte {}, its table says {}", row, at, offset), "Parse");
      }
    }
    const auto row_bytes = static_cast<uint64_t>(layout.RowBytes(width));
    if (row_bytes > packed_size - at) {
      return Fail(ErrorKind::kCorrupt,
                  fmt::format("row {} leaves the packed area of {} bytes", row, packed_size), "Bounds");
    }
    at += row_bytes;
  }
  if (at != packed_size) {
    return Fail(ErrorKind::kCorrupt,
                fmt::format("rows take {} bytes, the packed area has {}", at, packed_size), "Bounds");
  }
  if (kHasOffsets && LoadLe<uint32_t>(payload.data() + layout.offsets + 4 * layout.rows) != at) {
    return Fail(ErrorKind::kCorrupt, fmt::format("the last row offset is not the packed size {}", at),
                "Parse");
  }
  return {};
}

template <bool kHasOffsets, bool kLeastError>
Result<std::vector<std::byte>> Encode(const FloatRows& source, const EncodeOptions& options,
                                      ThreadPool& pool) {
  CMF_CHECK(CheckReason(ReasonNotGroups(source.view.shape)));
  if (!(options.mean_bits >= 3 && options.mean_bits <= 8) || !std::isfinite(options.row_bias_bits)) {
    return Fail(ErrorKind::kUsage, fmt::format("mean bits {} are not between 3 and 8", options.mean_bits));
  }
  CMF_TRY(const std::vector<double> amplitudes, RowAmplitudes(source, pool));
  const std::vector<uint8_t> widths = RowWidths(amplitudes, options.mean_bits, options.row_bias_bits);
  const Layout layout(source.view.shape, kHasOffsets);
  std::vector<int64_t> begins(widths.size() + 1);
  for (size_t row = 0; row < widths.size(); ++row)
    begins[row + 1] = begins[row] + layout.RowBytes(widths[row]);
  if (kHasOffsets && begins.back() > int64_t{UINT32_MAX}) {
    return Fail(
        ErrorKind::kUsage,
        fmt::format("the rows take {} bytes, more than vbit_ro can address: use vbit", begins.back()));
  }
  std::vector<std::byte> payload(static_cast<size_t>(layout.packed + begins.back()));
  std::memcpy(payload.data(), widths.data(), widths.size());
  if (kHasOffsets) {
    for (size_t row = 0; row < begins.size(); ++row) {
      StoreLe(payload.data() + layout.offsets + 4 * static_cast<int64_t>(row),
              static_cast<uint32_t>(begins[row]));
    }
  }
  CMF_CHECK(ForRowBlocks(source, 1, kInF16, pool, [&](const RowBlock& block) {
    for (int64_t row = block.begin; row < block.end; ++row) {
      const float* w = block.values + (row - block.begin) * source.cols;
      std::byte* scales = payload.data() + layout.scales + row * layout.groups_per_row * 2;
      std::byte* packed = payload.data() + layout.packed + begins[static_cast<size_t>(row)];
      CMF_BY_WIDTH(widths[static_cast<size_t>(row)], EncodeRow, w, layout.groups_per_row, row * source.cols,
                   kLeastError, scales, packed, *block.bad);
    }
  }));
  return payload;
}

template <bool kHasOffsets>
void Decode(const TensorView& tensor, int64_t begin, int64_t end, float* out) {
  const Layout layout(tensor.shape, kHasOffsets);
  const std::byte* const payload = tensor.bytes.data();
  int64_t at = 0;
  if (kHasOffsets) {
    at = LoadLe<uint32_t>(payload + layout.offsets + 4 * begin);
  } else {
    int64_t bits = 0;
    for (int64_t row = 0; row < begin; ++row) bits += std::to_integer<int>(payload[row]);
    at = bits * layout.RowBytes(1);
  }
  for (int64_t row = begin; row < end; ++row, out += layout.groups_per_row * kGroup) {
    const int width = std::to_integer<int>(payload[row]);
    const std::byte* scales = payload + layout.scales + row * layout.groups_per_row * 2;
    CMF_BY_WIDTH(width, DecodeRow, scales, payload + layout.packed + at, layout.groups_per_row, out);
    at += layout.RowBytes(width);
  }
}

}  // namespace

Result<std::vector<std::byte>> EncodeVbitLeastError(const FloatRows& source, const EncodeOptions& options,
                                                    ThreadPool& pool) {
  return Encode<false, true>(source, options, pool);
}
Result<std::vector<std::byte>> EncodeVbitRoLeastError(const FloatRows& source, const EncodeOptions& options,
                                                      ThreadPool& pool) {
  return Encode<true, true>(source, options, pool);
}

const Encoding kVbitEncoding = {DType::kVbit,  "vbit",          ReasonNotGroups,
                                DependsOnData, Validate<false>, Encode<false, false>,
                                Decode<false>};
const Encoding kVbitRoEncoding = {DType::kVbitRo, "vbit_ro",           ReasonNotGroups, DependsOnData,
                                  Validate<true>, Encode<true, false>, Decode<true>};

}  // namespace cmforge
