// The tables that this build has.
#include <cassert>

#include "kernels/table.h"

namespace cmforge {

const KernelTable& TableOf(Isa isa) {
  switch (isa) {
    case Isa::kReference:
      return kReferenceTable;
#if defined(__x86_64__)
    case Isa::kAvx512:
    case Isa::kAmx:  // TokenRows::has_tiles makes the difference
      return kAvx512Table;
    case Isa::kAvx2:
      return kAvx2Table;
#endif
#if defined(__aarch64__)
    case Isa::kNeon:
      return kNeonTable;
    case Isa::kNeonI8mm:
      return kNeonI8mmTable;
#endif
    default:
      break;
  }
  assert(false && "a table that does not run here");
  return kReferenceTable;
}

}  // namespace cmforge
