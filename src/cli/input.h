// Text and JSON that a flag names or a pipe brings. What they hold is input, not usage: bad bytes are
// kCorrupt and the message begins with the file's name.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace cmforge::cli {

/// Fails: kCorrupt with the first byte of `text` that is not UTF-8; `what` names it.
Result<void> CheckUtf8(std::string_view text, std::string_view what);

/// A whole file of UTF-8. Fails: as ReadTextFile and CheckUtf8.
Result<std::string> ReadUtf8File(const std::string& path);

/// All of standard input, UTF-8. Fails: as CheckUtf8.
Result<std::string> ReadUtf8Input();

/// Fails: as ReadTextFile and ParseJson.
Result<Json> ReadJsonFile(const std::string& path);

/// Fails: kUsage when `output` is the file `input`, which would be lost.
Result<void> CheckNotInput(const std::string& input, const std::string& output);

/// A list of tools for a chat template. Fails: kCorrupt also when it is not a list.
Result<Json> ReadToolsFile(const std::string& path);

}  // namespace cmforge::cli
