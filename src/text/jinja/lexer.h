// Template text into tokens, with Jinja's white space rules applied.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/jinja/template.h"

namespace cmforge::jinja {

enum class TokenKind : uint8_t {
  kData,  // text between tags, white space already trimmed
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,   // text is unescaped
  kInteger,  // text as written, without underscores
  kFloat,
  kOperator,  // text is the sign
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  int line = 1;
  std::string text;
};

/// Fails: kCorrupt, "syntax". The last token is kEnd. Sets `has_surrogates` when an escape made one.
Result<std::vector<Token>> Tokenize(std::string_view source, const TemplateOptions& options,
                                    bool* has_surrogates);

/// "NAME:LINE: fact" as an error of kind kCorrupt, "syntax"; the name is added by ParseProgram.
[[nodiscard]] tl::unexpected<Error> SyntaxFault(int line, std::string_view fact);

}  // namespace cmforge::jinja
