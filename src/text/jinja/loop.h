// The `loop` variable of a for loop: position, neighbours, cycle, changed, recursion.
#pragma once

#include "base/result.h"
#include "text/jinja/iterate.h"
#include "text/jinja/runtime.h"

namespace cmforge::jinja {

struct ForNode;

struct LoopState {
  Value iterable;  // what the loop runs over, for its length
  Iterator* iterator = nullptr;
  const ForNode* recursive = nullptr;  // what loop(...) renders; null: not recursive
  Activation* closure = nullptr;       // where the recursive body is at home
  int64_t depth0 = 0;
  int64_t index0 = -1;
  int64_t length = -1;  // unknown yet
  Value after;          // an item taken early; kMissing: none
  Value current;
  Value before;
  Value changed;  // the last arguments of loop.changed(), a tuple
};

/// The next item, kMissing at the end.
Result<Value> AdvanceLoop(Runtime& rt, LoopState* loop);
Result<int64_t> LoopLength(Runtime& rt, LoopState* loop);
/// An item of `for a, b in loop`: (item, loop).
Result<Iterator*> IterateLoop(Runtime& rt, LoopState* loop);
/// loop.NAME; kMissing when there is no such attribute.
Result<Value> LoopAttribute(Runtime& rt, const Value& loop, std::string_view name);

}  // namespace cmforge::jinja
