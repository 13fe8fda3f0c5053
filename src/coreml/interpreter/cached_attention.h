// Attention over a cache as one step: matmul(q, k^T), mul by a number, add of a mask, softmax, matmul with v, where
// every key and value head serves several query heads. Each of the five results is rounded as if it had been made by
// a step of its own.
#pragma once

#include "coreml/interpreter/kernel.h"

namespace cmforge::coreml {

struct CachedAttention {
  ValueId query = kNoValue;  // [heads, tokens, width]
  ValueId key = kNoValue;    // [heads / repeats, keys, width]
  ValueId value = kNoValue;  // [heads / repeats, keys, value_width]
  ValueId scale = kNoValue;  // one number, or none
  ValueId mask = kNoValue;   // row of keys of (head, token) at head * mask_head + token * mask_token
  ValueId out = kNoValue;    // [heads, tokens, value_width]
  int64_t heads = 0, repeats = 1, tokens = 0, keys = 0, width = 0, value_width = 0;
  int64_t mask_head = 0, mask_token = 0;
  bool rounds = false;  // results are f16

  /// Keys that no token of a task sees (mask -inf) are neither read nor multiplied: their probability is 0, and the
  /// cache holds finite numbers.
  [[nodiscard]] Kernel Make(Isa isa, Frame& memory) const;
};

}  // namespace cmforge::coreml
