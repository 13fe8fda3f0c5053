// LoadModel for whoever wants to know where the time goes.
#pragma once

#include <memory>

#include "cli/model_argument.h"
#include "engine/profile.h"

namespace cmforge::cli {

/// As LoadModel; every step of the model is charged to `profile`, which may be null.
Result<std::shared_ptr<LanguageModel>> LoadProfiledModel(const Cli& cli, const OpenedSource& source,
                                                         const ComputeFlags& flags,
                                                         std::shared_ptr<engine::Profile> profile);

}  // namespace cmforge::cli
