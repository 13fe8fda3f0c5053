// A merge sort whose comparison may fail.
#include "text/jinja/sorting.h"

#include <algorithm>

#include "text/jinja/compare.h"

namespace cmforge::jinja {

Result<void> SortByKey(Runtime& rt, std::vector<Keyed>* items, bool descending) {
  std::vector<Keyed> merged(items->size());
  std::vector<Keyed>* from = items;
  std::vector<Keyed>* to = &merged;
  for (size_t width = 1; width < items->size(); width *= 2) {
    for (size_t begin = 0; begin < items->size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, items->size());
      const size_t end = std::min(begin + 2 * width, items->size());
      size_t left = begin;
      size_t right = middle;
      for (size_t out = begin; out < end; ++out) {
        bool takes_right = left == middle;
        if (left < middle && right < end) {
          // The right one only when it has to come first: equal keys keep their order.
          const Keyed& l = (*from)[left];
          const Keyed& r = (*from)[right];
          CMF_TRY(takes_right, descending ? Less(rt, l.key, r.key) : Less(rt, r.key, l.key));
        }
        (*to)[out] = (*from)[takes_right ? right++ : left++];
      }
    }
    std::swap(from, to);
  }
  if (from != items) *items = *from;
  return {};
}

}  // namespace cmforge::jinja
