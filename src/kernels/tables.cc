// The tables that this build has.
#include "kernels/table.h"

namespace cmforge {

const KernelTable& TableOf(Isa isa) {
  (void)isa;
  return kReferenceTable;
}

}  // namespace cmforge
