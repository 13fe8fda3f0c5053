// The float kernels compiled for AVX-512 (F, BW, DQ, VL).
#if defined(__x86_64__)

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"          // vectors cross no border of this file
#pragma GCC diagnostic ignored "-Wuninitialized"  // the compiler's own _mm512_undefined_ps()
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

// Everything the body includes comes first, so that no shared inline function is compiled for AVX-512 here.
#include <immintrin.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/half.h"
#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "kernels/isa.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma,f16c"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")
#endif

#define CMFORGE_VEC_AVX512
#include "kernels/elementwise_body.h"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace cmforge {

extern const FloatKernels kFloatKernelsAvx512;
constinit const FloatKernels kFloatKernelsAvx512 = MakeTable("avx512", [] {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
});

}  // namespace cmforge
#endif
