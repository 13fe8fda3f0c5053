// What weights take: in files, and wired for the Neural Engine.
#pragma once

#include "coreml/lint/subject.h"

namespace cmforge::coreml::lint {

/// Wired memory of one function's weights. Each function has its own copy, whatever the file shares; tables that are
/// looked up stay mapped and count nothing. Measured by others for palettes of 2, 3 and 4 bits (see docs/coreml.md), the
/// other widths by analogy.
[[nodiscard]] uint64_t WiredBytes(const FunctionView& function);

/// Weights of all functions in the file, each place once, without tables that are looked up.
[[nodiscard]] uint64_t StoredBytes(const ModelSubject& model);

}  // namespace cmforge::coreml::lint
