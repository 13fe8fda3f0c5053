// Result types, one function per kind of operation; see ops.cc for which operation uses which.
#pragma once

#include "mil/ops.h"

namespace cmforge::mil {

using Types = Result<std::vector<TensorType>>;

/// numpy's broadcast of two shapes. Fails: kCorrupt with both shapes.
Result<Shape> BroadcastShapes(const Shape& a, const Shape& b);
/// a * b and a + b where unknown dimensions stay unknown. Fails: kCorrupt on overflow.
Result<int64_t> DimTimes(int64_t a, int64_t b);
Result<int64_t> DimPlus(int64_t a, int64_t b);
/// True when the dimensions may be equal.
[[nodiscard]] inline bool DimsAgree(int64_t a, int64_t b) {
  return a == b || a == kUnknownDim || b == kUnknownDim;
}

/// Where a slice lies: out = x[begin : end : stride] per axis, squeezed axes of extent 1 dropped from
/// `shape`.
struct SlicePlan {
  std::vector<int64_t> begin, stride;  // per axis of x; begin of kUnknownBegin: known at run time
  std::vector<int64_t> extent;         // per axis of x, kUnknownDim where open
  Shape shape;                         // of the result
};
inline constexpr int64_t kUnknownBegin = INT64_MIN;
/// For slice_by_index and slice_update (`x` of that shape). Fails: kCorrupt.
Result<SlicePlan> PlanSlice(const OpCall& call, const Shape& x);

/// The split of an axis of `extent`. Fails: kCorrupt when the parts do not add up.
Result<std::vector<int64_t>> SplitSizes(const OpCall& call, int64_t extent);

/// Padding before and after each spatial axis of a convolution, and the output extents.
struct ConvPlan {
  int64_t groups = 1;
  std::vector<int64_t> strides, dilations, pad_before, pad_after, kernel;
  std::vector<int64_t> out;  // spatial extents of the result, kUnknownDim where open
};
Result<ConvPlan> PlanConv(const OpCall& call);

/// An equation of two operands in letters: each letter an axis.
struct EinsumPlan {
  std::string a, b, out;
  std::map<char, int64_t> extents;
};
Result<EinsumPlan> PlanEinsum(const OpCall& call);

// elementwise
Types InferLikeX(const OpCall& call);      // the type of x
Types InferBroadcast(const OpCall& call);  // x, y
Types InferCompare(const OpCall& call);    // x, y -> bool
Types InferCast(const OpCall& call);
Types InferSelect(const OpCall& call);
Types InferClip(const OpCall& call);
Types InferGelu(const OpCall& call);
// along axes
Types InferSoftmax(const OpCall& call);
Types InferLayerNorm(const OpCall& call);
Types InferInstanceNorm(const OpCall& call);
Types InferBatchNorm(const OpCall& call);
Types InferReduce(const OpCall& call);
Types InferArgReduce(const OpCall& call);
Types InferCumsum(const OpCall& call);
Types InferTopk(const OpCall& call);
Types InferArgsort(const OpCall& call);
// products
Types InferMatmul(const OpCall& call);
Types InferLinear(const OpCall& call);
Types InferEinsum(const OpCall& call);
Types InferConv(const OpCall& call);
Types InferAttention(const OpCall& call);
// moving elements
Types InferConcat(const OpCall& call);
Types InferStack(const OpCall& call);
Types InferSplit(const OpCall& call);
Types InferSliceByIndex(const OpCall& call);
Types InferSliceBySize(const OpCall& call);
Types InferSliceUpdate(const OpCall& call);
Types InferGather(const OpCall& call);
Types InferGatherAlongAxis(const OpCall& call);
Types InferGatherNd(const OpCall& call);
Types InferExpandDims(const OpCall& call);
Types InferSqueeze(const OpCall& call);
Types InferReshape(const OpCall& call);
Types InferTranspose(const OpCall& call);
Types InferTile(const OpCall& call);
Types InferPad(const OpCall& call);
Types InferBandPart(const OpCall& call);
// making elements
Types InferFill(const OpCall& call);
Types InferRange(const OpCall& call);
Types InferShapeOf(const OpCall& call);
Types InferOneHot(const OpCall& call);
// constants and states
Types InferConst(const OpCall& call);
Types InferLutToDense(const OpCall& call);
Types InferLutToSparse(const OpCall& call);
Types InferBlockwise(const OpCall& call);
Types InferSparseToDense(const OpCall& call);
Types InferSparseBlockwise(const OpCall& call);
Types InferAffineDequantize(const OpCall& call);
Types InferConstexprCast(const OpCall& call);
Types InferReadState(const OpCall& call);
Types InferWriteState(const OpCall& call);

}  // namespace cmforge::mil
