// The float kernels compiled for AArch64, where NEON with FMA is always there.
#if defined(__aarch64__)

#define CMFORGE_VEC_NEON
#include "kernels/elementwise_body.h"

namespace cmforge {

extern const FloatKernels kFloatKernelsNeon;
constinit const FloatKernels kFloatKernelsNeon = MakeTable("neon", [] { return true; });

}  // namespace cmforge
#endif
