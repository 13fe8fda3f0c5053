// Which tables of float kernels exist in this build and run on this machine.
#include "kernels/elementwise.h"

#include <array>

namespace cmforge {

extern const FloatKernels kFloatKernelsReference;
#if defined(__x86_64__)
extern const FloatKernels kFloatKernelsAvx2;
extern const FloatKernels kFloatKernelsAvx512;
#elif defined(__aarch64__)
extern const FloatKernels kFloatKernelsNeon;
#endif

std::span<const FloatKernels* const> FloatKernelsThatRun() {
  struct Tables {
    std::array<const FloatKernels*, 3> all = {&kFloatKernelsReference};
    size_t count = 1;
  };
  static const Tables tables = [] {  // no allocation: the first to ask may be in the middle of a run
    Tables made;
#if defined(__x86_64__)
    for (const auto* table : {&kFloatKernelsAvx2, &kFloatKernelsAvx512}) {
      if (table->runs_here()) made.all[made.count++] = table;
    }
#elif defined(__aarch64__)
    made.all[made.count++] = &kFloatKernelsNeon;
#endif
    return made;
  }();
  return std::span(tables.all).first(tables.count);
}

const FloatKernels* FindFloatKernels(std::string_view isa) {
  const auto tables = FloatKernelsThatRun();
  if (isa.empty()) return tables.back();
  for (const auto* table : tables) {
    if (table->isa == isa) return table;
  }
  return nullptr;
}

}  // namespace cmforge
