// Four-bit codes to bytes.
#pragma once

#include "kernels/avx512/common.h"

namespace cmforge {
namespace {

CMFORGE_INLINE void SplitNibbles(__m512i bytes, __m512i& even, __m512i& odd) {
  const __m512i low = _mm512_set1_epi8(15);
  even = _mm512_and_si512(bytes, low);
  // The high half of every byte moved down, as a product of 8x8 bit matrices.
  odd = _mm512_gf2p8affine_epi64_epi8(bytes, _mm512_set1_epi64(0x1020408000000000), 0);
}

}  // namespace
}  // namespace cmforge
