// room: base
// A hostile .npy file: what parses is written and parsed to the same array.
#include <cstdlib>

#include "base/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cmforge;  // NOLINT: a fuzz target
  const auto array = ParseNpy(std::as_bytes(std::span(data, size)));
  if (!array) return 0;
  if (array->data.size() != static_cast<size_t>(array->count()) * NpyTypeBytes(array->type)) abort();
  if (array->ToFloats().size() != static_cast<size_t>(array->count())) abort();
  (void)array->ToInts();
  const auto again = ParseNpy(SerializeNpy(*array));
  if (!again || again->shape != array->shape || again->type != array->type || again->data != array->data)
    abort();
  return 0;
}
