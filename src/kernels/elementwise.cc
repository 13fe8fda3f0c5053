// Which tables of float kernels exist in this build and run on this machine.
#include "kernels/elementwise.h"

#include <vector>

namespace cmforge {

extern const FloatKernels kFloatKernelsReference;
#if defined(__x86_64__)
extern const FloatKernels kFloatKernelsAvx2;
extern const FloatKernels kFloatKernelsAvx512;
#elif defined(__aarch64__)
extern const FloatKernels kFloatKernelsNeon;
#endif

std::span<const FloatKernels* const> FloatKernelsThatRun() {
  static const std::vector<const FloatKernels*> tables = [] {
    std::vector<const FloatKernels*> all = {&kFloatKernelsReference};
#if defined(__x86_64__)
    for (const auto* table : {&kFloatKernelsAvx2, &kFloatKernelsAvx512}) {
      if (table->runs_here()) all.push_back(table);
    }
#elif defined(__aarch64__)
    all.push_back(&kFloatKernelsNeon);
#endif
    return all;
  }();
  return tables;
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
