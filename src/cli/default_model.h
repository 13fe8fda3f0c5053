// The model built into the program: converted from models/ when the program is built.
#pragma once

#include "base/bytes.h"

namespace cmforge::cli {

/// A .cmf file in memory; empty in the program that makes it.
[[nodiscard]] Bytes DefaultModel();

}  // namespace cmforge::cli
