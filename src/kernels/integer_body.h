// Integer products for instruction sets without a wide u8 x s8 dot product: rows are unpacked to bytes in
// cache, a few at a time, and each meets all tokens. Included by one file of each instruction set, after it
// has defined in its namespace
//   constexpr int kDotTokens: tokens that share the loads of a row;
// and which then defines
//   template <int kTokens> void DotRow(const UnpackedRow& row, const ArrangedToken (&x)[kTokens],
//                                      float (&y)[kTokens]);
// and, with CMFORGE_DOTS_PAIRS, DotPair below.
#pragma once

#include "kernels/table.h"
#include "kernels/unpack_body.h"

namespace cmforge {
namespace {

/// Groups are padded to whole sets of partial sums; pads are zeros.
constexpr int64_t PaddedGroups(int64_t groups) { return (groups + kPartials - 1) / kPartials * kPartials; }

constexpr int64_t kArrangedGroupBytes = kGroupSize + 4 + 4;

/// Bytes [padded * 32] of q, then f32 [padded] scales, then i32 [padded] corrections.
int64_t ArrangedBytes(const WeightLayout& w, int64_t tokens) {
  return tokens * PaddedGroups(w.groups) * kArrangedGroupBytes;
}

/// What is added to the dot product of q with the signed codes (UnpackedRow::SignFlip).
inline int32_t Correction(const QuantizedGroup& group, ZeroPoint zero) {
  const int32_t minus_zero = group.minus_zero[static_cast<int>(zero)];
  return zero == ZeroPoint::k8 ? minus_zero
                               : minus_zero - group.minus_zero[static_cast<int>(ZeroPoint::k128)];
}

void Arrange(const WeightLayout& w, const TokenRows& x, int64_t begin, int64_t end, std::byte* out) {
  const int64_t padded = PaddedGroups(w.groups);
  for (int64_t i = begin; i < end; ++i) {
    const QuantizedGroup* groups = x.groups + x.Row(i) * x.groups_stride;
    std::byte* q = out + i * padded * kArrangedGroupBytes;
    std::memset(q, 0, static_cast<size_t>(padded * kArrangedGroupBytes));
    auto* scales = reinterpret_cast<float*>(q + padded * kGroupSize);
    auto* corrections = reinterpret_cast<int32_t*>(scales + padded);
    for (int64_t g = 0; g < w.groups; ++g) {
      std::memcpy(q + g * kGroupSize, groups[g].q, kGroupSize);
      scales[g] = groups[g].scale;
      corrections[g] = Correction(groups[g], w.zero);
    }
  }
}

struct ArrangedToken {
  const int8_t* q;
  const float* scales;
  const int32_t* corrections;
};

inline ArrangedToken TokenAt(const std::byte* arranged, int64_t padded, int64_t i) {
  const std::byte* q = arranged + i * padded * kArrangedGroupBytes;
  const auto* scales = reinterpret_cast<const float*>(q + padded * kGroupSize);
  return {reinterpret_cast<const int8_t*>(q), scales, reinterpret_cast<const int32_t*>(scales + padded)};
}

struct UnpackedRow {
  const uint8_t* codes;  // [groups * 32]
  const float* scales;   // [groups], or null: 1
  int64_t groups;        // padded
  bool is_small;         // codes below 16: they are signed bytes as they are; otherwise code ^ 128 is one
};

constexpr int64_t kUnpackedRows = 8;

int64_t IntegerScratchBytes(const WeightLayout& w) {
  return kUnpackedRows * PaddedGroups(w.groups) * (kGroupSize + 4) + 64;
}

template <int kTokens>
void DotRow(const UnpackedRow& row, const ArrangedToken (&x)[kTokens], float (&y)[kTokens]);

/// Two rows with equal `groups` and `is_small`.
template <int kTokens>
void DotPair(const UnpackedRow (&rows)[2], const ArrangedToken (&x)[kTokens], float (&y)[2][kTokens])
#ifdef CMFORGE_DOTS_PAIRS
    ;
#else
{
  for (int r = 0; r < 2; ++r) DotRow<kTokens>(rows[r], x, y[r]);
}
#endif

/// Rows that were unpacked, times kTokens tokens.
template <int kTokens>
inline void DotTokens(const UnpackedRow* rows, int64_t count, const float* row_scales,
                      const std::byte* arranged, int64_t token, float* out, int64_t out_stride) {
  ArrangedToken x[kTokens];
  for (int t = 0; t < kTokens; ++t) x[t] = TokenAt(arranged, rows[0].groups, token + t);
  for (int64_t r = 0; r < count; r += 2) {
    float y[2][kTokens];
    const int64_t n = count - r < 2 ? 1 : 2;
    if (n == 2) {
      DotPair<kTokens>({rows[r], rows[r + 1]}, x, y);
    } else {
      DotRow<kTokens>(rows[r], x, y[0]);
    }
    for (int64_t i = 0; i < n; ++i) {
      for (int t = 0; t < kTokens; ++t) {
        out[(token + t) * out_stride + r + i] = rows[r].scales ? y[i][t] : y[i][t] * row_scales[r + i];
      }
    }
  }
}

void IntegerProduct(const WeightLayout& w, int64_t row_begin, int64_t row_end, const TokenRows& x, float* out,
                    int64_t out_stride, std::byte* scratch) {
  const int64_t padded = PaddedGroups(w.groups);
  auto* scales = reinterpret_cast<float*>(scratch);
  auto* codes = reinterpret_cast<uint8_t*>(scales + kUnpackedRows * padded);
  std::memset(scratch, 0, static_cast<size_t>(kUnpackedRows * padded * (kGroupSize + 4)));
  // Few tokens: one row at a time stays in L1. Many: eight, so that each tile of tokens is fetched for eight
  // rows.
  const int64_t at_once = x.count <= kDotTokens ? 1 : kUnpackedRows;
  for (int64_t row = row_begin; row < row_end; row += at_once) {
    const int64_t rows = row_end - row < at_once ? row_end - row : at_once;
    UnpackedRow unpacked[kUnpackedRows];
    float row_scales[kUnpackedRows];
    for (int64_t r = 0; r < rows; ++r) {
      uint8_t* own_codes = codes + r * padded * kGroupSize;
      float* own_scales = scales + r * padded;
      UnpackOneRow(w, row + r, own_codes, own_scales);
      unpacked[r] = {own_codes, w.has_group_scales ? own_scales : nullptr, padded, w.zero == ZeroPoint::k8};
      row_scales[r] = w.has_row_scales ? HalfAt(w.scales + 2 * (row + r)) : 1.0f;
    }
    const auto each_row = [&](auto tokens, int64_t token) {
      DotTokens<decltype(tokens)::value>(unpacked, rows, row_scales, x.arranged, token, out + row,
                                         out_stride);
    };
    int64_t token = 0;
    for (; token + kDotTokens <= x.count; token += kDotTokens)
      each_row(std::integral_constant<int, kDotTokens>(), token);
    for (; token < x.count; ++token) each_row(std::integral_constant<int, 1>(), token);
  }
}

int64_t RowGrain(const WeightLayout&, int64_t, bool) { return kUnpackedRows; }

/// Unpacking reads live groups in place, but for rows of widths of their own.
ProductFn LiveProduct(const WeightLayout& w, int64_t) {
  return w.widths == nullptr ? IntegerProduct : nullptr;
}

}  // namespace
}  // namespace cmforge
