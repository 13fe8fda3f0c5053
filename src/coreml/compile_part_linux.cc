// Apple's compiler exists on a Mac only.
#include "coreml/compile_part.h"

namespace cmforge::coreml {

Result<void> CompilePart(const mil::Package& package, const std::filesystem::path& target) {
  return mil::WriteCompiled(package, target);
}

}  // namespace cmforge::coreml
