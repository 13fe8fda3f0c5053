// A hand-written scanner with the states of Jinja's: data, comment, raw, block, variable.
#include "text/jinja/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "text/jinja/unicode.h"

namespace cmforge::jinja {
namespace {

constexpr size_t kMaxSource = 1 << 20;  // the longest known has 50 KB
constexpr auto npos = std::string_view::npos;

// CRLF and CR become LF; one newline at the end goes.
std::string NormalizeLines(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text += source[i];
      continue;
    }
    text += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

size_t SkipSpace(std::string_view text, size_t at) {
  while (at < text.size()) {
    uint64_t next = at;
    if (!IsSpace(DecodeUtf8(text, &next))) break;
    at = next;
  }
  return at;
}

std::string_view TrimRight(std::string_view text) {
  while (!text.empty()) {
    const uint64_t last = PreviousCodePoint(text, text.size());
    uint64_t at = last;
    if (!IsSpace(DecodeUtf8(text, &at))) break;
    text = text.substr(0, last);
  }
  return text;
}

bool IsDigitChar(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  Lexer(std::string text, const TemplateOptions& options) : text_(std::move(text)), options_(options) {}

  Result<std::vector<Token>> Run() {
    while (at_ < text_.size()) CMF_CHECK(LexData());
    Emit(TokenKind::kEnd, {});
    return std::move(tokens_);
  }
  [[nodiscard]] bool has_surrogates() const { return has_surrogates_; }

 private:
  struct Tag {
    size_t at = npos;
    char kind = 0;      // '{', '%', '#', or 'r' for raw
    char sign = 0;      // '-', '+' or none
    size_t inside = 0;  // behind the opening
  };

  void Emit(TokenKind kind, std::string text) { tokens_.push_back({kind, line_, std::move(text)}); }

  void AdvanceTo(size_t at) {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
    if (at > at_) line_starting_ = text_[at - 1] == '\n';
    at_ = at;
  }

  [[nodiscard]] std::string_view Rest(size_t at) const { return std::string_view(text_).substr(at); }

  [[nodiscard]] char SignAt(size_t at) const {
    return at < text_.size() && (text_[at] == '-' || text_[at] == '+') ? text_[at] : '\0';
  }

  // {% raw %} with its own rules: the closing sign may only be a minus. Nothing when the tag is another.
  [[nodiscard]] size_t RawTagEnd(size_t inside) const {
    size_t at = SkipSpace(text_, inside);
    if (!Rest(at).starts_with("raw")) return npos;
    at = SkipSpace(text_, at + 3);
    if (Rest(at).starts_with("-%}")) return SkipSpace(text_, at + 3);
    if (Rest(at).starts_with("%}")) return at + 2;
    return npos;
  }

  [[nodiscard]] Tag NextTag() const {
    Tag tag;
    for (size_t at = text_.find('{', at_); at != npos && at + 1 < text_.size();
         at = text_.find('{', at + 1)) {
      const char kind = text_[at + 1];
      if (kind != '{' && kind != '%' && kind != '#') continue;
      tag.at = at;
      tag.kind = kind;
      tag.sign = SignAt(at + 2);
      tag.inside = at + 2 + (tag.sign != 0 ? 1 : 0);
      if (kind == '%') {
        const size_t raw_end = RawTagEnd(tag.inside);
        if (raw_end != npos) {
          tag.kind = 'r';
          tag.inside = raw_end;
        }
      }
      return tag;
    }
    return tag;
  }

  // Text in front of a tag, without what the tag strips.
  [[nodiscard]] std::string_view Before(std::string_view text, char sign, bool is_variable) const {
    if (sign == '-') return TrimRight(text);
    if (sign == '+' || !options_.lstrip_blocks || is_variable) return text;
    const size_t newline = text.rfind('\n');
    const size_t line_start = newline == npos ? 0 : newline + 1;
    if (line_start == 0 && !line_starting_) return text;
    const std::string_view indent = text.substr(line_start);
    if (!indent.empty() && TrimRight(indent).empty()) return text.substr(0, line_start);
    return text;
  }

  Result<void> LexData() {
    const Tag tag = NextTag();
    const std::string_view data = Rest(at_);
    if (tag.at == npos) {
      Emit(TokenKind::kData, std::string(data));
      AdvanceTo(text_.size());
      return {};
    }
    const std::string_view text = Before(data.substr(0, tag.at - at_), tag.sign, tag.kind == '{');
    if (!text.empty()) Emit(TokenKind::kData, std::string(text));
    AdvanceTo(tag.inside);
    switch (tag.kind) {
      case '#':
        return LexComment();
      case 'r':
        return LexRaw();
      case '%':
        Emit(TokenKind::kBlockBegin, {});
        return LexTag(true);
      default:
        Emit(TokenKind::kVariableBegin, {});
        return LexTag(false);
    }
  }

  // The end of a block or comment: CLOSE with its sign and what it eats behind it. `at` is where it may
  // start; nothing when it does not.
  [[nodiscard]] size_t CloseEnd(size_t at, std::string_view close) const {
    const std::string_view rest = Rest(at);
    if (rest.starts_with('+') && rest.substr(1).starts_with(close)) return at + 1 + close.size();
    if (rest.starts_with('-') && rest.substr(1).starts_with(close))
      return SkipSpace(text_, at + 1 + close.size());
    if (!rest.starts_with(close)) return npos;
    at += close.size();
    return options_.trim_blocks && at < text_.size() && text_[at] == '\n' ? at + 1 : at;
  }

  Result<void> LexComment() {
    const size_t close = text_.find("#}", at_);
    if (close == npos) return SyntaxFault(line_, "missing end of comment tag");
    const size_t start =
        close > at_ && (text_[close - 1] == '+' || text_[close - 1] == '-') ? close - 1 : close;
    AdvanceTo(CloseEnd(start, "#}"));
    return {};
  }

  Result<void> LexRaw() {
    for (size_t open = text_.find("{%", at_); open != npos; open = text_.find("{%", open + 1)) {
      const char sign = SignAt(open + 2);
      size_t at = SkipSpace(text_, open + 2 + (sign != 0 ? 1 : 0));
      if (!Rest(at).starts_with("endraw")) continue;
      const size_t end = CloseEnd(SkipSpace(text_, at + 6), "%}");
      if (end == npos) continue;
      const std::string_view text = Before(Rest(at_).substr(0, open - at_), sign, false);
      if (!text.empty()) Emit(TokenKind::kData, std::string(text));
      AdvanceTo(end);
      return {};
    }
    return SyntaxFault(line_, "missing end of raw directive");
  }

  // Tokens up to the end of a block ({% … %}) or a variable ({{ … }}). Ends inside brackets do not count.
  Result<void> LexTag(bool is_block) {
    std::string brackets;
    while (at_ < text_.size()) {
      if (brackets.empty()) {
        const size_t end = is_block ? CloseEnd(at_, "%}") : VariableEnd(at_);
        if (end != npos) {
          Emit(is_block ? TokenKind::kBlockEnd : TokenKind::kVariableEnd, {});
          AdvanceTo(end);
          return {};
        }
      }
      const size_t space = SkipSpace(text_, at_);
      if (space != at_) {
        AdvanceTo(space);
        continue;
      }
      CMF_CHECK(LexToken(&brackets));
    }
    return {};
  }

  [[nodiscard]] size_t VariableEnd(size_t at) const {
    if (Rest(at).starts_with("-}}")) return SkipSpace(text_, at + 3);
    if (Rest(at).starts_with("}}")) return at + 2;
    return npos;
  }

  Result<void> LexToken(std::string* brackets) {
    const char c = text_[at_];
    if (IsDigitChar(c)) {
      LexNumber();
      return {};
    }
    if (c == '\'' || c == '"') return LexString();
    uint64_t next = at_;
    const char32_t code = DecodeUtf8(text_, &next);
    if (IsIdentifierPart(code)) return LexName();
    static constexpr std::string_view kSigns[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                  "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                  ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    const auto* const sign = std::find_if(std::begin(kSigns), std::end(kSigns),
                                          [&](std::string_view s) { return Rest(at_).starts_with(s); });
    if (sign == std::end(kSigns)) {
      return SyntaxFault(line_, fmt::format("unexpected char '{}'", text_.substr(at_, next - at_)));
    }
    if (c == '(' || c == '[' || c == '{') brackets->push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    if (c == ')' || c == ']' || c == '}') {
      if (brackets->empty()) return SyntaxFault(line_, fmt::format("unexpected '{}'", c));
      if (brackets->back() != c) {
        return SyntaxFault(line_, fmt::format("unexpected '{}', expected '{}'", c, brackets->back()));
      }
      brackets->pop_back();
    }
    Emit(TokenKind::kOperator, std::string(*sign));
    AdvanceTo(at_ + sign->size());
    return {};
  }

  // Digits with single underscores between them.
  template <class Accept>
  [[nodiscard]] size_t Digits(size_t at, Accept accept, bool may_start_with_underscore) const {
    size_t end = at;
    while (end < text_.size()) {
      size_t digit = end;
      if (text_[digit] == '_' && (end > at || may_start_with_underscore)) ++digit;
      if (digit >= text_.size() || !accept(text_[digit])) break;
      end = digit + 1;
    }
    return end;
  }

  void LexNumber() {
    const size_t start = at_;
    const size_t whole = Digits(start, IsDigitChar, false);
    // A float, unless a dot stands before it: in a.0.1 the numbers are keys.
    if (start == 0 || text_[start - 1] != '.') {
      size_t end = whole;
      if (end + 1 < text_.size() && text_[end] == '.' && IsDigitChar(text_[end + 1])) {
        end = Digits(end + 1, IsDigitChar, false);
      }
      if (end < text_.size() && (text_[end] | 0x20) == 'e') {
        size_t digits = end + 1;
        if (digits < text_.size() && (text_[digits] == '+' || text_[digits] == '-')) ++digits;
        if (digits < text_.size() && IsDigitChar(text_[digits])) end = Digits(digits, IsDigitChar, false);
      }
      if (end != whole) {
        EmitNumber(TokenKind::kFloat, end);
        return;
      }
    }
    size_t end = whole;
    if (text_[start] == '0') {
      const char letter = start + 1 < text_.size() ? static_cast<char>(text_[start + 1] | 0x20) : '\0';
      const int base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
      const size_t digits = base == 0 ? start
                                      : Digits(
                                            start + 2, [base](char c) { return IsDigitOf(c, base); }, true);
      if (base != 0 && digits > start + 2) {
        end = digits;
      } else {
        end = Digits(
            start, [](char c) { return c == '0'; }, false);
      }
    }
    EmitNumber(TokenKind::kInteger, end);
  }

  static bool IsDigitOf(char c, int base) {
    if (base == 16) return IsDigitChar(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
    return c >= '0' && c < '0' + base;
  }

  void EmitNumber(TokenKind kind, size_t end) {
    std::string digits = text_.substr(at_, end - at_);
    std::erase(digits, '_');
    Emit(kind, std::move(digits));
    AdvanceTo(end);
  }

  Result<void> LexName() {
    uint64_t end = at_;
    while (end < text_.size()) {
      uint64_t next = end;
      if (!IsIdentifierPart(DecodeUtf8(text_, &next))) break;
      end = next;
    }
    std::string name = text_.substr(at_, end - at_);
    if (!IsIdentifier(name)) return SyntaxFault(line_, "invalid character in identifier");
    Emit(TokenKind::kName, std::move(name));
    AdvanceTo(end);
    return {};
  }

  Result<void> LexString() {
    const char quote = text_[at_];
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size())
      return SyntaxFault(line_, fmt::format("unexpected char {}: a string does not end", quote));
    CMF_TRY(std::string text, Unescape(Rest(at_ + 1).substr(0, end - at_ - 1)));
    Emit(TokenKind::kString, std::move(text));
    AdvanceTo(end + 1);
    return {};
  }

  Result<std::string> Unescape(std::string_view raw) {
    std::string out;
    for (uint64_t i = 0; i < raw.size();) {
      if (raw[i] != '\\') {
        out += raw[i++];
        continue;
      }
      ++i;
      const char c = raw[i];
      static constexpr std::string_view kLetters = "\\'\"abfnrtv";
      static constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
      if (const size_t k = kLetters.find(c); k != npos) {
        out += kMeanings[k];
        ++i;
      } else if (c == '\n') {
        ++i;
      } else if (c >= '0' && c <= '7') {
        char32_t code = 0;
        for (int n = 0; n < 3 && i < raw.size() && raw[i] >= '0' && raw[i] <= '7'; ++n, ++i) {
          code = code * 8 + static_cast<char32_t>(raw[i] - '0');
        }
        AppendUtf8(&out, code);
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        uint32_t code = 0;
        const std::string_view hex = raw.substr(i + 1, digits);
        const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), code, 16);
        if (hex.size() < digits || end != hex.data() + digits || error != std::errc() || code > 0x10FFFF) {
          return SyntaxFault(line_, fmt::format("bad escape '\\{}{}' in a string", c, hex));
        }
        has_surrogates_ |= code >= 0xD800 && code <= 0xDFFF;
        AppendUtf8(&out, code);
        i += 1 + digits;
      } else if (c == 'N') {
        return SyntaxFault(line_, "escapes by character name (\\N{...}) are not supported");
      } else {
        // An unknown escape keeps its backslash; a character beyond ASCII behind it shows as its code.
        out += '\\';
        const char32_t code = DecodeUtf8(raw, &i);
        if (code < 0x80) {
          out += c;
        } else if (code < 0x100) {
          out += fmt::format("x{:02x}", static_cast<uint32_t>(code));
        } else if (code < 0x10000) {
          out += fmt::format("u{:04x}", static_cast<uint32_t>(code));
        } else {
          out += fmt::format("U{:08x}", static_cast<uint32_t>(code));
        }
      }
    }
    return out;
  }

  const std::string text_;
  const TemplateOptions& options_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  bool has_surrogates_ = false;
  std::vector<Token> tokens_;
};

}  // namespace

tl::unexpected<Error> SyntaxFault(int line, std::string_view fact) {
  return Fail(ErrorKind::kCorrupt, fmt::format("{}: {}", line, fact), error_name::kSyntax);
}

Result<std::vector<Token>> Tokenize(std::string_view source, const TemplateOptions& options,
                                    bool* has_surrogates) {
  if (source.size() > kMaxSource) {
    return Fail(ErrorKind::kLimit,
                fmt::format("1: {} bytes of template, at most {} are read", source.size(), kMaxSource),
                error_name::kLimitReached);
  }
  Lexer lexer(NormalizeLines(source), options);
  CMF_TRY(std::vector<Token> tokens, lexer.Run());
  *has_surrogates = lexer.has_surrogates();
  return tokens;
}

}  // namespace cmforge::jinja
