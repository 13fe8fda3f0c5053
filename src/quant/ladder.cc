// Building ladders and fitting their params.
#include "quant/ladder.h"

#include <algorithm>

#include "base/half.h"
#include "quant/exp_log.h"

namespace cmforge {

LadderLayout::LadderLayout(std::span<const int64_t> shape, int64_t group_bytes)
    : groups(shape[1] / kGroup), code_bytes(LadderCodeBytes(groups)), params(0), codes(0) {
  const auto rows = static_cast<uint64_t>(shape[0]);
  size = SaturatedMul(rows, static_cast<uint64_t>(groups * group_bytes + 4 + code_bytes));
  if (size == UINT64_MAX) return;
  params = shape[0] * groups * group_bytes;
  codes = params + shape[0] * 4;
}

Ladder MakeLadder(uint16_t lo, uint16_t step) {
  Ladder ladder;
  const auto ratio = LadderExp2(F16ToF32(step));
  ladder.rung[0] = LadderExp2(F16ToF32(lo));
  for (int i = 1; i < kRungs; ++i) ladder.rung[i] = ladder.rung[i - 1] * ratio;
  return ladder;
}

LadderParams FitLadder(float lo, float hi, int steps) {
  LadderParams params;
  params.lo = F32ToF16(lo);
  const float stored_lo = F16ToF32(params.lo);
  const auto count = static_cast<float>(steps);
  params.step = F32ToF16(std::max(hi - stored_lo, 0.0f) / count);
  // The rounded step may fall short of the loudest group: take the next f16 until it does not.
  for (int i = 0; i < 64; ++i) {
    const float step = F16ToF32(params.step);
    if (step > 0 && stored_lo + count * step >= hi) break;
    ++params.step;
  }
  return params;
}

}  // namespace cmforge
