// Cuts program text into words, numbers, strings and marks, with the place of each.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace cmforge::mil {

struct Token {
  enum class Kind : uint8_t { kWord, kNumber, kString, kMark, kEnd };

  Kind kind = Kind::kEnd;
  std::string_view text;         // as written; of a string: between the quotes, escapes still in it
  int64_t line = 1, column = 1;  // from 1; columns count bytes

  [[nodiscard]] bool Is(std::string_view mark) const { return kind == Kind::kMark && text == mark; }
  [[nodiscard]] bool IsWord(std::string_view word) const { return kind == Kind::kWord && text == word; }
};

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}
  /// The next token; kEnd for ever at the end. Fails: kCorrupt with line and column.
  Result<Token> Next();

 private:
  std::string_view text_;
  size_t at_ = 0;
  size_t line_start_ = 0;
  int64_t line_ = 1;
};

/// A string token's text without its escapes.
[[nodiscard]] std::string Unescaped(std::string_view text);

[[nodiscard]] inline tl::unexpected<Error> FailAt(const Token& token, std::string_view what,
                                                  ErrorKind kind = ErrorKind::kCorrupt) {
  return Fail(kind, fmt::format("line {}, column {}: {}", token.line, token.column, what), "Parse");
}

}  // namespace cmforge::mil
