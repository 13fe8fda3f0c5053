// What the commands that work on whole .cmf files share.
#pragma once

#include <filesystem>
#include <memory>
#include <span>

#include "cli/command.h"
#include "open/open_source.h"

namespace cmforge::cli {

/// The .cmf file behind a source. Fails: kUsage for a source of another kind.
Result<std::shared_ptr<const cmf::File>> NeedCmf(const OpenedSource& source);

/// The files a command has written, with their sizes: {"files":[{"file","bytes"}]}, or a line each.
void PrintFiles(const Cli& cli, std::span<const std::filesystem::path> paths);

}  // namespace cmforge::cli
