// Tokens into expressions and statements, by Jinja's grammar; names are bound afterwards (scopes.h).
#pragma once

#include <vector>

#include "base/result.h"
#include "text/jinja/lexer.h"
#include "text/jinja/program.h"

namespace cmforge::jinja {

inline constexpr int kMaxNesting = 100;     // of brackets and of blocks
inline constexpr int kMaxExprHeight = 200;  // of chains like a + b + c …

/// Fills `program->body`. Fails: "syntax", or kLimit.
Result<void> ParseTokens(const std::vector<Token>& tokens, Program* program);

}  // namespace cmforge::jinja
