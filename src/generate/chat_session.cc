// Chat turns.
#include "generate/chat_session.h"

#include <algorithm>

#include "generate/stop_text.h"

namespace cmforge {
namespace {

std::string Join(const std::vector<ChatSegment>& segments) {
  std::string text;
  for (const ChatSegment& segment : segments) text += segment.text;
  return text;
}

bool SpellsAddedToken(const Tokenizer& tokenizer, std::string_view text) {
  const auto added = tokenizer.added_tokens();
  return std::any_of(added.begin(), added.end(),
                     [&](const AddedToken& t) { return t.special && text.find(t.content) != text.npos; });
}

}  // namespace

Result<std::vector<TokenId>> EncodeChat(const Tokenizer& tokenizer,
                                        const std::vector<ChatSegment>& segments) {
  const bool is_plain = std::none_of(segments.begin(), segments.end(), [&](const ChatSegment& s) {
    return s.is_content && SpellsAddedToken(tokenizer, s.text);
  });
  // The whole text at once is what the reference library does, and pieces could tokenize differently at their
  // seams.
  if (is_plain) return tokenizer.Encode(Join(segments), {.add_special = false});

  // Cut at the template's own special tokens; what lies between is plain text, whoever wrote it.
  std::vector<TokenId> ids;
  std::string pending;
  const auto flush = [&]() -> Result<void> {
    if (pending.empty()) return {};
    CMF_TRY(const auto piece,
            tokenizer.Encode(pending, {.add_special = false, .allow_special_in_text = false}));
    ids.insert(ids.end(), piece.begin(), piece.end());
    pending.clear();
    return {};
  };
  for (const ChatSegment& segment : segments) {
    if (segment.is_content) {
      pending += segment.text;
      continue;
    }
    for (size_t at = 0; at < segment.text.size();) {
      const AddedToken* longest = nullptr;
      for (const AddedToken& token : tokenizer.added_tokens()) {
        if (token.special && std::string_view(segment.text).substr(at).starts_with(token.content) &&
            (!longest || token.content.size() > longest->content.size())) {
          longest = &token;
        }
      }
      if (!longest) {
        pending += segment.text[at++];
        continue;
      }
      CMF_CHECK(flush());
      ids.push_back(longest->id);
      at += longest->content.size();
    }
  }
  CMF_CHECK(flush());
  return ids;
}

ChatSession::ChatSession(std::shared_ptr<const LanguageModel> model,
                         std::shared_ptr<const Tokenizer> tokenizer, ChatTemplate chat, ChatOptions options)
    : model_(std::move(model)),
      tokenizer_(std::move(tokenizer)),
      chat_(std::move(chat)),
      format_(DetectAnswerFormat(chat_.source())),
      options_(std::move(options)) {}

int64_t ChatSession::context_length() const {
  if (sequence_) return sequence_->context_length();
  return options_.sequence.context_length > 0 ? options_.sequence.context_length
                                              : model_->config().max_position_embeddings;
}

void ChatSession::SetSystem(const std::string& text) {
  const bool has = !messages_.empty() && messages_[0]["role"] == "system";
  if (has) messages_.erase(0);
  if (!text.empty()) messages_.insert(messages_.begin(), Json{{"role", "system"}, {"content", text}});
  is_read_ = messages_.empty();
}

void ChatSession::Reset() {
  Json kept = Json::array();
  if (!messages_.empty() && messages_[0]["role"] == "system") kept.push_back(messages_[0]);
  messages_ = std::move(kept);
  is_read_ = messages_.empty();
}

Result<void> ChatSession::SetMessages(const Json& messages) {
  CMF_TRY(ChatRequest request, ParseChatRequest(messages));
  for (size_t i = 0; i < request.messages.size(); ++i) {
    const Json& message = request.messages[i];
    if (message.is_object() && message.contains("role") && message["role"].is_string()) continue;
    return Fail(ErrorKind::kUsage,
                fmt::format("messages: entry {} has no role: write {{\"role\": ..., \"content\": ...}}", i));
  }
  messages_ = std::move(request.messages);
  is_read_ = messages_.empty();
  return {};
}

void ChatSession::Switch(std::shared_ptr<const LanguageModel> model, const ActiveSet* active) {
  sequence_.reset();
  consumed_.clear();
  is_read_ = messages_.empty();
  model_ = std::move(model);
  options_.generate.active = active;
}

// Brings the sequence to a state that is a prefix of `tokens`, keeping as much as it can; returns its length.
// At least one token is left to feed, since it gives the logits.
Result<int64_t> ChatSession::Align(const std::vector<TokenId>& tokens) {
  const auto common = std::mismatch(consumed_.begin(), consumed_.end(), tokens.begin(), tokens.end()).first -
                      consumed_.begin();
  const int64_t keep = std::min<int64_t>(common, static_cast<int64_t>(tokens.size()) - 1);
  if (sequence_ && keep > 0 && (keep == sequence_->position() || sequence_->Rewind(keep))) {
    consumed_.resize(static_cast<size_t>(keep));
    return keep;
  }
  consumed_.clear();
  CMF_TRY(sequence_, model_->NewSequence(options_.sequence));
  return 0;
}

Result<ChatTurn> ChatSession::Ask(const std::string& text, const ChatSink& sink, const RunControl& control) {
  messages_.push_back({{"role", "user"}, {"content", text}});
  auto turn = Answer(sink, control);
  if (!turn) messages_.erase(messages_.size() - 1);
  return turn;
}

Result<ChatTurn> ChatSession::Answer(const ChatSink& sink, const RunControl& control) {
  ChatRequest request;
  request.messages = messages_;
  request.tools = options_.tools;
  request.variables = options_.variables;
  CMF_TRY(const std::vector<ChatSegment> segments, chat_.RenderSegments(request));
  const std::string prompt = Join(segments);

  // The answer of the last turn keeps the ids it was generated with, if the template shows it unchanged.
  std::vector<TokenId> ids;
  std::vector<ChatSegment> rest = segments;
  if (!last_text_.empty() && prompt.starts_with(last_text_)) {
    ids = last_ids_;
    size_t drop = last_text_.size();
    while (drop > 0) {
      const size_t n = std::min(drop, rest.front().text.size());
      rest.front().text.erase(0, n);
      drop -= n;
      if (rest.front().text.empty()) rest.erase(rest.begin());
    }
  }
  CMF_TRY(const std::vector<TokenId> tail, EncodeChat(*tokenizer_, rest));
  ids.insert(ids.end(), tail.begin(), tail.end());
  if (ids.empty()) return Fail(ErrorKind::kUsage, "chat: the template rendered nothing: give a message");

  CMF_TRY(const int64_t reused, Align(ids));
  const std::vector<TokenId> fed(ids.begin() + reused, ids.end());
  const std::vector<TokenId> history(ids.begin(), ids.begin() + reused);

  ChatTurn turn;
  turn.prompt_tokens = static_cast<int64_t>(ids.size());
  turn.reused_tokens = reused;
  AnswerParser parser(format_, PromptOpensReasoning(prompt));
  StopTextFilter stops(options_.stop_texts);
  const auto stream = tokenizer_->NewStream(false);  // the parser needs the marks
  std::string raw;
  const auto show = [&](const AnswerDelta& delta) {
    if (!delta.reasoning.empty() && sink.reasoning) sink.reasoning(delta.reasoning);
    if (!delta.content.empty() && sink.content) sink.content(delta.content);
  };
  const auto on_token = [&](const TokenEvent& event) {
    const std::string text = stream->Push(event.id);
    raw += text;
    show(parser.Feed(stops.Push(text)));
    return !stops.stopped();
  };
  auto generated = Generate(*model_, *sequence_, fed, options_.generate, on_token, control, history);
  if (!generated) {
    sequence_.reset();
    consumed_.clear();
    return Fail(std::move(generated).error());
  }
  const std::string end = stream->Finish();
  raw += end;
  show(parser.Feed(stops.Push(end)));
  show(parser.Feed(stops.Finish()));
  show(parser.Finish());

  // All but the last new token has been fed; nothing of an unfinished prompt counts.
  consumed_ = ids;
  consumed_.insert(consumed_.end(), generated->tokens.begin(), generated->tokens.end());
  consumed_.resize(
      static_cast<size_t>(std::min<int64_t>(sequence_->position(), static_cast<int64_t>(consumed_.size()))));
  last_text_ = prompt + raw;
  last_ids_ = ids;
  last_ids_.insert(last_ids_.end(), generated->tokens.begin(), generated->tokens.end());

  turn.answer = parser.answer();
  turn.finish = generated->finish;
  turn.context_is_full = generated->context_is_full;
  turn.answer_tokens = static_cast<int64_t>(generated->tokens.size());
  turn.tokens = std::move(generated->tokens);
  turn.prompt_seconds = generated->prompt_seconds;
  turn.decode_seconds = generated->decode_seconds;

  Json message = {{"role", "assistant"}, {"content", turn.answer.content}};
  if (!turn.answer.reasoning.empty()) message["reasoning_content"] = turn.answer.reasoning;
  if (!turn.answer.tool_calls.empty()) {
    message["tool_calls"] = Json::array();
    for (const ToolCall& call : turn.answer.tool_calls) {
      const auto arguments = ParseJson(call.arguments, "arguments");
      message["tool_calls"].push_back(
          {{"type", "function"},
           {"function",
            {{"name", call.name}, {"arguments", arguments ? *arguments : Json(call.arguments)}}}});
      if (!call.id.empty()) message["tool_calls"].back()["id"] = call.id;
    }
  }
  messages_.push_back(std::move(message));
  is_read_ = true;
  return turn;
}

}  // namespace cmforge
