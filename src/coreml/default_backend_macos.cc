// On a Mac Core ML runs packages; the interpreter answers for f32, which Core ML does not have.
#include "coreml/backend.h"

namespace cmforge::coreml {

Result<std::shared_ptr<const Backend>> DefaultBackend(const InterpreterOptions& options, ComputeUnits units) {
  if (options.precision == Precision::kF32)
    return std::shared_ptr<const Backend>(InterpreterBackend(options));
  return CoremlBackend(units);
}

}  // namespace cmforge::coreml
