// room: coreml
// A hostile meta.yaml, read as a package's and as lint reads it.
#include "coreml/lint/package.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace coreml = cmforge::coreml;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto meta = coreml::ParsePackageMeta(text);
  if (meta) (void)coreml::FindParts("/nonexistent", *meta);
  std::vector<coreml::lint::Finding> found;
  coreml::lint::Findings findings(found);
  if (coreml::lint::CheckMetaKeys(text, findings)) coreml::lint::CheckDoubleKeys(text, findings);
  return 0;
}
