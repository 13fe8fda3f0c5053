// The files beside the models of a package: config.json, generation_config.json, the chat template, the
// tokenizer.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "coreml/package_writer.h"

namespace cmforge::coreml {

/// Copies them from a checkpoint folder, completing config.json with what package readers need (a
/// tokenizer_class, eos_token_id at the top); without a folder, writes them from the model's description.
/// Returns their names. Fails: kIo, kCorrupt (a config.json that is no JSON object).
Result<std::vector<std::string>> WriteSideFiles(const PackageSource& source,
                                                const std::filesystem::path& folder);

/// Whether a file of this name is one of those written or copied above.
[[nodiscard]] bool IsSideFile(std::string_view name);

}  // namespace cmforge::coreml
