// Going through values one by one, lazily: lists, strings, dictionaries, ranges, and what filters like map
// and select give.
#pragma once

#include <vector>

#include "base/result.h"
#include "text/jinja/runtime.h"

namespace cmforge::jinja {

/// Lives in the heap and is never destroyed, so implementations hold nothing but values and pointers.
class Iterator {
 public:
  /// The next value; kMissing at the end, and ever after.
  virtual Result<Value> Next(Runtime& rt) = 0;
  /// What Python prints for the object: "generator object do_map".
  [[nodiscard]] virtual std::string_view description() const { return "generator object"; }

 protected:
  Iterator() = default;
  ~Iterator() = default;
};

/// iter(value). Fails for what cannot be iterated. An iterator gives itself.
Result<Iterator*> Iterate(Runtime& rt, const Value& value);
[[nodiscard]] bool IsIterable(const Value& value);

/// list(value).
Result<std::vector<Value>> Collect(Runtime& rt, const Value& value);

/// reversed(value), for those that know their length. Fails for others.
Result<Iterator*> IterateReversed(Runtime& rt, const Value& value);

/// len(value). Fails for what has none.
Result<int64_t> Length(Runtime& rt, const Value& value);
[[nodiscard]] bool HasLength(const Value& value);

/// An iterator over values that are already there.
Iterator* IterateSpan(Runtime& rt, std::span<const Value> values,
                      std::string_view description = "list_iterator");

/// (key, value).
Result<Value> Pair(Runtime& rt, const Value& key, const Value& value);

}  // namespace cmforge::jinja
