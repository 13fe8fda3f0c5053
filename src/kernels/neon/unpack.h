// The three smallest steps of unpacking a row, 32 weights each, with NEON: what unpack_body.h says in plain loops.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#define CMFORGE_UNPACKS_BY_VECTORS

namespace cmforge {
namespace {

inline void UnpackNibbles(const std::byte* in, uint8_t* codes) {
  const uint8x16_t bytes = vld1q_u8(reinterpret_cast<const uint8_t*>(in));
  vst2q_u8(codes, {{vandq_u8(bytes, vdupq_n_u8(15)), vshrq_n_u8(bytes, 4)}});
}

inline void UnpackPairs(const std::byte* in, uint8_t* codes) {
  const uint8x8_t bytes = vld1_u8(reinterpret_cast<const uint8_t*>(in));
  const auto code = [](uint8x8_t v) { return vadd_u8(vshl_n_u8(vand_u8(v, vdup_n_u8(3)), 1), vdup_n_u8(5)); };
  vst4_u8(codes,
          {{code(bytes), code(vshr_n_u8(bytes, 2)), code(vshr_n_u8(bytes, 4)), code(vshr_n_u8(bytes, 6))}});
}

inline void UnpackSigns(const std::byte* in, uint8_t* codes) {
  const uint8x8_t bit = vcreate_u8(0x8040201008040201);
  for (int i = 0; i < 4; ++i) {
    const uint8x8_t is_set = vtst_u8(vdup_n_u8(std::to_integer<uint8_t>(in[i])), bit);  // -1
    vst1_u8(codes + 8 * i, vsub_u8(vsub_u8(vdup_n_u8(7), is_set), is_set));
  }
}

}  // namespace
}  // namespace cmforge
