// The default model, placed into the program by the assembler (model.S).
#include "cli/default_model.h"

extern "C" {
extern const std::byte cmforge_default_model_begin[];
extern const std::byte cmforge_default_model_end[];
}

namespace cmforge::cli {

Bytes DefaultModel() { return {cmforge_default_model_begin, cmforge_default_model_end}; }

}  // namespace cmforge::cli
