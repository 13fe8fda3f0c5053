// The program that converts the default model cannot hold it yet.
#include "cli/default_model.h"

namespace cmforge::cli {

Bytes DefaultModel() { return {}; }

}  // namespace cmforge::cli
