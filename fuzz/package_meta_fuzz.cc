// room: coreml
// A hostile meta.yaml.
#include "coreml/package_meta.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto meta = cmforge::coreml::ParsePackageMeta({reinterpret_cast<const char*>(data), size});
  if (meta) (void)cmforge::coreml::FindParts("/nonexistent", *meta);
  return 0;
}
