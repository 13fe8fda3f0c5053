// Instruction sets that kernels are built for, which of them run on this machine, and their names.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace cmforge {

enum class Isa : uint8_t {
  kReference,  // plain loops, the meaning of every kernel
  kAvx2,       // AVX2, FMA, F16C
  kAvx512,     // AVX-512 F/BW/DQ/VL with VNNI, VBMI and GFNI (Ice Lake, Zen 4 and later)
  kAmx,        // kAvx512 and AMX int8 tiles for products of many tokens (Sapphire Rapids and later)
  kNeon,       // Armv8.2 with dot product
  kNeonI8mm,   // and with products of byte matrices (Armv8.6)
};
inline constexpr int kIsaCount = 6;

/// "reference", "avx2", "avx512", "amx", "neon", "neon-i8mm"
[[nodiscard]] std::string_view IsaName(Isa isa);

/// The set whose float kernels (elementwise.h) go with this one: "avx512" for amx, "neon" for neon-i8mm, otherwise the
/// set itself.
[[nodiscard]] std::string_view FloatIsaName(Isa isa);

/// Built into this program and supported by this CPU and its operating system. Linux is asked for the tile registers,
/// which makes it save them for this process's threads from then on.
[[nodiscard]] bool RunsHere(Isa isa);
[[nodiscard]] std::vector<Isa> IsasThatRun();  // reference first, the best last
[[nodiscard]] Isa BestIsa();

/// An AMD processor of family 0x1A or later.
[[nodiscard]] bool IsZen5OrLater();

/// Whether several streams that are read in step go faster when they are prefetched by hand, although their loads
/// are whole cache lines in order: so on Intel's processors and from Zen 5 on, not on others that were measured
/// (avx512/rows.h).
[[nodiscard]] bool WantsPrefetch();

/// The set of that name; "" and "auto" mean BestIsa(). Fails: kUsage (no such name), kUnsupported (not here);
/// both messages list what runs here.
Result<Isa> ParseIsa(std::string_view name);

}  // namespace cmforge
