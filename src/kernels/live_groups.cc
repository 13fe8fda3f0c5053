// Gathering the live groups of rows, one way for each kind of layout.
#include "kernels/live_groups.h"

#include <algorithm>
#include <cstring>

#include "base/bytes.h"

namespace cmforge {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kPadding = 128;  // kernels may look a vector past the last code
constexpr int64_t kRowsAhead = 4;  // how far ahead of the copy memory is asked for

int64_t Aligned(int64_t bytes) {
  return static_cast<int64_t>(AlignUp(static_cast<uint64_t>(bytes), kAlignment));
}

/// Bytes of codes in a group, 0 for vbit, whose rows differ.
int64_t GroupBytes(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 128;
    case DType::kF16:
    case DType::kBF16:
      return 64;
    case DType::kQ8Row:
    case DType::kQ8TwoField:
      return 32;
    case DType::kQ4Block:
    case DType::kQ4tp:
      return 16;
    case DType::kQ4Tiled:
      return 18;
    case DType::kQ2tp:
      return 8;
    case DType::kQ1:
    case DType::kQ1s:
      return 6;
    case DType::kQ1t:
      return 9;
    default:
      return 0;
  }
}

bool IsFloat(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16; }
bool IsVbit(const WeightLayout& w) { return w.widths != nullptr; }
bool HasScaleRows(const WeightLayout& w) { return IsVbit(w) || w.dtype == DType::kQ4Block; }

/// Copies one row's groups of `size` bytes; the last group of a row may be cut short by `row_bytes`.
template <int64_t kSize>
void CopyGroups(const std::byte* row, int64_t row_bytes, int64_t ahead, std::span<const int32_t> groups,
                int64_t dynamic_size, std::byte* out) {
  const int64_t size = kSize > 0 ? kSize : dynamic_size;
  for (const int32_t g : groups) {
    const std::byte* at = row + g * size;
    __builtin_prefetch(at + ahead);
    if ((g + 1) * size <= row_bytes) {
      std::memcpy(out, at, static_cast<size_t>(size));
    } else {
      const int64_t rest = row_bytes - g * size;
      std::memcpy(out, at, static_cast<size_t>(rest));
      std::memset(out + rest, 0, static_cast<size_t>(size - rest));
    }
    out += size;
  }
}

void CopyRowGroups(const std::byte* row, int64_t row_bytes, int64_t ahead, std::span<const int32_t> groups,
                   int64_t size, std::byte* out) {
  switch (size) {
    case 32:
      return CopyGroups<32>(row, row_bytes, ahead, groups, size, out);
    case 18:
      return CopyGroups<18>(row, row_bytes, ahead, groups, size, out);
    case 16:
      return CopyGroups<16>(row, row_bytes, ahead, groups, size, out);
    case 8:
      return CopyGroups<8>(row, row_bytes, ahead, groups, size, out);
    case 6:
      return CopyGroups<6>(row, row_bytes, ahead, groups, size, out);
    default:
      return CopyGroups<0>(row, row_bytes, ahead, groups, size, out);
  }
}

/// 5-bit codes, lowest bits first, of some groups packed anew.
void RepackRungs(const std::byte* row, std::span<const int32_t> groups, std::byte* out, int64_t out_bytes) {
  std::memset(out, 0, static_cast<size_t>(out_bytes));
  int64_t bit = 0;
  for (const int32_t g : groups) {
    const int64_t from = int64_t{g} * 5;
    uint32_t two = std::to_integer<uint32_t>(row[from / 8]);
    if (from % 8 > 3) two |= std::to_integer<uint32_t>(row[from / 8 + 1]) << 8;
    const uint32_t code = two >> (from % 8) & 31u;
    const uint32_t shifted = code << (bit % 8);
    out[bit / 8] |= static_cast<std::byte>(shifted & 0xFFu);
    if (shifted > 0xFFu) out[bit / 8 + 1] |= static_cast<std::byte>(shifted >> 8);
    bit += 5;
  }
}

/// The groups of a row of `cols` floats side by side, zeros where the row ends within one.
void CopyColumns(const float* row, int64_t cols, std::span<const int32_t> groups, float* to) {
  for (const int32_t g : groups) {
    const int64_t count = std::min(kGroupSize, cols - g * kGroupSize);
    std::copy_n(row + g * kGroupSize, count, to);
    std::fill(to + count, to + kGroupSize, 0.0f);
    to += kGroupSize;
  }
}

/// fn(i) for every row; by several threads where there is enough to do.
template <class Fn>
void ForTokens(ThreadPool& pool, int64_t rows, int64_t cols, Fn&& fn) {
  const auto range = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) fn(i);
  };
  if (rows * cols < kParallelElements) return range(0, rows);
  pool.ForRanges(rows, 1, range);
}

}  // namespace

bool CanSkipGroups(const LinearWeight& weight, ComputeMode mode) {
  const WeightLayout& w = weight.layout();
  return IsFloat(w.dtype) || (mode == ComputeMode::kFast && w.is_integer);
}

LiveGroups::LiveGroups(const WeightLayout& whole, std::span<const int32_t> groups)
    : whole_(whole), groups_(groups), narrow_(whole), group_bytes_(GroupBytes(whole.dtype)) {
  narrow_.groups = static_cast<int64_t>(groups.size());
  narrow_.cols = narrow_.groups * kGroupSize;
  narrow_.overlay = nullptr;  // added from the whole matrix
  narrow_.code_stride = narrow_.groups * group_bytes_;
  if (whole.rungs != nullptr) narrow_.rung_stride = (narrow_.groups * 5 + 7) / 8;
  if (whole.columns != nullptr) {
    columns_.resize(static_cast<size_t>(narrow_.cols) * 2);
    CopyGroups<0>(whole.columns, whole.cols * 2, 0, groups, 2 * kGroupSize, columns_.data());
    narrow_.columns = columns_.data();
  }
  if (whole.cols % kGroupSize != 0) return;
  in_place_ = whole;
  in_place_.columns = narrow_.columns;
  in_place_.overlay = nullptr;
  in_place_.groups = narrow_.groups;
  in_place_.whole_groups = whole.groups;
  live_.assign(groups.begin(), groups.end());
  live_.resize(static_cast<size_t>(AlignUp(groups.size(), kPartials)), groups.back());
  in_place_.cols = static_cast<int64_t>(live_.size()) * kGroupSize;
  in_place_.live = live_.data();
}

int64_t LiveGroups::BlockBytes(int64_t rows) const {
  const int64_t codes = IsVbit(whole_) ? narrow_.groups * 32 : narrow_.code_stride;  // vbit: 8 bits at most
  int64_t bytes = Aligned(rows * codes + kPadding);
  if (HasScaleRows(whole_)) bytes += Aligned(rows * narrow_.groups * 2 + kPadding);
  if (whole_.rungs != nullptr) bytes += Aligned(rows * narrow_.rung_stride + kPadding);
  if (IsVbit(whole_)) bytes += Aligned((rows + 1) * 8);
  return bytes;
}

void LiveGroups::Gather(int64_t begin, int64_t end, std::byte* memory, Block& block) const {
  const int64_t rows = end - begin;
  WeightLayout& out = block.layout;
  out = narrow_;
  out.rows = rows;
  std::byte* const codes = memory;
  const int64_t row_codes = IsVbit(whole_) ? narrow_.groups * 32 : narrow_.code_stride;
  memory += Aligned(rows * row_codes + kPadding);
  out.codes = codes;
  if (HasScaleRows(whole_)) {  // f16 [rows, groups]
    out.scales = memory;
    for (int64_t r = 0; r < rows; ++r) {
      CopyGroups<2>(whole_.scales + (begin + r) * whole_.groups * 2, whole_.groups * 2,
                    whole_.groups * 2 * kRowsAhead, groups_, 2, memory + r * narrow_.groups * 2);
    }
    memory += Aligned(rows * narrow_.groups * 2 + kPadding);
  } else if (whole_.rungs != nullptr) {  // (lo, step) a row, and the rungs
    out.scales = whole_.scales + begin * 4;
    out.rungs = memory;
    for (int64_t r = 0; r < rows; ++r) {
      RepackRungs(whole_.rungs + (begin + r) * whole_.rung_stride, groups_, memory + r * out.rung_stride,
                  out.rung_stride);
    }
    memory += Aligned(rows * out.rung_stride + kPadding);
  } else if (whole_.has_row_scales) {
    out.scales = whole_.scales + begin * 2;
  }
  if (IsVbit(whole_)) {
    out.widths = whole_.widths + begin;
    out.offsets32 = nullptr;
    auto* offsets = reinterpret_cast<uint64_t*>(memory);
    out.offsets64 = offsets;
    uint64_t at = 0;
    for (int64_t r = 0; r < rows; ++r) {
      offsets[r] = at;
      const int64_t size = 4 * std::to_integer<int64_t>(out.widths[r]);
      const std::byte* row = whole_.codes + VbitRowOffset(whole_, begin + r);
      CopyRowGroups(row, whole_.groups * size, whole_.groups * size * kRowsAhead, groups_, size, codes + at);
      at += static_cast<uint64_t>(narrow_.groups * size);
    }
    offsets[rows] = at;
    out.end = codes + at + kPadding;
    return;
  }
  for (int64_t r = 0; r < rows; ++r) {
    CopyRowGroups(whole_.codes + (begin + r) * whole_.code_stride, whole_.code_stride,
                  whole_.code_stride * kRowsAhead, groups_, group_bytes_, codes + r * out.code_stride);
  }
  out.end = codes + rows * out.code_stride + kPadding;
  if (IsFloat(whole_.dtype)) {
    block.view = {
        whole_.dtype, {rows, out.cols}, Bytes(codes, static_cast<size_t>(rows * out.code_stride)), nullptr};
    out.view = &block.view;
    out.end = codes + rows * out.code_stride;
  }
}

Activations& LiveColumns(ThreadPool& pool, Activations& input, std::span<const int32_t> groups,
                         std::span<const int32_t> tokens) {
  QuantizedRows& kept = input.quantized();
  const int64_t rows = tokens.empty() ? input.tokens() : static_cast<int64_t>(tokens.size());
  const int64_t cols = static_cast<int64_t>(groups.size()) * kGroupSize;
  if (kept.live == nullptr) kept.live = std::make_unique<Activations>();
  if (kept.live_x.size() < static_cast<size_t>(rows * cols))
    kept.live_x.resize(static_cast<size_t>(rows * cols));
  ForTokens(pool, rows, cols, [&](int64_t i) {
    const float* from = input.data() + (tokens.empty() ? i : tokens[static_cast<size_t>(i)]) * input.stride();
    CopyColumns(from, input.cols(), groups, kept.live_x.data() + i * cols);
  });
  kept.live->Set(kept.live_x.data(), rows, cols);
  return *kept.live;
}

TokenRows QuantizeLive(const KernelTable& table, ThreadPool& pool, Activations& input,
                       const WeightLayout& narrow, std::span<const int32_t> groups,
                       std::span<const int32_t> tokens) {
  QuantizedRows& kept = input.quantized();
  if (kept.live == nullptr) kept.live = std::make_unique<Activations>();
  QuantizedRows& out = kept.live->quantized();
  const int64_t rows = tokens.empty() ? input.tokens() : static_cast<int64_t>(tokens.size());
  const auto count = static_cast<int64_t>(groups.size());
  out.stride = static_cast<int64_t>(AlignUp(groups.size(), kGroupPad));
  if (out.groups.size() < static_cast<size_t>(rows * out.stride))
    out.groups.resize(static_cast<size_t>(rows * out.stride));
  ForTokens(pool, rows, count * kGroupSize, [&](int64_t i) {
    const float* x = input.data() + (tokens.empty() ? i : tokens[static_cast<size_t>(i)]) * input.stride();
    QuantizedGroup* to = out.groups.data() + i * out.stride;
    constexpr int64_t kAtOnce = 16;
    alignas(kAlignment) float side_by_side[kAtOnce * kGroupSize];
    for (int64_t begin = 0; begin < count; begin += kAtOnce) {
      const auto some =
          groups.subspan(static_cast<size_t>(begin), static_cast<size_t>(std::min(kAtOnce, count - begin)));
      const auto cols = static_cast<int64_t>(some.size()) * kGroupSize;
      CopyColumns(x, input.cols(), some, side_by_side);
      table.quantize(side_by_side,
                     narrow.columns != nullptr ? narrow.columns + 2 * kGroupSize * begin : nullptr, cols,
                     static_cast<int64_t>(AlignUp(some.size(), kGroupPad)), to + begin);
    }
  });
  TokenRows result;
  result.groups = out.groups.data();
  result.groups_stride = out.stride;
  result.count = rows;
  return result;
}

}  // namespace cmforge
