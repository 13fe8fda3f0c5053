// The float kernels without any instruction set's help; fused multiply-adds come from the C library.
#include "kernels/elementwise_body.h"

namespace cmforge {

extern const FloatKernels kFloatKernelsReference;
constinit const FloatKernels kFloatKernelsReference = MakeTable("reference", [] { return true; });

}  // namespace cmforge
