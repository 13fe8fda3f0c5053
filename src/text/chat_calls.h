// How models spell tool calls, one function a spelling. Each looks at the text behind an opening mark and
// says whether a whole call is there yet.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/chat_parse.h"

namespace cmforge {

enum class CallSyntax : uint8_t {
  kTagged,        // <tool_call> … </tool_call>: JSON, <function=…> or <arg_key> inside
  kSeedTagged,    // <seed:tool_call> … </seed:tool_call>
  kFunctionTag,   // <function=NAME>{…}</function>
  kLlamaJson,     // {"name":…,"parameters":{…}}; several with ; between
  kLlamaPython,   // behind <|python_tag|>: the same, or NAME.call(key="value")
  kGemma,         // call:NAME{…}<tool_call|>
  kMistral,       // [{…}] or NAME[CALL_ID]…[ARGS]{…}
  kDeepSeek,      // behind <｜tool▁call▁begin｜>, up to <｜tool▁call▁end｜>
  kDeepSeekDsml,  // behind <｜DSML｜function_calls>
};

struct CallScan {
  enum class State : uint8_t { kNeedsMore, kCalls, kBad };
  State state = State::kNeedsMore;
  size_t size = 0;  // bytes that belong to it, its closing mark included
  std::vector<ToolCall> calls;
};

/// `is_end`: no more text will come, so a missing closing mark is forgiven. `tools` (null: unknown) are the
/// tools of the request: their schemas tell strings from other values where a spelling does not.
CallScan ScanCall(CallSyntax syntax, std::string_view text, bool is_end, const Json& tools);

/// Bytes of the JSON value that `text` begins with (blanks before it included); 0 when it is not complete,
/// npos when it cannot become one.
size_t JsonValueSize(std::string_view text);

}  // namespace cmforge
