// What /set shows and changes in the chat.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "generate/chat_session.h"

namespace cmforge::cli {

/// One line a setting, its name and its value; no end of line behind the last.
[[nodiscard]] std::string ShowSettings(const ChatOptions& options);

/// "NAME VALUE" changes a setting, "NAME" alone does not; returns the line that ShowSettings has for it.
/// Fails: kUsage (no such setting, a value it cannot take); then nothing has changed.
Result<std::string> ChangeSetting(ChatOptions& options, std::string_view argument);

}  // namespace cmforge::cli
