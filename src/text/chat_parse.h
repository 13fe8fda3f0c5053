// From a model's answer back to fields: reasoning, tool calls and the text for the user, for the common
// families, whole or as it streams in.
#pragma once

#include <cstdint>
#include <span>
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

  bool operator==(const ToolCall&) const = default;
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
/// without the stop token). Text that may be the beginning of a mark is withheld until it is decided, and so
/// are blanks, which are dropped beside a mark. Joined deltas are what ParseAnswer gives for the whole text,
/// wherever it was cut. A tool call that does not parse is handed out as content, as written: nothing the
/// model said is lost. A call that the end of the answer cuts short counts if all but its closing mark is
/// there.
class AnswerParser {
 public:
  /// `in_reasoning`: the prompt already opened the reasoning block (it ends in "<think>\n").
  /// `tools`: the tools of the request, if known; where a format writes arguments without quotes, their
  /// schemas tell a string from a number (without them, what reads as JSON is JSON).
  explicit AnswerParser(AnswerFormat format, bool in_reasoning = false, Json tools = nullptr);

  AnswerDelta Feed(std::string_view text);
  AnswerDelta Finish();  // no more text: what was withheld comes out

  [[nodiscard]] const Answer& answer() const { return answer_; }

 private:
  enum class State : uint8_t { kStart, kText, kReasoning, kCall, kHeader, kMessage };
  enum class Channel : uint8_t { kContent, kReasoning, kCall };
  struct Mark;

  static std::span<const Mark> Marks(AnswerFormat format);
  AnswerDelta Take();
  void Process(bool is_end);
  bool Step(bool is_end);  // false: nothing more to do with what is pending
  bool StepStart(bool is_end);
  bool StepText(bool is_end);
  bool StepReasoning(bool is_end);
  bool StepCall(bool is_end);
  bool StepHeader(bool is_end);
  bool StepMessage(bool is_end);
  void Open(const Mark& mark);
  void EndMessage();
  void Show(Channel channel, std::string_view text);
  void DropBlanks(Channel channel);

  AnswerFormat format_;
  Json tools_;
  State state_ = State::kText;
  std::string pending_;         // not decided yet
  size_t scanned_ = 0;          // of it, looked at in vain for the end of a call
  const Mark* open_ = nullptr;  // of the current call or reasoning; null: the prompt opened it
  std::string blanks_[2];       // withheld white space, by channel
  bool skips_blanks_[2] = {false, false};
  Channel channel_ = Channel::kContent;  // of a harmony message
  std::string recipient_;
  std::string body_;  // of a harmony call
  AnswerDelta delta_;
  Answer answer_;
};

Answer ParseAnswer(AnswerFormat format, std::string_view text, bool in_reasoning = false,
                   const Json& tools = nullptr);

/// True when a rendered prompt ends inside an opened reasoning block ("<think>" without its end).
bool PromptOpensReasoning(std::string_view prompt);

}  // namespace cmforge
