// One row of an integer encoding as unsigned codes (zero point 8, 127 or 128) and group scales, by plain
// loops (spec 3.2). Included by one file of each instruction set, which may bring UnpackNibbles, UnpackPairs and
// UnpackSigns in vectors of its own.
#pragma once

#include <cstdint>
#include <cstring>
#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "base/bytes.h"
#include "base/half.h"
#include "kernels/ladder.h"
#include "kernels/table.h"

namespace cmforge {
namespace {

inline float HalfAt(const std::byte* at) {
#if defined(__F16C__)
  return _cvtsh_ss(LoadLe<uint16_t>(at));
#elif defined(__aarch64__)
  __fp16 half;
  std::memcpy(&half, at, 2);
  return half;
#else
  return F16ToF32(LoadLe<uint16_t>(at));
#endif
}
inline uint8_t ByteAt(const std::byte* at) { return std::to_integer<uint8_t>(*at); }

inline void FlipSigns(const std::byte* __restrict in, int64_t count, uint8_t* __restrict codes) {
  for (int64_t c = 0; c < count; ++c) codes[c] = ByteAt(in + c) ^ 0x80;
}

#ifndef CMFORGE_UNPACKS_BY_VECTORS
inline void UnpackNibbles(const std::byte* __restrict in, uint8_t* __restrict codes) {
  for (int k = 0; k < 16; ++k) {
    const uint8_t byte = ByteAt(in + k);
    codes[2 * k] = byte & 15;
    codes[2 * k + 1] = byte >> 4;
  }
}

/// c stands for c - 1.5, doubled to stay whole.
inline void UnpackPairs(const std::byte* __restrict in, uint8_t* __restrict codes) {
  for (int k = 0; k < 8; ++k) {
    const int byte = ByteAt(in + k);
    for (int i = 0; i < 4; ++i) codes[4 * k + i] = static_cast<uint8_t>(8 - 3 + 2 * (byte >> (2 * i) & 3));
  }
}

inline void UnpackSigns(const std::byte* __restrict in, uint8_t* __restrict codes) {
  for (int k = 0; k < 4; ++k) {
    const int byte = ByteAt(in + k);
    for (int i = 0; i < 8; ++i) codes[8 * k + i] = static_cast<uint8_t>(8 - 1 + 2 * (byte >> i & 1));
  }
}
#endif

/// The five codes of every byte of base-3 digits (0, +1, -1 around 8), in the low bytes of a word.
struct TritTable {
  uint64_t codes[256];
};
inline constexpr TritTable kTrits = [] {
  constexpr uint8_t kOf[3] = {8 + 0, 8 + 1, 8 - 1};
  TritTable table{};
  for (uint64_t byte = 0; byte < 256; ++byte) {
    uint64_t rest = byte;
    for (int i = 0; i < 5; ++i, rest /= 3) table.codes[byte] |= uint64_t{kOf[rest % 3]} << (8 * i);
  }
  return table;
}();

/// Writes three bytes past the 32 codes, inside what the caller has (the next group overwrites them).
inline void UnpackTrits(const std::byte* __restrict in, uint8_t* __restrict codes) {
  for (int k = 0; k < 6; ++k) std::memcpy(codes + 5 * k, &kTrits.codes[ByteAt(in + k)], 8);
  std::memcpy(codes + 30, &kTrits.codes[ByteAt(in + 6)], 2);
}

/// Eight weights are kWidth bytes, the first weight in the highest bits.
template <int kWidth>
void UnpackBits(const std::byte* __restrict in, int64_t cols, uint8_t* __restrict codes) {
  constexpr int kShift = 127 - ((1 << (kWidth - 1)) - 1);  // from the row's zero point to 127
  for (int64_t c = 0; c < cols; c += 8, in += kWidth, codes += 8) {
    uint64_t word = 0;
    for (int i = 0; i < kWidth; ++i) word = word << 8 | ByteAt(in + i);
    for (int i = 0; i < 8; ++i) {
      codes[i] = static_cast<uint8_t>((word >> (kWidth * (7 - i)) & ((1 << kWidth) - 1)) + kShift);
    }
  }
}

inline int RungAt(const std::byte* rungs, int64_t g) {
  const int64_t bit = 5 * g;
  int window = ByteAt(rungs + bit / 8);
  if (bit % 8 > 3) window |= ByteAt(rungs + bit / 8 + 1) << 8;
  return (window >> (bit % 8)) & 31;
}

inline void UnpackLadder(const WeightLayout& w, int64_t row, float* scales) {
  const std::byte* params = w.scales + 4 * row;
  float ladder[32];
  MakeLadder(Exp2(HalfAt(params)), Exp2(HalfAt(params + 2)), w.dtype == DType::kQ2tp, ladder);
  const std::byte* rungs = w.rungs + row * w.rung_stride;
  for (int64_t g = 0; g < w.groups; ++g) scales[g] = ladder[RungAt(rungs, w.live != nullptr ? w.live[g] : g)];
}

inline void UnpackScales(const std::byte* __restrict in, int64_t stride, int64_t groups,
                         float* __restrict scales) {
  for (int64_t g = 0; g < groups; ++g) scales[g] = HalfAt(in + stride * g);
}

inline void UnpackVbit(const std::byte* in, int width, int64_t cols, uint8_t* codes) {
  switch (width) {
    case 3:
      return UnpackBits<3>(in, cols, codes);
    case 4:
      return UnpackBits<4>(in, cols, codes);
    case 5:
      return UnpackBits<5>(in, cols, codes);
    case 6:
      return UnpackBits<6>(in, cols, codes);
    default:
      return UnpackBits<8>(in, cols, codes);
  }
}

/// The groups that w.live names, side by side. kBytes a group, its codes at kCodes of them; `unpack` makes 32 codes.
template <int kBytes, int kCodes, class Unpack>
inline void UnpackLiveGroups(const WeightLayout& w, int64_t row, uint8_t* codes, Unpack unpack) {
  const std::byte* in = w.codes + row * w.code_stride;
  const int64_t groups = w.groups, ahead = w.code_stride;
  const int32_t* live = w.live;
  for (int64_t i = 0; i < groups; ++i) {
    const std::byte* at = in + int64_t{kBytes} * live[i];
    __builtin_prefetch(at + ahead);  // the next row's; gaps confuse the processor's own prefetching
    unpack(at + kCodes, codes + 32 * i);
  }
}

/// Scales [groups] as f16 at `in`, `stride` bytes from one group of the matrix to the next.
inline void UnpackLiveScales(const std::byte* in, int64_t stride, const WeightLayout& w, float* scales) {
  for (int64_t i = 0; i < w.groups; ++i) scales[i] = HalfAt(in + stride * w.live[i]);
}

/// As UnpackOneRow, of encodings whose rows have a fixed stride.
void UnpackLiveRow(const WeightLayout& w, int64_t row, uint8_t* codes, float* scales) {
  const std::byte* in = w.codes + row * w.code_stride;
  switch (w.dtype) {
    case DType::kQ8Row:
    case DType::kQ8TwoField:
      return UnpackLiveGroups<32, 0>(
          w, row, codes, [](const std::byte* at, uint8_t* out) { FlipSigns(at, kGroupSize, out); });
    case DType::kQ4Block:
      UnpackLiveGroups<16, 0>(w, row, codes, UnpackNibbles);
      return UnpackLiveScales(w.scales + 2 * row * w.whole_groups, 2, w, scales);
    case DType::kQ4Tiled:
      UnpackLiveGroups<18, 2>(w, row, codes, UnpackNibbles);
      return UnpackLiveScales(in, 18, w, scales);
    case DType::kQ4tp:
      UnpackLiveGroups<16, 0>(w, row, codes, UnpackNibbles);
      return UnpackLadder(w, row, scales);
    case DType::kQ2tp:
      UnpackLiveGroups<8, 0>(w, row, codes, UnpackPairs);
      return UnpackLadder(w, row, scales);
    case DType::kQ1:
    case DType::kQ1s:
      UnpackLiveGroups<6, 2>(w, row, codes, UnpackSigns);
      return UnpackLiveScales(in, 6, w, scales);
    case DType::kQ1t:
      UnpackLiveGroups<9, 2>(w, row, codes, UnpackTrits);
      return UnpackLiveScales(in, 9, w, scales);
    default:
      return;
  }
}

void UnpackOneRow(const WeightLayout& w, int64_t row, uint8_t* codes, float* scales) {
  if (w.live != nullptr) return UnpackLiveRow(w, row, codes, scales);
  const std::byte* in = w.codes + row * w.code_stride;
  const int64_t groups = w.groups;  // by value: a store of a byte may change anything that w refers to
  switch (w.dtype) {
    case DType::kQ8Row:
    case DType::kQ8TwoField:
      return FlipSigns(in, w.cols, codes);
    case DType::kQ4Block:
      for (int64_t g = 0; g < groups; ++g) UnpackNibbles(in + 16 * g, codes + 32 * g);
      return UnpackScales(w.scales + 2 * row * groups, 2, groups, scales);
    case DType::kQ4Tiled:
      for (int64_t g = 0; g < groups; ++g) UnpackNibbles(in + 18 * g + 2, codes + 32 * g);
      return UnpackScales(in, 18, groups, scales);
    case DType::kQ4tp:
      for (int64_t g = 0; g < groups; ++g) UnpackNibbles(in + 16 * g, codes + 32 * g);
      return UnpackLadder(w, row, scales);
    case DType::kQ2tp:
      for (int64_t g = 0; g < groups; ++g) UnpackPairs(in + 8 * g, codes + 32 * g);
      return UnpackLadder(w, row, scales);
    case DType::kQ1:
    case DType::kQ1s:
      for (int64_t g = 0; g < groups; ++g) UnpackSigns(in + 6 * g + 2, codes + 32 * g);
      return UnpackScales(in, 6, groups, scales);
    case DType::kQ1t:
      for (int64_t g = 0; g < groups; ++g) UnpackTrits(in + 9 * g + 2, codes + 32 * g);
      return UnpackScales(in, 9, groups, scales);
    case DType::kVbit:
    case DType::kVbitRo:
      UnpackVbit(w.codes + VbitRowOffset(w, row), std::to_integer<int>(w.widths[row]), w.cols, codes);
      return UnpackScales(w.scales + 2 * row * groups, 2, groups, scales);
    default:
      return;
  }
}

}  // namespace
}  // namespace cmforge
