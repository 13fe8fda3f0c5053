// The predicted scales of q4tp and q2tp: each row has a geometric ladder of 32 rungs, and each group of 32
// weights names its rung with a 5-bit code.
//   [row params : rows * (f16 lo, f16 step)][codes : rows * ceil(groups * 5 / 8), low bit first, a row begins
//   a byte]
// Rung 0 is 2^lo and every next one is the f32 product of the one below and 2^step: that product, not a power
// taken anew, is the definition; exp_log.h says how the two powers are taken.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "quant/shapes.h"

namespace cmforge {

inline constexpr int kRungs = 32;

struct Ladder {
  float rung[kRungs];
};

/// The ladder of a row's params as stored, whatever their bits.
[[nodiscard]] Ladder MakeLadder(uint16_t lo, uint16_t step);

/// The finest f16 params whose ladder of `steps` steps reaches from `lo` to `hi` (log2 of scales, lo <= hi).
struct LadderParams {
  uint16_t lo = 0, step = 0;
};
[[nodiscard]] LadderParams FitLadder(float lo, float hi, int steps);

[[nodiscard]] inline int64_t LadderCodeBytes(int64_t groups) { return (groups * 5 + 7) / 8; }

/// Where the parts of a payload begin whose weights take `group_bytes` a group.
struct LadderLayout {
  LadderLayout(std::span<const int64_t> shape, int64_t group_bytes);

  int64_t groups, code_bytes;  // of a row
  int64_t params, codes;       // bytes from the start; meaningless when `size` is UINT64_MAX
  uint64_t size;               // of the payload
};

/// Code `group` of a row's codes, and storing it (the bytes start as 0).
[[nodiscard]] inline int LadderCode(const std::byte* codes, int64_t group, int64_t groups) {
  const int64_t bit = group * 5;
  uint32_t bits = std::to_integer<uint32_t>(codes[bit / 8]);
  // The last code may end in the last byte.
  if (bit / 8 + 1 < LadderCodeBytes(groups)) bits |= std::to_integer<uint32_t>(codes[bit / 8 + 1]) << 8;
  return static_cast<int>(bits >> (bit % 8) & 31u);
}
inline void StoreLadderCode(std::byte* codes, int64_t group, int code) {
  const int64_t bit = group * 5;
  const uint32_t bits = static_cast<uint32_t>(code) << (bit % 8);
  codes[bit / 8] |= static_cast<std::byte>(bits & 0xFF);
  if (bits >> 8 != 0) codes[bit / 8 + 1] |= static_cast<std::byte>(bits >> 8);
}

}  // namespace cmforge
