// One row of an integer encoding as unsigned codes (zero point 8, 127 or 128) and group scales, by plain
// loops over groups that compilers turn into vectors (spec 3.2). Included by one file of each instruction
// set.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/bytes.h"
#include "base/half.h"
#include "kernels/ladder.h"
#include "kernels/table.h"

namespace cmforge {
namespace {

inline float HalfAt(const std::byte* at) { return F16ToF32(LoadLe<uint16_t>(at)); }
inline uint8_t ByteAt(const std::byte* at) { return std::to_integer<uint8_t>(*at); }

inline void UnpackNibbles(const std::byte* in, uint8_t* codes) {
  for (int k = 0; k < 16; ++k) {
    const uint8_t byte = ByteAt(in + k);
    codes[2 * k] = byte & 15;
    codes[2 * k + 1] = byte >> 4;
  }
}

inline void UnpackPairs(const std::byte* in, uint8_t* codes) {  // c stands for c - 1.5, doubled to stay whole
  for (int k = 0; k < 8; ++k) {
    const int byte = ByteAt(in + k);
    for (int i = 0; i < 4; ++i) codes[4 * k + i] = static_cast<uint8_t>(8 - 3 + 2 * (byte >> (2 * i) & 3));
  }
}

inline void UnpackSigns(const std::byte* in, uint8_t* codes) {
  for (int k = 0; k < 4; ++k) {
    const int byte = ByteAt(in + k);
    for (int i = 0; i < 8; ++i) codes[8 * k + i] = static_cast<uint8_t>(8 - 1 + 2 * (byte >> i & 1));
  }
}

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
inline void UnpackTrits(const std::byte* in, uint8_t* codes) {
  for (int k = 0; k < 6; ++k) std::memcpy(codes + 5 * k, &kTrits.codes[ByteAt(in + k)], 8);
  std::memcpy(codes + 30, &kTrits.codes[ByteAt(in + 6)], 2);
}

/// Eight weights are kWidth bytes, the first weight in the highest bits.
template <int kWidth>
void UnpackBits(const std::byte* in, int64_t cols, uint8_t* codes) {
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
  for (int64_t g = 0; g < w.groups; ++g) scales[g] = ladder[RungAt(rungs, g)];
}

inline void UnpackScales(const std::byte* in, int64_t stride, int64_t groups, float* scales) {
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

void UnpackOneRow(const WeightLayout& w, int64_t row, uint8_t* codes, float* scales) {
  const std::byte* in = w.codes + row * w.code_stride;
  switch (w.dtype) {
    case DType::kQ8Row:
    case DType::kQ8TwoField:
      for (int64_t c = 0; c < w.cols; ++c) codes[c] = ByteAt(in + c) ^ 0x80;
      return;
    case DType::kQ4Block:
      for (int64_t g = 0; g < w.groups; ++g) UnpackNibbles(in + 16 * g, codes + 32 * g);
      return UnpackScales(w.scales + 2 * row * w.groups, 2, w.groups, scales);
    case DType::kQ4Tiled:
      for (int64_t g = 0; g < w.groups; ++g) UnpackNibbles(in + 18 * g + 2, codes + 32 * g);
      return UnpackScales(in, 18, w.groups, scales);
    case DType::kQ4tp:
      for (int64_t g = 0; g < w.groups; ++g) UnpackNibbles(in + 16 * g, codes + 32 * g);
      return UnpackLadder(w, row, scales);
    case DType::kQ2tp:
      for (int64_t g = 0; g < w.groups; ++g) UnpackPairs(in + 8 * g, codes + 32 * g);
      return UnpackLadder(w, row, scales);
    case DType::kQ1:
    case DType::kQ1s:
      for (int64_t g = 0; g < w.groups; ++g) UnpackSigns(in + 6 * g + 2, codes + 32 * g);
      return UnpackScales(in, 6, w.groups, scales);
    case DType::kQ1t:
      for (int64_t g = 0; g < w.groups; ++g) UnpackTrits(in + 9 * g + 2, codes + 32 * g);
      return UnpackScales(in, 9, w.groups, scales);
    case DType::kVbit:
    case DType::kVbitRo:
      UnpackVbit(w.codes + VbitRowOffset(w, row), std::to_integer<int>(w.widths[row]), w.cols, codes);
      return UnpackScales(w.scales + 2 * row * w.groups, 2, w.groups, scales);
    default:
      return;
  }
}

}  // namespace
}  // namespace cmforge
