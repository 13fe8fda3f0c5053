// The argument of commands that work on .cmf files alone.
#pragma once

#include "cli/model_argument.h"

namespace cmforge::cli {

/// Fails: kUsage for any other format.
Result<OpenedSource> OpenCmf(const Cli& cli, const ModelArgument& model);

/// "3-5" or "4". Fails: kUsage.
Result<std::pair<int64_t, int64_t>> ParseLayerRange(const std::string& text);

}  // namespace cmforge::cli
