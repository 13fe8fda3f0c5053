// The state machine behind AnswerParser: marks, and what lies between them.
#include "text/chat_parse.h"

#include <algorithm>
#include <array>

#include "text/chat_calls.h"

namespace cmforge {
namespace {

constexpr size_t npos = std::string_view::npos;
constexpr std::string_view kBlanks = " \t\r\n";

// How many bytes at the end of `text` may be the beginning of `mark`.
size_t PartialAtEnd(std::string_view text, std::string_view mark) {
  for (size_t size = std::min(text.size(), mark.size() - 1); size > 0; --size) {
    if (mark.starts_with(text.substr(text.size() - size))) return size;
  }
  return 0;
}

}  // namespace

struct AnswerParser::Mark {
  enum class Kind : uint8_t { kReasoning, kCall, kDropped };
  std::string_view text;
  Kind kind = Kind::kDropped;
  std::string_view end = {};  // of reasoning
  CallSyntax syntax = CallSyntax::kTagged;
};

namespace {
// Harmony's message frame.
constexpr std::string_view kStartMark = "<|start|>";
constexpr std::string_view kChannelMark = "<|channel|>";
constexpr std::string_view kMessageMark = "<|message|>";
constexpr std::array<std::string_view, 4> kMessageEnds = {"<|end|>", "<|call|>", "<|return|>", kStartMark};
}  // namespace

std::span<const AnswerParser::Mark> AnswerParser::Marks(AnswerFormat format) {
  using Kind = Mark::Kind;
  static constexpr Mark kThink = {"<think>", Kind::kReasoning, "</think>"};
  static constexpr Mark kPlainMarks[] = {kThink};
  static constexpr Mark kTaggedMarks[] = {
      kThink,
      {"<tool_call>", Kind::kCall, {}, CallSyntax::kTagged},
      {"<seed:think>", Kind::kReasoning, "</seed:think>"},
      {"<seed:tool_call>", Kind::kCall, {}, CallSyntax::kSeedTagged},
  };
  static constexpr Mark kLlamaMarks[] = {
      kThink,
      {"<|python_tag|>", Kind::kCall, {}, CallSyntax::kLlamaPython},
      {"<function=", Kind::kCall, {}, CallSyntax::kFunctionTag},
      {"<|eom_id|>"},
  };
  static constexpr Mark kGemmaMarks[] = {
      kThink,
      {"<|channel>thought", Kind::kReasoning, "<channel|>"},
      {"<|tool_call>", Kind::kCall, {}, CallSyntax::kGemma},
      {"<|tool_response>"},
  };
  static constexpr Mark kMistralMarks[] = {
      kThink,
      {"[THINK]", Kind::kReasoning, "[/THINK]"},
      {"[TOOL_CALLS]", Kind::kCall, {}, CallSyntax::kMistral},
  };
  static constexpr Mark kDeepSeekMarks[] = {
      kThink,
      {"<｜tool▁calls▁begin｜>"},
      {"<｜tool▁call▁begin｜>", Kind::kCall, {}, CallSyntax::kDeepSeek},
      {"<｜tool▁calls▁end｜>"},
      {"<｜DSML｜function_calls>", Kind::kCall, {}, CallSyntax::kDeepSeekDsml},
  };
  switch (format) {
    case AnswerFormat::kPlain:
    case AnswerFormat::kGptOss:
      return kPlainMarks;
    case AnswerFormat::kHermes:
    case AnswerFormat::kQwenXml:
      return kTaggedMarks;
    case AnswerFormat::kLlama3:
      return kLlamaMarks;
    case AnswerFormat::kGemma:
      return kGemmaMarks;
    case AnswerFormat::kMistral:
      return kMistralMarks;
    case AnswerFormat::kDeepSeek:
      return kDeepSeekMarks;
  }
  return kPlainMarks;
}

AnswerParser::AnswerParser(AnswerFormat format, bool in_reasoning, Json tools)
    : format_(format), tools_(std::move(tools)) {
  if (format == AnswerFormat::kLlama3) state_ = State::kStart;
  if (in_reasoning) {
    state_ = State::kReasoning;
    skips_blanks_[static_cast<size_t>(Channel::kReasoning)] = true;
  }
}

AnswerDelta AnswerParser::Take() { return std::exchange(delta_, {}); }

AnswerDelta AnswerParser::Feed(std::string_view text) {
  pending_ += text;
  Process(false);
  return Take();
}

AnswerDelta AnswerParser::Finish() {
  Process(true);
  return Take();
}

void AnswerParser::Process(bool is_end) {
  while (Step(is_end)) {
  }
}

bool AnswerParser::Step(bool is_end) {
  switch (state_) {
    case State::kStart:
      return StepStart(is_end);
    case State::kText:
      return StepText(is_end);
    case State::kReasoning:
      return StepReasoning(is_end);
    case State::kCall:
      return StepCall(is_end);
    case State::kHeader:
      return StepHeader(is_end);
    case State::kMessage:
      return StepMessage(is_end);
  }
  return false;
}

// White space at the end of what is shown waits: it is dropped when a mark follows.
void AnswerParser::Show(Channel channel, std::string_view text) {
  const auto c = static_cast<size_t>(channel);
  if (skips_blanks_[c]) {
    text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
    if (text.empty()) return;
    skips_blanks_[c] = false;
    if (channel == Channel::kReasoning && !answer_.reasoning.empty()) blanks_[c] = "\n";  // a further block
  }
  const size_t end = text.find_last_not_of(kBlanks) + 1;  // npos + 1 is 0
  if (end > 0) {
    const std::string shown = std::exchange(blanks_[c], {}) + std::string(text.substr(0, end));
    (channel == Channel::kContent ? delta_.content : delta_.reasoning) += shown;
    (channel == Channel::kContent ? answer_.content : answer_.reasoning) += shown;
  }
  blanks_[c] += text.substr(end);
}

void AnswerParser::DropBlanks(Channel channel) {
  blanks_[static_cast<size_t>(channel)].clear();
  skips_blanks_[static_cast<size_t>(channel)] = true;
}

// Llama's calls are the whole answer: it begins with a brace or it is text.
bool AnswerParser::StepStart(bool is_end) {
  static constexpr Mark kBare = {"", Mark::Kind::kCall, {}, CallSyntax::kLlamaJson};
  const size_t first = pending_.find_first_not_of(kBlanks);
  if (first == npos && !is_end) return false;
  if (first != npos && pending_[first] == '{') {
    open_ = &kBare;
    scanned_ = 0;
    state_ = State::kCall;
  } else {
    state_ = State::kText;
  }
  return true;
}

bool AnswerParser::StepText(bool is_end) {
  const std::string_view text = pending_;
  size_t at = npos;
  const Mark* found = nullptr;
  size_t withheld = 0;
  const auto look = [&](std::string_view mark) {
    const size_t where = text.find(mark);
    if (where == npos) withheld = std::max(withheld, PartialAtEnd(text, mark));
    return where;
  };
  for (const Mark& mark : Marks(format_)) {
    const size_t where = look(mark.text);
    if (where < at) {
      at = where;
      found = &mark;
    }
  }
  bool is_header = false;
  if (format_ == AnswerFormat::kGptOss) {
    for (const std::string_view mark : {kStartMark, kChannelMark}) {
      const size_t where = look(mark);
      if (where >= at) continue;
      at = where;
      is_header = true;
    }
  }
  if (at == npos) {
    const size_t shown = text.size() - (is_end ? 0 : withheld);
    Show(Channel::kContent, text.substr(0, shown));
    pending_.erase(0, shown);
    if (is_end) {  // blanks at the very end were said, too
      delta_.content += blanks_[0];
      answer_.content += std::exchange(blanks_[0], {});
    }
    return false;
  }
  Show(Channel::kContent, text.substr(0, at));
  if (is_header) {
    DropBlanks(Channel::kContent);
    pending_.erase(0, at);
    state_ = State::kHeader;
    return true;
  }
  pending_.erase(0, at + found->text.size());
  Open(*found);
  return true;
}

void AnswerParser::Open(const Mark& mark) {
  open_ = &mark;
  scanned_ = 0;
  switch (mark.kind) {
    case Mark::Kind::kReasoning:
      DropBlanks(Channel::kContent);
      DropBlanks(Channel::kReasoning);
      state_ = State::kReasoning;
      return;
    case Mark::Kind::kCall:
      state_ = State::kCall;  // blanks before a call are dropped once it is one
      return;
    case Mark::Kind::kDropped:
      DropBlanks(Channel::kContent);
      state_ = State::kText;
      return;
  }
}

bool AnswerParser::StepReasoning(bool is_end) {
  const std::string_view text = pending_;
  size_t at = npos;
  size_t mark_size = 0;
  size_t withheld = 0;
  for (const Mark& mark : Marks(format_)) {
    // Opened by the prompt, the block may be of any kind the format has.
    if (mark.kind != Mark::Kind::kReasoning || (open_ != nullptr && open_ != &mark)) continue;
    const size_t where = text.find(mark.end);
    if (where == npos) withheld = std::max(withheld, PartialAtEnd(text, mark.end));
    if (where >= at) continue;
    at = where;
    mark_size = mark.end.size();
  }
  const size_t shown = at != npos ? at : text.size() - (is_end ? 0 : withheld);
  Show(Channel::kReasoning, text.substr(0, shown));
  pending_.erase(0, shown + mark_size);
  if (at == npos) return false;
  DropBlanks(Channel::kReasoning);
  DropBlanks(Channel::kContent);
  state_ = format_ == AnswerFormat::kLlama3 ? State::kStart : State::kText;
  return true;
}

bool AnswerParser::StepCall(bool is_end) {
  // Every spelling ends in one of these: without a new one there is nothing to look at again.
  if (!is_end && pending_.find_first_of("}>])", scanned_) == npos) {
    scanned_ = pending_.size();
    return false;
  }
  scanned_ = pending_.size();
  CallScan scan = ScanCall(open_->syntax, pending_, is_end, tools_);
  if (scan.state == CallScan::State::kNeedsMore) return false;
  state_ = State::kText;
  if (scan.state == CallScan::State::kBad) {
    skips_blanks_[0] = false;
    Show(Channel::kContent, std::string(open_->text) + pending_.substr(0, scan.size));
    pending_.erase(0, scan.size);
    return true;
  }
  DropBlanks(Channel::kContent);
  for (ToolCall& call : scan.calls) {
    delta_.tool_calls.push_back(call);
    answer_.tool_calls.push_back(std::move(call));
  }
  pending_.erase(0, scan.size);
  return true;
}

// <|start|>assistant to=functions.NAME<|channel|>commentary json<|message|>: any part but the last may be
// missing.
bool AnswerParser::StepHeader(bool is_end) {
  const size_t at = pending_.find(kMessageMark);
  if (at == npos) {
    if (is_end) pending_.clear();  // a frame without a message says nothing
    return false;
  }
  const std::string header = pending_.substr(0, at);
  pending_.erase(0, at + kMessageMark.size());
  recipient_.clear();
  if (const size_t to = header.find("to="); to != npos) {
    const size_t end = header.find_first_of(" <\t\n", to);
    recipient_ = header.substr(to + 3, end == npos ? npos : end - to - 3);
  }
  std::string channel;
  if (const size_t mark = header.find(kChannelMark); mark != npos) {
    const size_t begin = mark + kChannelMark.size();
    const size_t end = header.find_first_of(" <\t\n", begin);
    channel = header.substr(begin, end == npos ? npos : end - begin);
  }
  if (!recipient_.empty()) {
    channel_ = Channel::kCall;
  } else if (channel == "analysis") {
    channel_ = Channel::kReasoning;
    DropBlanks(Channel::kReasoning);
  } else {
    channel_ = Channel::kContent;
    DropBlanks(Channel::kContent);
    if (!answer_.content.empty()) {  // a preamble before the answer proper
      skips_blanks_[0] = false;
      blanks_[0] = "\n";
    }
  }
  body_.clear();
  state_ = State::kMessage;
  return true;
}

bool AnswerParser::StepMessage(bool is_end) {
  const std::string_view text = pending_;
  size_t at = npos;
  size_t mark_size = 0;
  size_t withheld = 0;
  for (const std::string_view mark : kMessageEnds) {
    const size_t where = text.find(mark);
    if (where == npos) withheld = std::max(withheld, PartialAtEnd(text, mark));
    if (where >= at) continue;
    at = where;
    mark_size = mark == kStartMark ? 0 : mark.size();  // the next header begins there
  }
  const size_t shown = at != npos ? at : text.size() - (is_end ? 0 : withheld);
  if (channel_ == Channel::kCall) {
    body_ += text.substr(0, shown);
  } else {
    Show(channel_, text.substr(0, shown));
  }
  pending_.erase(0, shown + mark_size);
  if (at == npos && !is_end) return false;
  EndMessage();
  return at != npos;
}

void AnswerParser::EndMessage() {
  state_ = State::kText;
  DropBlanks(Channel::kReasoning);
  if (channel_ == Channel::kCall) {
    const Result<Json> arguments = ParseJson(body_, "arguments");
    if (arguments && arguments->is_object()) {
      std::string name = recipient_;
      if (name.starts_with("functions.")) name.erase(0, std::string_view("functions.").size());
      const size_t first = body_.find_first_not_of(kBlanks);
      ToolCall call{"", name, body_.substr(first, body_.find_last_not_of(kBlanks) + 1 - first)};
      delta_.tool_calls.push_back(call);
      answer_.tool_calls.push_back(std::move(call));
    } else {
      skips_blanks_[0] = false;
      Show(Channel::kContent, body_);
    }
    body_.clear();
  }
  DropBlanks(Channel::kContent);
}

Answer ParseAnswer(AnswerFormat format, std::string_view text, bool in_reasoning, const Json& tools) {
  AnswerParser parser(format, in_reasoning, tools);
  parser.Feed(text);
  parser.Finish();
  return parser.answer();
}

AnswerFormat DetectAnswerFormat(std::string_view source) {
  const auto has = [source](std::string_view mark) { return source.find(mark) != npos; };
  if (has("<|channel|>") && has("<|message|>")) return AnswerFormat::kGptOss;
  if (has("<|tool_call>") || has("<|channel>")) return AnswerFormat::kGemma;
  if (has("tool▁call▁begin") || has("DSML｜")) return AnswerFormat::kDeepSeek;
  if (has("[TOOL_CALLS]") || has("[THINK]")) return AnswerFormat::kMistral;
  const bool is_tagged = has("<tool_call>") || has("<seed:tool_call>") || has("tool_call>");
  if (is_tagged && (has("<function=") || has("<arg_key>"))) return AnswerFormat::kQwenXml;
  if (is_tagged) return AnswerFormat::kHermes;
  if (has("<|python_tag|>") || has("<|start_header_id|>") || has("<function=")) return AnswerFormat::kLlama3;
  return AnswerFormat::kPlain;
}

std::string_view AnswerFormatName(AnswerFormat format) {
  switch (format) {
    case AnswerFormat::kPlain:
      return "plain";
    case AnswerFormat::kHermes:
      return "hermes";
    case AnswerFormat::kQwenXml:
      return "qwen-xml";
    case AnswerFormat::kLlama3:
      return "llama3";
    case AnswerFormat::kGemma:
      return "gemma";
    case AnswerFormat::kMistral:
      return "mistral";
    case AnswerFormat::kDeepSeek:
      return "deepseek";
    case AnswerFormat::kGptOss:
      return "gpt-oss";
  }
  return "plain";
}

bool PromptOpensReasoning(std::string_view prompt) {
  struct Pair {
    std::string_view open, close;
  };
  static constexpr Pair kPairs[] = {{"<think>", "</think>"},
                                    {"[THINK]", "[/THINK]"},
                                    {"<seed:think>", "</seed:think>"},
                                    {"<|channel>thought", "<channel|>"}};
  // Only at the very end, so that an opening typed by a user long before does not count.
  const std::string_view trimmed = prompt.substr(0, prompt.find_last_not_of(kBlanks) + 1);
  return std::any_of(std::begin(kPairs), std::end(kPairs),
                     [&](const Pair& p) { return trimmed.ends_with(p.open); });
}

}  // namespace cmforge
