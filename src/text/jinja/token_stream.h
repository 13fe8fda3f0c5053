// Looking at tokens one after the other, for the parser.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/jinja/lexer.h"

namespace cmforge::jinja {

class TokenStream {
 public:
  explicit TokenStream(const std::vector<Token>& tokens) : tokens_(tokens) {}

  [[nodiscard]] const Token& current() const { return tokens_[at_]; }
  [[nodiscard]] const Token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  [[nodiscard]] int line() const { return current().line; }

  const Token& Take() {
    const Token& token = current();
    if (token.kind != TokenKind::kEnd) ++at_;
    return token;
  }

  [[nodiscard]] bool Is(TokenKind kind) const { return current().kind == kind; }
  [[nodiscard]] bool IsSign(std::string_view sign) const { return IsSign(current(), sign); }
  [[nodiscard]] bool IsName(std::string_view name) const { return IsName(current(), name); }
  [[nodiscard]] bool NextIsSign(std::string_view sign) const { return IsSign(next(), sign); }
  [[nodiscard]] bool NextIsName(std::string_view name) const { return IsName(next(), name); }
  [[nodiscard]] bool IsAnyName(std::initializer_list<std::string_view> names) const {
    return std::any_of(names.begin(), names.end(), [this](std::string_view n) { return IsName(n); });
  }

  bool SkipSign(std::string_view sign) {
    if (!IsSign(sign)) return false;
    Take();
    return true;
  }
  bool SkipName(std::string_view name) {
    if (!IsName(name)) return false;
    Take();
    return true;
  }

  Result<const Token*> Expect(TokenKind kind) {
    if (!Is(kind)) return Unexpected(KindText(kind));
    return &Take();
  }
  Result<void> ExpectSign(std::string_view sign) {
    if (!SkipSign(sign)) return Unexpected(sign);
    return {};
  }
  Result<void> ExpectName(std::string_view name) {
    if (!SkipName(name)) return Unexpected(name);
    return {};
  }

  [[nodiscard]] tl::unexpected<Error> Unexpected(std::string_view expected) const {
    if (Is(TokenKind::kEnd)) {
      return SyntaxFault(line(), fmt::format("unexpected end of template, expected '{}'", expected));
    }
    return SyntaxFault(line(), fmt::format("expected '{}', got '{}'", expected, Shown(current())));
  }

  [[nodiscard]] static std::string_view Shown(const Token& token) {
    switch (token.kind) {
      case TokenKind::kName:
      case TokenKind::kInteger:
      case TokenKind::kFloat:
      case TokenKind::kOperator:
        return token.text;
      default:
        return KindText(token.kind);
    }
  }

 private:
  static bool IsSign(const Token& token, std::string_view sign) {
    return token.kind == TokenKind::kOperator && token.text == sign;
  }
  static bool IsName(const Token& token, std::string_view name) {
    return token.kind == TokenKind::kName && token.text == name;
  }
  static std::string_view KindText(TokenKind kind) {
    switch (kind) {
      case TokenKind::kData:
        return "template text";
      case TokenKind::kVariableBegin:
        return "{{";
      case TokenKind::kVariableEnd:
        return "}}";
      case TokenKind::kBlockBegin:
        return "{%";
      case TokenKind::kBlockEnd:
        return "%}";
      case TokenKind::kName:
        return "name";
      case TokenKind::kString:
        return "string";
      case TokenKind::kInteger:
        return "integer";
      case TokenKind::kFloat:
        return "float";
      case TokenKind::kOperator:
        return "operator";
      case TokenKind::kEnd:
        return "end of template";
    }
    return "token";
  }

  const std::vector<Token>& tokens_;
  size_t at_ = 0;
};

}  // namespace cmforge::jinja
