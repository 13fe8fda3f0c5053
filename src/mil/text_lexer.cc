// Program text to tokens.
#include "mil/text_lexer.h"

namespace cmforge::mil {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

}  // namespace

Result<Token> Lexer::Next() {
  for (; at_ < text_.size(); ++at_) {
    const char c = text_[at_];
    if (c == '\n') {
      ++line_;
      line_start_ = at_ + 1;
    } else if (c != ' ' && c != '\t' && c != '\r') {
      break;
    }
  }
  Token token;
  token.line = line_;
  token.column = static_cast<int64_t>(at_ - line_start_) + 1;
  const size_t start = at_;
  if (at_ == text_.size()) return token;
  const char first = text_[at_++];
  const auto follows = [&](auto&& accepts) { return at_ < text_.size() && accepts(text_[at_]); };
  if (first == '"') {
    token.kind = Token::Kind::kString;
    while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\n') at_ += text_[at_] == '\\' ? 2 : 1;
    if (at_ >= text_.size() || text_[at_] != '"') return FailAt(token, "a string without its closing quote");
    token.text = text_.substr(start + 1, at_ - start - 1);
    ++at_;
    return token;
  }
  if (IsLetter(first)) {
    token.kind = Token::Kind::kWord;
    while (follows([](char c) { return IsLetter(c) || IsDigit(c) || c == '@'; })) ++at_;
  } else if (IsDigit(first) || ((first == '-' || first == '+') &&
                                follows([](char c) { return IsDigit(c) || c == 'i' || c == 'n'; }))) {
    token.kind = Token::Kind::kNumber;
    // Digits, letters (0x, p, e, inf), points, and signs that follow an exponent letter.
    const bool is_hex = text_.substr(at_ - 1, 3).find('x') != std::string_view::npos;
    while (follows([&](char c) {
      const char before = text_[at_ - 1];
      const bool after_exponent =
          before == 'p' || before == 'P' || (!is_hex && (before == 'e' || before == 'E'));
      return IsLetter(c) || IsDigit(c) || c == '.' || ((c == '-' || c == '+') && after_exponent);
    })) {
      ++at_;
    }
  } else {
    token.kind = Token::Kind::kMark;
    if (first == '-' && follows([](char c) { return c == '>'; })) ++at_;
    if (std::string_view("()[]{}<>,;=?-").find(first) == std::string_view::npos) {
      return FailAt(token, fmt::format("unexpected byte 0x{:02x}", static_cast<unsigned char>(first)));
    }
  }
  token.text = text_.substr(start, at_ - start);
  return token;
}

std::string Unescaped(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size()) ++i;
    out += text[i];
  }
  return out;
}

}  // namespace cmforge::mil
