// The float kernels compiled for AVX2 with FMA and F16C.
#if defined(__x86_64__)

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"  // vectors cross no border of this file
#endif

// Everything the body includes comes first, so that no shared inline function is compiled for AVX2 here.
#include <immintrin.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/half.h"
#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "kernels/isa.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

#define CMFORGE_VEC_AVX2
#include "kernels/elementwise_body.h"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace cmforge {

extern const FloatKernels kFloatKernelsAvx2;
constinit const FloatKernels kFloatKernelsAvx2 = MakeTable("avx2", [] { return RunsHere(Isa::kAvx2); });

}  // namespace cmforge
#endif
