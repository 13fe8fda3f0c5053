// Asks the CPU, not the compiler, which instruction sets run here.
#include "kernels/isa.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace cmforge {

std::string_view IsaName(Isa isa) {
  switch (isa) {
    case Isa::kReference:
      return "reference";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kNeon:
      return "neon";
    case Isa::kNeonI8mm:
      return "neon-i8mm";
  }
  return "?";
}

std::string_view FloatIsaName(Isa isa) { return IsaName(isa == Isa::kNeonI8mm ? Isa::kNeon : isa); }

bool RunsHere(Isa isa) {
  switch (isa) {
    case Isa::kReference:
      return true;
#if defined(__x86_64__)
    case Isa::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
             __builtin_cpu_supports("f16c");
    case Isa::kAvx512:
      return RunsHere(Isa::kAvx2) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni") &&
             __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("gfni");
#endif
#if defined(__aarch64__) && defined(__linux__)
    case Isa::kNeon:
      return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
    case Isa::kNeonI8mm:
      return RunsHere(Isa::kNeon) && (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
#elif defined(__aarch64__)
    case Isa::kNeon:
      return true;  // every 64-bit Apple processor that runs a current system
#endif
    default:
      return false;
  }
}

std::vector<Isa> IsasThatRun() {
  std::vector<Isa> result;
  for (int i = 0; i < kIsaCount; ++i) {
    if (const auto isa = static_cast<Isa>(i); RunsHere(isa)) result.push_back(isa);
  }
  return result;
}

Isa BestIsa() { return IsasThatRun().back(); }

bool WantsPrefetch() {
#if defined(__x86_64__)
  return __builtin_cpu_is("intel") != 0;
#else
  return false;
#endif
}

Result<Isa> ParseIsa(std::string_view name) {
  if (name.empty() || name == "auto") return BestIsa();
  std::vector<std::string_view> here;
  for (const Isa isa : IsasThatRun()) here.push_back(IsaName(isa));
  for (int i = 0; i < kIsaCount; ++i) {
    const auto isa = static_cast<Isa>(i);
    if (IsaName(isa) != name) continue;
    if (RunsHere(isa)) return isa;
    return Fail(ErrorKind::kUnsupported,
                fmt::format("instruction set '{}' does not run on this machine: choose one of {}", name,
                            fmt::join(here, ", ")));
  }
  return Fail(ErrorKind::kUsage,
              fmt::format("unknown instruction set '{}': choose one of {}", name, fmt::join(here, ", ")));
}

}  // namespace cmforge
