// The runtime contract's check without running anything: parts that know their inputs, outputs and states as the opened
// models declare them.
#pragma once

#include "coreml/backend.h"

namespace cmforge::coreml::lint {

/// `packages` by path, as FindParts names them. Functions of its parts refuse to run.
[[nodiscard]] std::unique_ptr<Backend> DescribedParts(
    std::map<std::filesystem::path, std::shared_ptr<const mil::Package>> packages);

}  // namespace cmforge::coreml::lint
