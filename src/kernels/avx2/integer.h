// The integer encodings' entries of the table, and what their files share.
#pragma once

#include "kernels/avx2/blocks.h"
#include "kernels/avx2/rows.h"

namespace cmforge {
namespace avx2 {

#define CMFORGE_PRODUCT(name)                                                                          \
  void name(const WeightLayout& w, int64_t row_begin, int64_t row_end, const TokenRows& x, float* out, \
            int64_t out_stride, std::byte* scratch)

// The second of a pair is KernelTable::live's.
CMFORGE_PRODUCT(Q8Product);
CMFORGE_PRODUCT(Q8LiveProduct);
CMFORGE_PRODUCT(Q4BlockProduct);
CMFORGE_PRODUCT(Q4BlockLiveProduct);
CMFORGE_PRODUCT(Q4TiledProduct);
CMFORGE_PRODUCT(Q4TiledLiveProduct);
CMFORGE_PRODUCT(Q4tpProduct);
CMFORGE_PRODUCT(Q4tpLiveProduct);
CMFORGE_PRODUCT(Q2tpProduct);
CMFORGE_PRODUCT(Q2tpLiveProduct);
CMFORGE_PRODUCT(Q1Product);
CMFORGE_PRODUCT(Q1LiveProduct);
CMFORGE_PRODUCT(Q1tProduct);
CMFORGE_PRODUCT(Q1tLiveProduct);
CMFORGE_PRODUCT(VbitProduct);

int64_t ArrangedBytes(const WeightLayout& w, int64_t tokens);
void Arrange(const WeightLayout& w, const TokenRows& x, int64_t begin, int64_t end, std::byte* out);

}  // namespace avx2

namespace {

// From this many tokens on, unpacking into a block costs less than it saves.
constexpr int64_t kBlockTokens = 8;

/// How an encoding reads its input.
struct Arrangement {
  Order order;
  int32_t zero;
  bool is_wide;
};
constexpr Arrangement ArrangementOf(DType dtype) {
  switch (dtype) {
    case DType::kQ4Block:
    case DType::kQ4Tiled:
    case DType::kQ4tp:
      return {Order::kEvenOdd, 8, false};
    case DType::kQ2tp:
      return {Order::kFours, 3, false};
    case DType::kQ1:
    case DType::kQ1s:
    case DType::kQ1t:
      return {Order::kHalves, 1, false};
    case DType::kVbit:
    case DType::kVbitRo:
      return {Order::kHalves, -1, true};
    default:
      return {Order::kHalves, 0, true};
  }
}

template <DType kDType, class Encoding>
void IntegerProduct(const WeightLayout& w, int64_t row_begin, int64_t row_end, const TokenRows& x, float* out,
                    int64_t out_stride, std::byte* scratch) {
  static_assert(ArrangementOf(kDType).order == Encoding::kOrder);
  static_assert(ArrangementOf(kDType).zero == Encoding::kZero);
  static_assert(ArrangementOf(kDType).is_wide == Encoding::kIsWide);
  if (x.count < kBlockTokens) {
    RowsProduct<Encoding>(w, row_begin, row_end, x, out, out_stride);
  } else {
    BlocksProduct<Encoding>(w, row_begin, row_end, x, out, out_stride, scratch);
  }
}

/// Rows of groups of kBytes each, side by side or (kLive) some of them.
template <int64_t kBytes, bool kLive>
class GroupRow {
 public:
  static constexpr bool kIsLive = kLive;
  static constexpr int64_t kOverread = 0;

  explicit GroupRow(const WeightLayout& w) : w_(w) {}

  void Begin(int64_t, int64_t) {}
  CMFORGE_INLINE void SetRow(int64_t row) { row_ = w_.codes + row * w_.code_stride; }
  static constexpr int64_t unit_bytes() { return kUnitGroups * kBytes; }
  CMFORGE_INLINE const std::byte* At(int64_t unit) const {
    if constexpr (kLive) return reinterpret_cast<const std::byte*>(w_.live + unit * kUnitGroups);
    return row_ + unit * unit_bytes();
  }

 protected:
  /// The unit's i-th group among those of the whole row.
  static CMFORGE_INLINE int64_t Live(const std::byte* at, int64_t i) {
    return reinterpret_cast<const int32_t*>(at)[i];
  }
  /// Where the unit's i-th group is. Gaps keep the processor from prefetching what comes next, so a live group asks
  /// for its own place in the next row: only lines that are read are fetched.
  CMFORGE_INLINE const std::byte* Group(const std::byte* at, int64_t i) const {
    if constexpr (!kLive) return at + kBytes * i;
    const std::byte* group = row_ + kBytes * Live(at, i);
    PrefetchLine(group + w_.code_stride);
    return group;
  }
  /// Group i of the unit: as Group, to be read once more.
  CMFORGE_INLINE const std::byte* GroupAgain(const std::byte* at, int64_t i) const {
    return kLive ? row_ + kBytes * Live(at, i) : at + kBytes * i;
  }

  const WeightLayout& w_;
  const std::byte* row_ = nullptr;
};

}  // namespace
}  // namespace cmforge
