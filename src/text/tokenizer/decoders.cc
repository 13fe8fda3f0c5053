// The decoders. Each is written for tokens that come one by one; what an end of the sequence would change is
// held back (Finish), so that streaming and decoding at once are the same code.
#include "text/tokenizer/decoders.h"

#include <optional>

#include "base/bytes.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/component.h"
#include "text/tokenizer/metaspace.h"
#include "text/tokenizer/utf8.h"

namespace cmforge {

namespace {

using Tokens = DecoderState::Tokens;

constexpr size_t kMaxSteps = 64;

/// All occurrences, from left to right; an empty `what` occurs around every character.
std::string ReplaceAll(std::string_view text, std::string_view what, std::string_view with) {
  std::string out;
  if (what.empty()) {
    for (size_t at = 0; at < text.size(); at += static_cast<size_t>(utf8::LengthOf(text[at]))) {
      out += with;
      out += text.substr(at, static_cast<size_t>(utf8::LengthOf(text[at])));
    }
    return out += with;
  }
  size_t done = 0;
  for (size_t at = text.find(what); at != std::string_view::npos; at = text.find(what, done)) {
    out += text.substr(done, at - done);
    out += with;
    done = at + what.size();
  }
  out += text.substr(done);
  return out;
}

template <class Self>
class Cloneable : public DecoderState {
 public:
  [[nodiscard]] std::unique_ptr<DecoderState> Clone() const override {
    return std::make_unique<Self>(static_cast<const Self&>(*this));
  }
};

// No decoder: tokens with a blank between.
class JoinWithBlanks : public Cloneable<JoinWithBlanks> {
 public:
  void Push(std::string token, Tokens& out) override {
    if (!is_first_) token.insert(token.begin(), ' ');
    is_first_ = false;
    out.push_back(std::move(token));
  }

 private:
  bool is_first_ = true;
};

// Bytes of all tokens, put together, then read as UTF-8: a character may span tokens.
class ByteLevelDecoder : public Cloneable<ByteLevelDecoder> {
 public:
  void Push(std::string token, Tokens& out) override {
    std::string bytes, text;
    reader_.Push(byte_level::AppendBytes(token, bytes) ? bytes : token, text);
    if (!text.empty()) out.push_back(std::move(text));
  }
  void Finish(Tokens& out) const override {
    if (reader_.is_unfinished()) out.emplace_back(utf8::kReplacement);
  }

 private:
  utf8::LossyReader reader_;
};

// A run of <0xNN> tokens is text if it is UTF-8 as a whole; if not, each of its bytes becomes U+FFFD.
class ByteFallback : public Cloneable<ByteFallback> {
 public:
  void Push(std::string token, Tokens& out) override {
    if (const auto byte = ByteOf(token)) {
      run_.push_back(static_cast<char>(*byte));
      return;
    }
    Finish(out);
    run_.clear();
    out.push_back(std::move(token));
  }
  void Finish(Tokens& out) const override {
    if (run_.empty()) return;
    if (IsUtf8(run_)) {
      out.push_back(run_);
    } else {
      for (size_t i = 0; i < run_.size(); ++i) out.emplace_back(utf8::kReplacement);
    }
  }

 private:
  static std::optional<uint8_t> ByteOf(std::string_view token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
    const auto digit = [](char c) {
      return c >= '0' && c <= '9'   ? c - '0'
             : c >= 'A' && c <= 'F' ? c - 'A' + 10
             : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                    : -1;
    };
    // The reference reads numbers with a sign: <0x+F> is byte 15.
    const int high = token[3] == '+' ? 0 : digit(token[3]);
    const int low = digit(token[4]);
    if (high < 0 || low < 0) return std::nullopt;
    return static_cast<uint8_t>(high << 4 | low);
  }

  std::string run_;
};

class MetaspaceDecoder : public Cloneable<MetaspaceDecoder> {
 public:
  explicit MetaspaceDecoder(const MetaspaceOptions& options)
      : replacement_(options.replacement), drops_(options.prepend != PrependScheme::kNever) {}

  void Push(std::string token, Tokens& out) override {
    out.push_back(ReplaceAll(token, replacement_, drops_ ? "" : " "));
    drops_ = false;  // only in the first token
  }

 private:
  std::string replacement_;
  bool drops_;
};

void CleanUp(std::string& text) {
  constexpr std::pair<std::string_view, std::string_view> kReplacements[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},    {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
  };
  for (const auto& [what, with] : kReplacements) {
    if (text.find(what) != std::string::npos) text = ReplaceAll(text, what, with);
  }
}

class WordPieceDecoder : public Cloneable<WordPieceDecoder> {
 public:
  WordPieceDecoder(std::string prefix, bool cleanup) : prefix_(std::move(prefix)), cleanup_(cleanup) {}

  void Push(std::string token, Tokens& out) override {
    if (!is_first_) {
      if (token.starts_with(prefix_)) {
        token.erase(0, prefix_.size());
      } else {
        token.insert(token.begin(), ' ');
      }
    }
    is_first_ = false;
    if (cleanup_) CleanUp(token);
    out.push_back(std::move(token));
  }

 private:
  std::string prefix_;
  bool cleanup_;
  bool is_first_ = true;
};

// The suffix of a word is a blank, save after the last token.
class BpeDecoder : public Cloneable<BpeDecoder> {
 public:
  explicit BpeDecoder(std::string suffix) : suffix_(std::move(suffix)) {}

  void Push(std::string token, Tokens& out) override {
    if (held_) out.push_back(ReplaceAll(*held_, suffix_, " "));
    held_ = std::move(token);
  }
  void Finish(Tokens& out) const override {
    if (held_) out.push_back(ReplaceAll(*held_, suffix_, ""));
  }

 private:
  std::string suffix_;
  std::optional<std::string> held_;
};

// Tokens that repeat the one before are dropped, and so are empty results.
class CtcDecoder : public Cloneable<CtcDecoder> {
 public:
  CtcDecoder(std::string pad, std::string delimiter, bool cleanup)
      : pad_(std::move(pad)), delimiter_(std::move(delimiter)), cleanup_(cleanup) {}

  void Push(std::string token, Tokens& out) override {
    if (previous_ == token) return;
    std::string text = ReplaceAll(token, pad_, "");
    if (cleanup_) {
      CleanUp(text);
      text = ReplaceAll(text, delimiter_, " ");
    }
    previous_ = std::move(token);
    if (!text.empty()) out.push_back(std::move(text));
  }

 private:
  std::string pad_, delimiter_;
  bool cleanup_;
  std::optional<std::string> previous_;
};

class ReplaceDecoder : public Cloneable<ReplaceDecoder> {
 public:
  ReplaceDecoder(Pattern pattern, std::string content)
      : pattern_(std::make_shared<const Pattern>(std::move(pattern))), content_(std::move(content)) {}

  void Push(std::string token, Tokens& out) override {
    if (token.empty()) {
      out.push_back(std::move(token));
      return;
    }
    PatternScratch& scratch = Scratch();
    Pattern::Matches matches(*pattern_, token, scratch);
    std::string text;
    size_t done = 0;
    while (true) {
      // A pattern that gives up leaves the rest of the token as it is: decoding has no way to fail.
      const auto match = matches.Next();
      if (!match || !*match) break;
      text += std::string_view(token).substr(done, match->begin - done);
      text += content_;
      done = match->end;
    }
    if (done == 0 && text.empty()) {
      out.push_back(std::move(token));
      return;
    }
    text += std::string_view(token).substr(done);
    out.push_back(std::move(text));
  }

 private:
  PatternScratch& Scratch() {
    if (!scratch_) scratch_ = std::make_shared<PatternScratch>();
    return *scratch_;
  }

  std::shared_ptr<const Pattern> pattern_;
  std::string content_;
  std::shared_ptr<PatternScratch> scratch_;  // of the run; its clones live within it
};

/// How many of the first `most` characters of `text` are `content`, in bytes.
size_t LeadingBytes(std::string_view text, std::string_view content, size_t most) {
  size_t bytes = 0;
  for (size_t i = 0; i < most && text.substr(bytes).starts_with(content); ++i) bytes += content.size();
  return bytes;
}
size_t TrailingBytes(std::string_view text, std::string_view content, size_t most) {
  size_t bytes = 0;
  for (size_t i = 0; i < most && text.substr(0, text.size() - bytes).ends_with(content); ++i)
    bytes += content.size();
  return bytes;
}

struct StripOptions {
  std::string content;  // one character
  size_t start, stop;   // at most so many are stripped
};

class StripDecoder : public Cloneable<StripDecoder> {
 public:
  explicit StripDecoder(StripOptions options) : options_(std::move(options)) {}

  void Push(std::string token, Tokens& out) override {
    const size_t front = LeadingBytes(token, options_.content, options_.start);
    const size_t back = TrailingBytes(token, options_.content, options_.stop);
    out.push_back(front + back < token.size() ? token.substr(front, token.size() - front - back)
                                              : std::string());
  }

 private:
  StripOptions options_;
};

// Strip where all tokens are one text by now.
class StripText : public Cloneable<StripText> {
 public:
  explicit StripText(StripOptions options) : options_(std::move(options)), may_strip_(options_.start) {}

  void Push(std::string text, Tokens& out) override {
    if (may_strip_ > 0) {
      const size_t front = LeadingBytes(text, options_.content, may_strip_);
      may_strip_ = front < text.size() ? 0 : may_strip_ - front / options_.content.size();
      text.erase(0, front);
    }
    held_ += text;
    // The last few may still be stripped.
    const size_t back = TrailingBytes(held_, options_.content, options_.stop);
    if (back == held_.size()) return;
    out.push_back(held_.substr(0, held_.size() - back));
    held_.erase(0, held_.size() - back);
  }

 private:
  StripOptions options_;
  size_t may_strip_;
  std::string held_;
};

// Any other decoder where all tokens are one text by now: it sees the text as one token, at the end.
class WholeText : public Cloneable<WholeText> {
 public:
  explicit WholeText(std::shared_ptr<const DecoderState> step) : step_(std::move(step)) {}

  void Push(std::string text, Tokens&) override { text_ += text; }
  void Finish(Tokens& out) const override {
    if (text_.empty()) return;
    const auto step = step_->Clone();
    step->Push(text_, out);
    step->Finish(out);
  }

 private:
  std::shared_ptr<const DecoderState> step_;
  std::string text_;
};

class Builder {
 public:
  Result<void> Add(const Json& json) {
    CMF_TRY(const Component component, Component::Of(json, "decoder"));
    const std::string_view type = component.type();
    if (type == "Sequence") {
      CMF_TRY(const Json* list, component.Array("decoders"));
      for (const Json& step : *list) CMF_CHECK(Add(step));
      return {};
    }
    if (states_.size() >= kMaxSteps) {
      return Fail(ErrorKind::kLimit, fmt::format("decoder: more than {} steps", kMaxSteps));
    }
    if (type == "Fuse") {
      is_one_text_ = true;
      return {};
    }
    if (type == "Strip") {
      StripOptions options;
      CMF_TRY(const uint32_t content, component.Character("content"));
      utf8::Append(options.content, content);
      CMF_TRY(options.start, component.Count("start"));
      CMF_TRY(options.stop, component.Count("stop"));
      if (is_one_text_) {
        states_.push_back(std::make_shared<const StripText>(std::move(options)));
      } else {
        states_.push_back(std::make_shared<const StripDecoder>(std::move(options)));
      }
      return {};
    }
    CMF_TRY(std::shared_ptr<const DecoderState> state, Make(component));
    if (is_one_text_) state = std::make_shared<const WholeText>(std::move(state));
    states_.push_back(std::move(state));
    if (type == "ByteLevel") is_one_text_ = true;
    return {};
  }

  std::vector<std::shared_ptr<const DecoderState>> Take() { return std::move(states_); }

 private:
  static Result<std::shared_ptr<const DecoderState>> Make(const Component& component) {
    const std::string_view type = component.type();
    if (type == "ByteLevel") return std::make_shared<const ByteLevelDecoder>();
    if (type == "ByteFallback") return std::make_shared<const ByteFallback>();
    if (type == "Metaspace") {
      CMF_TRY(const MetaspaceOptions options, MetaspaceOptions::From(component));
      return std::make_shared<const MetaspaceDecoder>(options);
    }
    if (type == "Replace") {
      CMF_TRY(Pattern pattern, component.PatternField("pattern"));
      CMF_TRY(std::string content, component.String("content"));
      return std::make_shared<const ReplaceDecoder>(std::move(pattern), std::move(content));
    }
    if (type == "WordPiece") {
      CMF_TRY(std::string prefix, component.String("prefix"));
      CMF_TRY(const bool cleanup, component.Bool("cleanup"));
      return std::make_shared<const WordPieceDecoder>(std::move(prefix), cleanup);
    }
    if (type == "BPEDecoder") {
      CMF_TRY(std::string suffix, component.String("suffix"));
      return std::make_shared<const BpeDecoder>(std::move(suffix));
    }
    if (type == "CTC") {
      CMF_TRY(std::string pad, component.String("pad_token"));
      CMF_TRY(std::string delimiter, component.String("word_delimiter_token"));
      CMF_TRY(const bool cleanup, component.Bool("cleanup"));
      return std::make_shared<const CtcDecoder>(std::move(pad), std::move(delimiter), cleanup);
    }
    return component.UnknownType();
  }

  std::vector<std::shared_ptr<const DecoderState>> states_;
  bool is_one_text_ = false;  // from here on the tokens are one text
};

}  // namespace

Result<TokenDecoder> TokenDecoder::FromJson(const Json& json) {
  TokenDecoder decoder;
  if (json.is_null()) {
    decoder.start_.push_back(std::make_shared<const JoinWithBlanks>());
    return decoder;
  }
  Builder builder;
  CMF_CHECK(builder.Add(json));
  decoder.start_ = builder.Take();
  return decoder;
}

TokenDecoder::Run::Run(const TokenDecoder& decoder) {
  for (const auto& state : decoder.start_) states_.push_back(state->Clone());
}

void TokenDecoder::Run::Push(std::string_view token, std::string& out) {
  now_.clear();
  now_.emplace_back(token);
  for (const auto& state : states_) {
    next_.clear();
    for (std::string& text : now_) state->Push(std::move(text), next_);
    now_.swap(next_);
    if (now_.empty()) return;
  }
  for (const std::string& text : now_) out += text;
}

std::string TokenDecoder::Run::Tail() const {
  Tokens now, next;
  for (const auto& state : states_) {
    next.clear();
    if (now.empty()) {
      state->Finish(next);
    } else {
      const auto clone = state->Clone();
      for (std::string& text : now) clone->Push(std::move(text), next);
      clone->Finish(next);
    }
    now.swap(next);
  }
  std::string out;
  for (const std::string& text : now) out += text;
  return out;
}

}  // namespace cmforge
