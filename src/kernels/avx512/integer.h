// The integer encodings' entries of the table, and what their files share.
#pragma once

#include "kernels/avx512/panel.h"
#include "kernels/avx512/rows.h"

namespace cmforge {
namespace avx512 {

#define CMFORGE_PRODUCT(name)                                                                          \
  void name(const WeightLayout& w, int64_t row_begin, int64_t row_end, const TokenRows& x, float* out, \
            int64_t out_stride, std::byte* scratch)

CMFORGE_PRODUCT(Q8Product);
CMFORGE_PRODUCT(Q4BlockProduct);
CMFORGE_PRODUCT(Q4TiledProduct);
CMFORGE_PRODUCT(Q4tpProduct);
CMFORGE_PRODUCT(Q2tpProduct);
CMFORGE_PRODUCT(Q1Product);
CMFORGE_PRODUCT(Q1tProduct);
CMFORGE_PRODUCT(VbitProduct);
CMFORGE_PRODUCT(FloatProduct);

int64_t FloatScratchBytes(const WeightLayout& w);

void QuantizeRow(const float* x, const std::byte* columns, int64_t cols, int64_t groups, QuantizedGroup* out);

}  // namespace avx512

namespace {

// From this many tokens on, unpacking into a panel costs less than it saves.
constexpr int64_t kPanelTokens = 8;

constexpr int64_t IntegerScratchBytes(int64_t groups, int64_t tokens) {
  const int64_t steps = InputSteps(groups);
  if (tokens < kPanelTokens)
    return tokens * steps * static_cast<int64_t>(sizeof(StepInput)) + 4 * OwnFloats(groups);
  return PanelScratchBytes(groups);
}

template <class Encoding>
void IntegerProduct(const WeightLayout& w, int64_t row_begin, int64_t row_end, const TokenRows& x, float* out,
                    int64_t out_stride, std::byte* scratch) {
  if (x.count < kPanelTokens) {
    RowsProduct<Encoding>(w, row_begin, row_end, x, out, out_stride, scratch);
  } else {
    PanelsProduct<Encoding>(w, row_begin, row_end, x, out, out_stride, scratch);
  }
}

CMFORGE_INLINE void PrefetchLine(const std::byte* at) {
  _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T0);
}

/// Four rows whose codes lie at a fixed stride. Rows are short against a memory page and the prefetchers
/// restart at each, so while four rows are read, the lines of later rows are asked for: about this many bytes
/// ahead.
class PlainRows {
 public:
  PlainRows(const WeightLayout& w, const int64_t (&rows)[4]) {
    for (int r = 0; r < 4; ++r) row_[r] = w.codes + rows[r] * w.code_stride;
    const int64_t four = 4 * w.code_stride;
    ahead_ = (kPrefetchBytes + four - 1) / four * four;
  }

 protected:
  static constexpr int64_t kPrefetchBytes = 4096;
  const std::byte* row_[4];
  int64_t ahead_;
};

}  // namespace
}  // namespace cmforge
