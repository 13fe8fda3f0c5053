// From a .mlpackage to its compiled form: by Apple's compiler where there is one, else by our own writer.
#pragma once

#include <filesystem>

#include "mil/package.h"

namespace cmforge::coreml {

/// Fails: as mil::WriteCompiled; kUnsupported when Apple's compiler refuses the package (its exit code).
Result<void> CompilePart(const mil::Package& package, const std::filesystem::path& target);

}  // namespace cmforge::coreml
