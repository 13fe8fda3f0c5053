// Running a chain block by block.
#include "coreml/interpreter/element_chain.h"

#include <algorithm>

namespace cmforge::coreml {
namespace {

constexpr int64_t kBlock = 512;  // floats of a result in between: 2 KiB, and all of a chain's together fit L1

/// Elements [begin, begin + n) of the chain's result, within one period of every input.
void RunBlock(const ElementChain& chain, const Frame& frame, int64_t begin, int64_t n,
              float (&between)[ElementChain::kMaxOps][kBlock]) {
  struct Operand {
    const float* at;
    int64_t step;
  };
  const auto find = [&](int32_t operand) -> Operand {
    if (operand < 0) return {between[-1 - operand], 1};
    const ChainInput& input = chain.inputs[static_cast<size_t>(operand)];
    if (input.period == 1) return {frame.In(input.value), 0};
    return {frame.In(input.value) + begin % input.period, 1};
  };
  for (size_t k = 0; k < chain.ops.size(); ++k) {
    const ChainOp& op = chain.ops[k];
    float* to = k + 1 == chain.ops.size() ? frame.Out(chain.out) + begin : between[k];
    const Operand a = find(op.a);
    if (op.binary) {
      const Operand b = find(op.b);
      op.binary(a.at, a.step, b.at, b.step, n, to);
      if (a.step == 0 && b.step == 0) std::fill_n(to, n, to[0]);
    } else if (op.table && a.step == 1) {
      LookUpHalves(op.table, a.at, n, to);
      continue;
    } else {
      for (int64_t i = 0; i < n; ++i) to[i] = op.unary(a.at[i * a.step]);
    }
    if (op.rounds) RoundToHalves(to, n);
  }
}

}  // namespace

Kernel ElementChain::Make() const {
  return [chain = *this](const Frame& frame) -> Result<void> {
    constexpr int64_t kWorthThreads = 1 << 14;  // operations
    const int64_t work = chain.count * static_cast<int64_t>(chain.ops.size());
    const auto run = [&](int64_t begin, int64_t end) {
      alignas(64) float between[kMaxOps][kBlock];
      for (int64_t at = begin; at < end;) {
        int64_t n = std::min(kBlock, end - at);
        for (const ChainInput& input : chain.inputs) {
          if (input.period > 1) n = std::min(n, input.period - at % input.period);
        }
        RunBlock(chain, frame, at, n, between);
        at += n;
      }
    };
    if (work < kWorthThreads) {
      run(0, chain.count);
    } else {
      frame.pool().ForRanges(chain.count, kBlock, run);
    }
    return {};
  };
}

}  // namespace cmforge::coreml
