// q4tp (spec 3.2): the codes of q4_tiled with each group's scale named by a 5-bit rung of the row's ladder.
//   [16 bytes of codes : rows * cols/32][ladder params and codes, see ladder.h]
// The encoder tries the rungs around the one nearest to absmax / 7 and keeps the one with the least squared
// error.
#include <cmath>

#include "quant/entries.h"
#include "quant/exp_log.h"
#include "quant/ladder.h"
#include "quant/least_error.h"
#include "quant/q4_group.h"
#include "quant/row_blocks.h"

namespace cmforge {
namespace {

constexpr int64_t kGroupBytes = 16;

std::optional<uint64_t> Size(std::span<const int64_t> shape) { return LadderLayout(shape, kGroupBytes).size; }

/// Squared error of a group coded with a scale, summed in f32 in order.
float ErrorWith(const float* w, float scale) {
  const float inverse = 1.0f / scale;
  float error = 0;
  for (int64_t i = 0; i < kGroup; ++i) {
    const float code = RoundHalfEven(std::min(std::max(w[i] * inverse, -8.0f), 7.0f));
    const float difference = w[i] - code * scale;
    error += difference * difference;
  }
  return error;
}

template <bool kLeastError>
void EncodeRow(const float* w, int64_t groups, int64_t first_index, float* log_scales, std::byte* nibbles,
               std::byte* params, std::byte* codes, BadValues& bad) {
  float lo = INFINITY, hi = -INFINITY;
  for (int64_t g = 0; g < groups; ++g) {
    const float loudest = AbsMax(w + g * kGroup, kGroup);
    log_scales[g] = NAN;
    if (loudest == 0) continue;
    float scale = CheckedScale(loudest / 7.0f, first_index + g * kGroup, bad);
    if (kLeastError && scale <= kF16Max) scale = LeastErrorScale(w + g * kGroup, -8.0f, 7.0f, scale);
    log_scales[g] = static_cast<float>(Log2(scale));
    lo = std::min(lo, log_scales[g]);
    hi = std::max(hi, log_scales[g]);
  }
  if (bad.unfit > 0) return;
  if (lo > hi) lo = hi = -14.0f;  // nothing but zeros
  const LadderParams fit = FitLadder(lo, hi, kRungs - 1);
  StoreLe(params, fit.lo);
  StoreLe(params + 2, fit.step);
  const Ladder ladder = MakeLadder(fit.lo, fit.step);
  const float stored_lo = F16ToF32(fit.lo), step = F16ToF32(fit.step);
  for (int64_t g = 0; g < groups; ++g, w += kGroup, nibbles += kGroupBytes) {
    int best = 0;
    if (!std::isnan(log_scales[g])) {
      const int nominal = Code((log_scales[g] - stored_lo) / step, 0.0f, 31.0f);
      float least = INFINITY;
      for (int rung = std::max(nominal - 2, 0); rung <= std::min(nominal + (kLeastError ? 2 : 1), kRungs - 1);
           ++rung) {
        const float error = ErrorWith(w, ladder.rung[rung]);
        if (error < least) {
          least = error;
          best = rung;
        }
      }
    }
    StoreLadderCode(codes, g, best);
    const float inverse = 1.0f / ladder.rung[best];
    for (int k = 0; k < 16; ++k) {
      const int32_t low = Code(w[2 * k] * inverse, -8.0f, 7.0f) + 8;
      const int32_t high = Code(w[2 * k + 1] * inverse, -8.0f, 7.0f) + 8;
      nibbles[k] = static_cast<std::byte>(low | high << 4);
    }
  }
}

template <bool kLeastError>
Result<std::vector<std::byte>> Encode(const FloatRows& source, const EncodeOptions&, ThreadPool& pool) {
  CMF_CHECK(CheckReason(ReasonNotGroups(source.view.shape)));
  const LadderLayout layout(source.view.shape, kGroupBytes);
  std::vector<std::byte> payload(layout.size);
  std::vector<std::vector<float>> log_scales(static_cast<size_t>(pool.threads()),
                                             std::vector<float>(static_cast<size_t>(layout.groups)));
  CMF_CHECK(ForRowBlocks(source, 1, kInF16, pool, [&](const RowBlock& block) {
    for (int64_t row = block.begin; row < block.end; ++row) {
      EncodeRow<kLeastError>(block.values + (row - block.begin) * source.cols, layout.groups,
                             row * source.cols, log_scales[static_cast<size_t>(block.worker)].data(),
                             payload.data() + row * layout.groups * kGroupBytes,
                             payload.data() + layout.params + row * 4,
                             payload.data() + layout.codes + row * layout.code_bytes, *block.bad);
    }
  }));
  return payload;
}

void Decode(const TensorView& tensor, int64_t begin, int64_t end, float* out) {
  const LadderLayout layout(tensor.shape, kGroupBytes);
  for (int64_t row = begin; row < end; ++row) {
    const std::byte* nibbles = tensor.bytes.data() + row * layout.groups * kGroupBytes;
    const std::byte* params = tensor.bytes.data() + layout.params + row * 4;
    const std::byte* codes = tensor.bytes.data() + layout.codes + row * layout.code_bytes;
    const Ladder ladder = MakeLadder(LoadLe<uint16_t>(params), LoadLe<uint16_t>(params + 2));
    for (int64_t g = 0; g < layout.groups; ++g, nibbles += kGroupBytes, out += kGroup) {
      DecodeQ4Group(nibbles, ladder.rung[LadderCode(codes, g, layout.groups)], out);
    }
  }
}

}  // namespace

Result<std::vector<std::byte>> EncodeQ4tpLeastError(const FloatRows& source, const EncodeOptions& options,
                                                    ThreadPool& pool) {
  return Encode<true>(source, options, pool);
}

const Encoding kQ4tpEncoding = {DType::kQ4tp, "q4tp", ReasonNotGroups, Size, nullptr, Encode<false>, Decode};

}  // namespace cmforge
