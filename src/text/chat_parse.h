// From a model's answer back to fields: reasoning, tool calls and the text for the user, for the common
// families, whole or as it streams in.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace cmforge {

/// How a model writes reasoning and tool calls.
enum class AnswerFormat : uint8_t {
  kPlain,     // nothing but <think>…</think>
  kHermes,    // Qwen 2.5/3, Hermes: <tool_call>{"name":…,"arguments":{…}}</tool_call>
  kQwenXml,   // Qwen3-Coder, Qwen3.5:
              // <tool_call><function=NAME><parameter=KEY>…</parameter></function></tool_call>
  kLlama3,    // {"name":…,"parameters":{…}}, after <|python_tag|> or as the whole answer
  kGemma,     // <|tool_call>call:NAME{key:<|"|>text<|"|>,…}<tool_call|>, <|channel>thought … <channel|>
  kMistral,   // [TOOL_CALLS][{…}, …] or [TOOL_CALLS]NAME[ARGS]{…}; [THINK]…[/THINK]
  kDeepSeek,  // <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>…, R1 and V3.1 forms
  kGptOss,    // harmony: <|channel|>analysis<|message|>…, commentary to=functions.NAME, final
};

/// The format a template teaches its model, told by the marks in its text; kPlain when there are none.
AnswerFormat DetectAnswerFormat(std::string_view template_source);
std::string_view AnswerFormatName(AnswerFormat format);

struct ToolCall {
  std::string id;  // as the model gave it; empty in most formats
  std::string name;
  std::string arguments;  // JSON text of an object
};

struct Answer {
  std::string content;  // for the user, blanks around it trimmed where the format puts them
  std::string reasoning;
  std::vector<ToolCall> tool_calls;
};

/// What became certain with the last piece of text.
struct AnswerDelta {
  std::string content;
  std::string reasoning;
  std::vector<ToolCall> tool_calls;  // complete ones
};

/// Parses an answer piece by piece. The text must keep the marks (decode without skipping special tokens, but
/// without the stop token). Text that may be the beginning of a mark is withheld until it is decided. Joined
/// deltas are what ParseAnswer gives for the whole text, wherever it was cut. A tool call that does not
/// parse is handed out as content, as written: nothing the model said is lost.
class AnswerParser {
 public:
  /// `in_reasoning`: the prompt already opened the reasoning block (it ends in "<think>\n").
  explicit AnswerParser(AnswerFormat format, bool in_reasoning = false);

  AnswerDelta Feed(std::string_view text);
  AnswerDelta Finish();  // no more text: what was withheld comes out

  [[nodiscard]] const Answer& answer() const { return answer_; }

 private:
  AnswerFormat format_;
  bool in_reasoning_;
  Answer answer_;
};

Answer ParseAnswer(AnswerFormat format, std::string_view text, bool in_reasoning = false);

/// True when a rendered prompt ends inside an opened reasoning block ("<think>" without its end).
bool PromptOpensReasoning(std::string_view prompt);

}  // namespace cmforge
