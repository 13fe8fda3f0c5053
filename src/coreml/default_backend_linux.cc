// Off a Mac the interpreter runs packages.
#include "coreml/backend.h"

namespace cmforge::coreml {

Result<std::shared_ptr<const Backend>> DefaultBackend(const InterpreterOptions& options, ComputeUnits units) {
  CMF_CHECK(CheckComputeUnits(units));
  return std::shared_ptr<const Backend>(InterpreterBackend(options));
}

}  // namespace cmforge::coreml
