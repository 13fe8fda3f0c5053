// Finds the kernel of an operation.
#include "coreml/interpreter/kernel.h"

namespace cmforge::coreml {

Result<Kernel> MakeKernel(OpContext& context) {
  const std::string_view op = context.call.info().name;
  for (const auto find :
       {FindElementwiseKernel, FindAxisKernel, FindProductKernel, FindMovementKernel, FindIndexKernel}) {
    if (const KernelMaker make = find(op)) return make(context);
  }
  return Fail(ErrorKind::kUnsupported, fmt::format("'{}' is not executed here", op));
}

bool DoesArithmetic(std::string_view op) {
  return op == "fill" || op == "range_1d" || op == "one_hot" || op == "pad" ||
         (!FindMovementKernel(op) && !FindIndexKernel(op));
}

}  // namespace cmforge::coreml
