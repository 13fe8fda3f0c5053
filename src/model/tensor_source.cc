// Shape helpers.
#include "model/tensor_source.h"

namespace cmforge {

std::optional<int64_t> ElementCount(std::span<const int64_t> shape) {
  int64_t count = 1;
  for (const int64_t dim : shape) {
    if (dim < 0 || __builtin_mul_overflow(count, dim, &count)) return std::nullopt;
  }
  return count;
}

std::string ShapeText(std::span<const int64_t> shape) {
  std::string text;
  for (const int64_t dim : shape) {  // -1: a dimension that is not known
    if (!text.empty()) text += ", ";
    text += dim == -1 ? "?" : std::to_string(dim);
  }
  return "[" + text + "]";
}

}  // namespace cmforge
