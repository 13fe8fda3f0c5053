// Python's truth, equality, order and hash of values.
#pragma once

#include "base/result.h"
#include "text/jinja/runtime.h"

namespace cmforge::jinja {

/// bool(value).
[[nodiscard]] bool IsTrue(const Value& value);

/// a == b. Fails: nested too deep.
Result<bool> Equal(Runtime& rt, const Value& a, const Value& b);

/// Equality of hashable values, as dictionary keys and set members have it.
[[nodiscard]] bool KeyEqual(const Value& a, const Value& b);

/// Fails for what Python calls unhashable (list, dict).
Result<uint64_t> Hash(const Value& value);

enum class Order { kLess, kLessEqual, kGreater, kGreaterEqual };
/// a < b and its kin. Fails for values that have no order.
Result<bool> Ordered(Runtime& rt, const Value& a, const Value& b, Order order);
inline Result<bool> Less(Runtime& rt, const Value& a, const Value& b) {
  return Ordered(rt, a, b, Order::kLess);
}

/// item in container.
Result<bool> Contains(Runtime& rt, const Value& container, const Value& item);

/// a is b.
[[nodiscard]] bool IsSame(const Value& a, const Value& b);

}  // namespace cmforge::jinja
