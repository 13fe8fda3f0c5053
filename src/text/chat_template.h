// From a conversation to the prompt a model expects: which template a model brings, rendering it as
// Hugging Face does, ChatML for models without one. CMF v2 section 6.1.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/jinja/template.h"

namespace cmforge {

/// The template text of a model: what stands in CMF's header.tokenizer_config.chat_template.
struct ChatTemplateText {
  std::string source;
  std::string
      origin;  // "chat_template.jinja", "tokenizer_config.json: chat_template 'tool_use'", for messages
};

/// Picks as transformers does: chat_template.jinja if there is one, else `chat_template` of
/// tokenizer_config.json, a string or a list [{"name","template"}]. From a list: `name` if given, else
/// "tool_use" when `with_tools` and present, else "default".
/// `jinja_file` nullopt or `tokenizer_config` null: no such file. Returns nothing when the model brings no
/// template. Fails: kNotFound (`name` is not in the list, or a list without "default"), kCorrupt (another
/// JSON type).
Result<std::optional<ChatTemplateText>> ChooseChatTemplate(std::optional<std::string_view> jinja_file,
                                                           const Json& tokenizer_config,
                                                           bool with_tools = false,
                                                           std::string_view name = {});

/// Name and text of the special tokens a template may use ("bos_token" -> "<s>"), from the *_token keys
/// of tokenizer_config.json (strings, or objects with "content") and special_tokens_map.json, if any.
std::vector<std::pair<std::string, std::string>> SpecialTokenVariables(
    const Json& tokenizer_config, const Json& special_tokens_map = nullptr);

/// One conversation as the API of chat servers has it. Key order inside is kept and visible to the template.
struct ChatRequest {
  Json messages =
      Json::array();  // [{"role","content": string | parts | null, "tool_calls", "reasoning_content", ...}]
  Json tools = nullptr;  // null: none
  Json documents = nullptr;
  bool add_generation_prompt = true;
  Json variables = Json::object();  // further ones: "enable_thinking", ...; they win over special tokens
  std::optional<jinja::LocalTime> now;
};

/// A request from `{"messages":…, "tools":…, "add_generation_prompt":…, …}` or a bare list of messages.
/// Fails: kUsage when there are no messages or a known key has the wrong type.
Result<ChatRequest> ParseChatRequest(const Json& json);

/// A piece of a prompt. Content came from a user or a tool: tokenize it as plain text, so that
/// "<|im_end|>" typed by a user stays eleven letters. The other pieces are the template's own, where
/// special tokens are meant.
struct ChatSegment {
  std::string text;
  bool is_content = false;
};

class ChatTemplate {
 public:
  using Tokens = std::vector<std::pair<std::string, std::string>>;

  /// Fails: kCorrupt with the line (template syntax).
  static Result<ChatTemplate> Parse(const ChatTemplateText& text, Tokens special_tokens = {});
  /// <|im_start|>ROLE\nCONTENT<|im_end|>\n per message, then <|im_start|>assistant\n. For models without a
  /// template.
  static ChatTemplate ChatMl();

  /// The prompt. A template that fails is an error with its line (jinja/template.h), never another template.
  [[nodiscard]] Result<std::string> Render(const ChatRequest& request) const;

  /// The same prompt in pieces: joined they are what Render gives, to the byte. What counts as content: every
  /// string below "content" of messages with role "user" or "tool" (any part, any depth); its characters are
  /// followed through the template's filters (jinja::Rendering), so a tag the template adds is never content
  /// and a tag the user typed always is.
  [[nodiscard]] Result<std::vector<ChatSegment>> RenderSegments(const ChatRequest& request) const;

  [[nodiscard]] const std::string& source() const { return source_; }
  /// Where the template comes from, for messages: what the template itself raises does not name it.
  [[nodiscard]] const std::string& origin() const { return origin_; }
  [[nodiscard]] bool is_fallback() const { return is_fallback_; }

 private:
  ChatTemplate(jinja::Template parsed, ChatTemplateText text, Tokens tokens)
      : parsed_(std::move(parsed)),
        source_(std::move(text.source)),
        origin_(std::move(text.origin)),
        tokens_(std::move(tokens)) {}
  [[nodiscard]] Json Context(const ChatRequest& request) const;

  jinja::Template parsed_;
  std::string source_, origin_;
  Tokens tokens_;
  bool is_fallback_ = false;
};

}  // namespace cmforge
