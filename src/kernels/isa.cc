// Asks the CPU, not the compiler, which instruction sets run here.
#include "kernels/isa.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

namespace cmforge {

#if defined(__x86_64__)
namespace {

/// Not every compiler has a name for it.
bool HasF16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c >> 29 & 1) != 0;
}

/// Whether the processor has tile registers for int8, and the kernel lets this process use them.
bool HasTiles() {
#if defined(__linux__)
  static const bool has_tiles = [] {
    constexpr unsigned kTile = 1u << 24, kInt8 = 1u << 25;  // of leaf 7, edx
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kTile) == 0 || (d & kInt8) == 0) return false;
    constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, a state component
    return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }();
  return has_tiles;
#else
  return false;
#endif
}

}  // namespace
#endif

std::string_view IsaName(Isa isa) {
  switch (isa) {
    case Isa::kReference:
      return "reference";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAmx:
      return "amx";
    case Isa::kNeon:
      return "neon";
    case Isa::kNeonI8mm:
      return "neon-i8mm";
  }
  return "?";
}

std::string_view FloatIsaName(Isa isa) {
  if (isa == Isa::kAmx) isa = Isa::kAvx512;
  if (isa == Isa::kNeonI8mm) isa = Isa::kNeon;
  return IsaName(isa);
}

bool RunsHere(Isa isa) {
  switch (isa) {
    case Isa::kReference:
      return true;
#if defined(__x86_64__)
    case Isa::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && HasF16c();
    case Isa::kAvx512:
      return RunsHere(Isa::kAvx2) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni") &&
             __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("gfni");
    case Isa::kAmx:
      return RunsHere(Isa::kAvx512) && HasTiles();
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

bool IsZen5OrLater() {
#if defined(__x86_64__)
  static const bool is_zen5 = [] {
    constexpr unsigned kZen5 = 0x1A;
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (__builtin_cpu_is("amd") == 0 || __get_cpuid(1, &a, &b, &c, &d) == 0) return false;
    return (a >> 8 & 0xF) + (a >> 20 & 0xFF) >= kZen5;  // the family
  }();
  return is_zen5;
#else
  return false;
#endif
}

bool WantsPrefetch() {
#if defined(__x86_64__)
  return __builtin_cpu_is("intel") != 0 || IsZen5OrLater();
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
