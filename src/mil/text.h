// The text form of a program, as compiled models hold it in model.mil.
#pragma once

#include <string>
#include <string_view>

#include "mil/program.h"

namespace cmforge::mil {

/// Text in the compiler's own layout: attributes and arguments sorted by name, floats in hexadecimal.
[[nodiscard]] std::string PrintProgram(const Program& program);

/// Reads that text, whatever its white space, and the older form (program(1.0)) whose scalars are rank-0
/// tensors. Fails: kCorrupt, "line L, column C: what is wrong"; kUnsupported for nested blocks and unknown
/// opsets.
Result<Program> ParseProgramText(std::string_view text);

}  // namespace cmforge::mil
