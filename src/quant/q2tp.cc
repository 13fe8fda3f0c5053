// q2tp (id 16, not in the spec's table, found in files): 2-bit codes with the ladder of q4tp.
//   [8 bytes of codes, low bits first : rows * cols/32][ladder params and codes, see ladder.h]
// w = (code - 1.5) * scale. Ladder code 0 is a group of zeros, code k > 0 is rung k - 1. The encoder tries
// tops of the ladder below the loudest group, then rungs around the nearest, and keeps the least squared
// error.
#include <cmath>

#include "quant/entries.h"
#include "quant/exp_log.h"
#include "quant/ladder.h"
#include "quant/numeric.h"
#include "quant/row_blocks.h"

namespace cmforge {
namespace {

constexpr int kSteps = kRungs - 2;  // code 0 is taken

constexpr int64_t kGroupBytes = 8;

std::optional<uint64_t> Size(std::span<const int64_t> shape) { return LadderLayout(shape, kGroupBytes).size; }

float CodeFloat(float w, float inverse) {
  return RoundHalfEven(std::min(std::max(w * inverse + 1.5f, 0.0f), 3.0f));
}

float ErrorWith(const float* w, float scale) {
  const float inverse = 1.0f / scale;
  float error = 0;
  for (int64_t i = 0; i < kGroup; ++i) {
    const float difference = w[i] - (CodeFloat(w[i], inverse) - 1.5f) * scale;
    error += difference * difference;
  }
  return error;
}

/// A row's choice: ladder and the code of each group (0 for a group of zeros).
struct RowChoice {
  LadderParams params;
  std::vector<uint8_t> codes;
  float error = 0;
};

void ChooseCodes(const float* w, const std::vector<float>& log_scales, LadderParams params,
                 RowChoice& choice) {
  choice.params = params;
  choice.error = 0;
  const Ladder ladder = MakeLadder(params.lo, params.step);
  const float lo = F16ToF32(params.lo), step = F16ToF32(params.step);
  for (size_t g = 0; g < log_scales.size(); ++g, w += kGroup) {
    choice.codes[g] = 0;
    if (std::isnan(log_scales[g])) continue;
    const int nominal = Code((log_scales[g] - lo) / step, 0.0f, static_cast<float>(kSteps));
    float least = INFINITY;
    for (int rung = std::max(nominal - 2, 0); rung <= std::min(nominal + 1, kSteps); ++rung) {
      const float error = ErrorWith(w, ladder.rung[rung]);
      if (error < least) {
        least = error;
        choice.codes[g] = static_cast<uint8_t>(rung + 1);
      }
    }
    choice.error += least;
  }
}

/// Per-worker room for one row.
struct RowSpace {
  std::vector<float> log_scales;
  RowChoice best, other;
};

void EncodeRow(const float* w, int64_t first_index, RowSpace& space, std::byte* fields, std::byte* params,
               std::byte* codes, BadValues& bad) {
  float lo = INFINITY, hi = -INFINITY;
  for (size_t g = 0; g < space.log_scales.size(); ++g) {
    const float loudest = AbsMax(w + static_cast<int64_t>(g) * kGroup, kGroup);
    space.log_scales[g] = loudest == 0
                              ? NAN
                              : static_cast<float>(Log2(CheckedScale(
                                    loudest / 1.5f, first_index + static_cast<int64_t>(g) * kGroup, bad)));
    if (loudest == 0) continue;
    lo = std::min(lo, space.log_scales[g]);
    hi = std::max(hi, space.log_scales[g]);
  }
  if (bad.unfit > 0) return;
  if (lo > hi) lo = hi = -14.0f;  // nothing but zeros
  const float stored_lo = RoundToF16(lo);
  bool first = true;
  for (const float part : {1.0f, 0.9f, 0.8f, 0.7f}) {
    ChooseCodes(w, space.log_scales, FitLadder(lo, stored_lo + (hi - stored_lo) * part, kSteps), space.other);
    if (first || space.other.error < space.best.error) std::swap(space.best, space.other);
    first = false;
  }
  StoreLe(params, space.best.params.lo);
  StoreLe(params + 2, space.best.params.step);
  const Ladder ladder = MakeLadder(space.best.params.lo, space.best.params.step);
  for (size_t g = 0; g < space.log_scales.size(); ++g, w += kGroup, fields += kGroupBytes) {
    const int code = space.best.codes[g];
    StoreLadderCode(codes, static_cast<int64_t>(g), code);
    const float inverse = code == 0 ? 0.0f : 1.0f / ladder.rung[code - 1];
    uint64_t bits = 0;
    for (uint32_t i = 0; i < kGroup; ++i) bits |= static_cast<uint64_t>(CodeFloat(w[i], inverse)) << (2 * i);
    StoreLe(fields, bits);
  }
}

Result<std::vector<std::byte>> Encode(const FloatRows& source, const EncodeOptions&, ThreadPool& pool) {
  CMF_CHECK(CheckReason(ReasonNotGroups(source.view.shape)));
  const LadderLayout layout(source.view.shape, kGroupBytes);
  std::vector<std::byte> payload(layout.size);
  const auto groups = static_cast<size_t>(layout.groups);
  const RowSpace empty{std::vector<float>(groups),
                       {{}, std::vector<uint8_t>(groups), 0},
                       {{}, std::vector<uint8_t>(groups), 0}};
  std::vector<RowSpace> spaces(static_cast<size_t>(pool.threads()), empty);
  CMF_CHECK(ForRowBlocks(source, 1, kInF16, pool, [&](const RowBlock& block) {
    for (int64_t row = block.begin; row < block.end; ++row) {
      EncodeRow(block.values + (row - block.begin) * source.cols, row * source.cols,
                spaces[static_cast<size_t>(block.worker)], payload.data() + row * layout.groups * kGroupBytes,
                payload.data() + layout.params + row * 4,
                payload.data() + layout.codes + row * layout.code_bytes, *block.bad);
    }
  }));
  return payload;
}

void Decode(const TensorView& tensor, int64_t begin, int64_t end, float* out) {
  const LadderLayout layout(tensor.shape, kGroupBytes);
  for (int64_t row = begin; row < end; ++row) {
    const std::byte* fields = tensor.bytes.data() + row * layout.groups * kGroupBytes;
    const std::byte* params = tensor.bytes.data() + layout.params + row * 4;
    const std::byte* codes = tensor.bytes.data() + layout.codes + row * layout.code_bytes;
    const Ladder ladder = MakeLadder(LoadLe<uint16_t>(params), LoadLe<uint16_t>(params + 2));
    for (int64_t g = 0; g < layout.groups; ++g, fields += kGroupBytes, out += kGroup) {
      const int code = LadderCode(codes, g, layout.groups);
      const float scale = code == 0 ? 0.0f : ladder.rung[code - 1];
      const auto bits = LoadLe<uint64_t>(fields);
      for (uint32_t i = 0; i < kGroup; ++i)
        out[i] = (static_cast<float>(bits >> (2 * i) & 3u) - 1.5f) * scale;
    }
  }
}

}  // namespace

const Encoding kQ2tpEncoding = {DType::kQ2tp, "q2tp", ReasonNotGroups, Size, nullptr, Encode, Decode};

}  // namespace cmforge
