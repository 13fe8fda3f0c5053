// Manifest.json of a .mlpackage: which of its files is the model.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"

namespace cmforge::mil {

/// The model file of a package folder. Every item the manifest lists must exist inside the package.
/// Fails: kNotFound (no manifest, an item that is not there), kCorrupt (JSON, versions, items without their
/// fields, paths that leave the package or contain it, a root that is not listed).
Result<std::filesystem::path> ModelFileOf(const std::filesystem::path& package);

/// The manifest of a package we write.
[[nodiscard]] std::string ManifestText(const std::string& model_id, const std::string& weights_id,
                                       bool has_weights);

}  // namespace cmforge::mil
