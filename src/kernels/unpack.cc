// One row of an integer encoding as unsigned codes and group scales, by plain loops (spec 3.2): what the
// codes mean, for the reference and for encodings an instruction set has no kernel of its own for.
#include <cstring>

#include "base/bytes.h"
#include "base/half.h"
#include "kernels/ladder.h"
#include "kernels/table.h"
#include "quant/encoding.h"

namespace cmforge {
namespace {

float Half(const std::byte* at) { return F16ToF32(LoadLe<uint16_t>(at)); }
uint8_t Byte(const std::byte* at) { return std::to_integer<uint8_t>(*at); }

void UnpackNibbles(const std::byte* in, uint8_t* codes) {
  for (int k = 0; k < 16; ++k) {
    codes[2 * k] = Byte(in + k) & 15;
    codes[2 * k + 1] = Byte(in + k) >> 4;
  }
}

void UnpackPairs(const std::byte* in, uint8_t* codes) {  // c stands for c - 1.5, doubled to stay whole
  for (int k = 0; k < 32; ++k) {
    codes[k] = static_cast<uint8_t>(8 - 3 + 2 * ((Byte(in + k / 4) >> (2 * (k % 4))) & 3));
  }
}

void UnpackSigns(const std::byte* in, uint8_t* codes) {
  for (int k = 0; k < 32; ++k)
    codes[k] = static_cast<uint8_t>(8 - 1 + 2 * ((Byte(in + k / 8) >> (k % 8)) & 1));
}

void UnpackTrits(const std::byte* in, uint8_t* codes) {
  static constexpr int kPower[5] = {1, 3, 9, 27, 81};
  static constexpr uint8_t kOf[3] = {8 + 0, 8 + 1, 8 - 1};
  for (int k = 0; k < 32; ++k) codes[k] = kOf[Byte(in + k / 5) / kPower[k % 5] % 3];
}

int RungAt(const std::byte* rungs, int64_t g) {
  const int64_t bit = 5 * g;
  int window = Byte(rungs + bit / 8);
  if (bit % 8 > 3) window |= Byte(rungs + bit / 8 + 1) << 8;
  return (window >> (bit % 8)) & 31;
}

void LadderScales(const WeightLayout& w, int64_t row, float* scales) {
  const std::byte* params = w.scales + 4 * row;
  float ladder[32];
  MakeLadder(Exp2(Half(params)), Exp2(Half(params + 2)), w.dtype == DType::kQ2tp, ladder);
  const std::byte* rungs = w.rungs + row * w.rung_stride;
  for (int64_t g = 0; g < w.groups; ++g) scales[g] = ladder[RungAt(rungs, g)];
}

void UnpackVbit(const WeightLayout& w, int64_t row, uint8_t* codes, float* scales) {
  const int width = Byte(w.widths + row);
  const int level = (1 << (width - 1)) - 1;
  const std::byte* in = w.codes + VbitRowOffset(w, row);
  uint32_t window = 0;
  int bits = 0;
  for (int64_t c = 0; c < w.cols; ++c) {
    if (bits < width) {
      window = window << 8 | Byte(in++);
      bits += 8;
    }
    bits -= width;
    const int code = static_cast<int>(window >> bits) & ((1 << width) - 1);
    codes[c] = static_cast<uint8_t>(code - level + 127);
  }
  for (int64_t g = 0; g < w.groups; ++g) scales[g] = Half(w.scales + 2 * (row * w.groups + g));
}

}  // namespace

float RowScale(const WeightLayout& w, int64_t row) { return Half(w.scales + 2 * row); }

void DecodeRows(const WeightLayout& w, int64_t begin, int64_t end, float* out) {
  w.encoding->decode_rows(*w.view, begin, end, out);
}

void UnpackRow(const WeightLayout& w, int64_t row, uint8_t* codes, float* scales) {
  const std::byte* in = w.codes + row * w.code_stride;
  switch (w.dtype) {
    case DType::kQ8Row:
    case DType::kQ8TwoField:
      for (int64_t c = 0; c < w.cols; ++c) codes[c] = Byte(in + c) ^ 0x80;
      return;
    case DType::kQ4Block:
      for (int64_t g = 0; g < w.groups; ++g) {
        UnpackNibbles(in + 16 * g, codes + 32 * g);
        scales[g] = Half(w.scales + 2 * (row * w.groups + g));
      }
      return;
    case DType::kQ4Tiled:
      for (int64_t g = 0; g < w.groups; ++g) {
        UnpackNibbles(in + 18 * g + 2, codes + 32 * g);
        scales[g] = Half(in + 18 * g);
      }
      return;
    case DType::kQ4tp:
      for (int64_t g = 0; g < w.groups; ++g) UnpackNibbles(in + 16 * g, codes + 32 * g);
      return LadderScales(w, row, scales);
    case DType::kQ2tp:
      for (int64_t g = 0; g < w.groups; ++g) UnpackPairs(in + 8 * g, codes + 32 * g);
      return LadderScales(w, row, scales);
    case DType::kQ1:
    case DType::kQ1s:
      for (int64_t g = 0; g < w.groups; ++g) {
        UnpackSigns(in + 6 * g + 2, codes + 32 * g);
        scales[g] = Half(in + 6 * g);
      }
      return;
    case DType::kQ1t:
      for (int64_t g = 0; g < w.groups; ++g) {
        UnpackTrits(in + 9 * g + 2, codes + 32 * g);
        scales[g] = Half(in + 9 * g);
      }
      return;
    case DType::kVbit:
    case DType::kVbitRo:
      return UnpackVbit(w, row, codes, scales);
    default:
      return;
  }
}

}  // namespace cmforge
