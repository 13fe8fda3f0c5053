// A conversation with a model: messages become a prompt through the chat template, the answer is parsed back,
// and what the sequence has already consumed is reused from turn to turn.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "generate/generator.h"
#include "text/chat_parse.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace cmforge {

/// Token ids of a rendered conversation. Where a message spells out a special token, that stays plain text;
/// the template's own special tokens are tokens. Nothing is added around: templates write their own begin
/// token.
Result<std::vector<TokenId>> EncodeChat(const Tokenizer& tokenizer, const std::vector<ChatSegment>& segments);

struct ChatOptions {
  GenerateOptions generate;
  SequenceOptions sequence;
  Json tools = nullptr;
  Json variables = Json::object();  // enable_thinking and the like
  std::vector<std::string> stop_texts;
};

/// What a turn shows as it comes.
struct ChatSink {
  std::function<void(std::string_view)> content, reasoning;
};

struct ChatTurn {
  Answer answer;
  FinishReason finish = FinishReason::kStop;
  bool context_is_full = false;
  int64_t prompt_tokens = 0;  // of the whole conversation
  int64_t reused_tokens = 0;  // of those, already in the sequence
  int64_t answer_tokens = 0;
  std::vector<TokenId> tokens;  // of the answer
  double prompt_seconds = 0, decode_seconds = 0;
};

class ChatSession {
 public:
  ChatSession(std::shared_ptr<const LanguageModel> model, std::shared_ptr<const Tokenizer> tokenizer,
              ChatTemplate chat, ChatOptions options);

  ChatOptions& options() { return options_; }
  [[nodiscard]] const Json& messages() const { return messages_; }
  /// Where the template comes from, for messages.
  [[nodiscard]] const std::string& template_origin() const { return chat_.origin(); }
  /// Whether the sequence holds the messages as they stand; what was loaded or changed since is read with the next
  /// turn.
  [[nodiscard]] bool is_read() const { return is_read_; }
  /// Tokens in use; 0 for messages that are not read yet.
  [[nodiscard]] int64_t position() const {
    return sequence_ && is_read_ && !messages_.empty() ? sequence_->position() : 0;
  }
  [[nodiscard]] int64_t context_length() const;

  /// The system message of the conversation; empty takes it away. Earlier turns stay.
  void SetSystem(const std::string& text);
  /// Forgets all turns; the system message stays.
  void Reset();
  /// Takes over a whole conversation. Fails: as ParseChatRequest; kUsage also for a message without a role.
  Result<void> SetMessages(const Json& messages);

  /// Goes on with other weights, or under another task mask (null: none), which must outlive their use. What the
  /// sequence has consumed is read anew with the next turn.
  void Switch(std::shared_ptr<const LanguageModel> model, const ActiveSet* active);

  /// Adds a user message and generates the answer. An interrupted answer is kept as far as it came; when the
  /// turn fails, the conversation is as before.
  Result<ChatTurn> Ask(const std::string& text, const ChatSink& sink, const RunControl& control);

  /// Generates an answer to the messages as they stand.
  Result<ChatTurn> Answer(const ChatSink& sink, const RunControl& control);

 private:
  Result<int64_t> Align(const std::vector<TokenId>& tokens);

  std::shared_ptr<const LanguageModel> model_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  ChatTemplate chat_;
  AnswerFormat format_;
  ChatOptions options_;
  Json messages_ = Json::array();
  bool is_read_ = true;
  std::unique_ptr<Sequence> sequence_;
  std::vector<TokenId> consumed_;  // what sequence_ has seen
  std::string last_text_;          // prompt and answer of the last turn, as text ...
  std::vector<TokenId> last_ids_;  // ... and as ids, so that an answer is not tokenized anew
};

}  // namespace cmforge
