// A tree of elementwise operations computed in one pass, a block that stays in L1 after the other. Every result in
// between is rounded as the operation's type says, so nothing differs from one step per operation.
#pragma once

#include <vector>

#include "coreml/interpreter/element_blocks.h"
#include "coreml/interpreter/kernel.h"

namespace cmforge::coreml {

/// A value read by a chain: of the result's shape, or one that repeats along it (`period` elements, then again).
struct ChainInput {
  ValueId value = kNoValue;
  int64_t period = 0;
};

/// One operation. Operands: inputs (k >= 0) or the results of earlier operations (-1 - k).
struct ChainOp {
  BinaryBlock binary = nullptr;
  FloatFunction unary = nullptr;
  const uint16_t* table = nullptr;  // of `unary`, where its operand and its result are halves
  int32_t a = 0, b = 0;
  bool rounds = false;  // the result is f16
};

struct ElementChain {
  std::vector<ChainInput> inputs;
  std::vector<ChainOp> ops;  // operands before users; the last one makes the result
  ValueId out = kNoValue;
  int64_t count = 0;

  static constexpr size_t kMaxOps = 16;
  [[nodiscard]] Kernel Make() const;
};

}  // namespace cmforge::coreml
