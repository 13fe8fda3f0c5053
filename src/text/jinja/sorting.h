// Sorting values by keys that may turn out not to be comparable.
#pragma once

#include <vector>

#include "base/result.h"
#include "text/jinja/runtime.h"

namespace cmforge::jinja {

struct Keyed {
  Value key;
  Value value;
};

/// Stable, by `key`, as sorted(…, reverse=descending). Fails when two keys have no order.
Result<void> SortByKey(Runtime& rt, std::vector<Keyed>* items, bool descending);

}  // namespace cmforge::jinja
