// The statement half of the grammar.
#include "text/jinja/parser.h"

#include <algorithm>
#include <initializer_list>

#include "text/jinja/expression_parser.h"
#include "text/jinja/token_stream.h"
#include "text/jinja/unicode.h"

namespace cmforge::jinja {
namespace {

using Names = std::initializer_list<std::string_view>;

class Parser {
 public:
  Parser(const std::vector<Token>& tokens, Program* program)
      : program_(*program), tokens_(tokens), expressions_(tokens_, program) {}

  Result<void> Run() {
    CMF_TRY(program_.body, Statements({}));
    return {};
  }

 private:
  Statement* New(StatementKind kind, int line) {
    Statement& s = program_.statements.emplace_back();
    s.kind = kind;
    s.line = line;
    return &s;
  }

  // Text, prints and tags up to a tag of `ends` (whose name is the current token then), or the end.
  Result<Body> Statements(Names ends) {
    Body body;
    Statement* output = nullptr;
    const auto print = [&](const Expr* expr) {
      if (output == nullptr) {
        output = New(StatementKind::kOutput, expr->line);
        body.push_back(output);
      }
      output->items.push_back(expr);
    };
    while (!tokens_.Is(TokenKind::kEnd)) {
      const Token& token = tokens_.Take();
      switch (token.kind) {
        case TokenKind::kData: {
          if (token.text.empty()) break;
          Expr& text = program_.exprs.emplace_back();
          text.line = token.line;
          const std::string_view kept = program_.Keep(token.text);
          text.constant = Value::Of(program_.constants.New<Str>(kept.data(), kept.size()));
          print(&text);
          break;
        }
        case TokenKind::kVariableBegin: {
          CMF_TRY(const Expr* const expr, expressions_.Tuple());
          CMF_CHECK(tokens_.Expect(TokenKind::kVariableEnd));
          print(expr);
          break;
        }
        case TokenKind::kBlockBegin: {
          output = nullptr;
          if (tokens_.IsAnyName(ends)) return body;
          CMF_TRY(Statement* const statement, OneStatement());
          body.push_back(statement);
          CMF_CHECK(tokens_.Expect(TokenKind::kBlockEnd));
          break;
        }
        default:
          return SyntaxFault(token.line, "unexpected token");
      }
    }
    return body;
  }

  // Behind the head of a block: its end, then statements up to one of `ends`.
  Result<Body> BodyUntil(std::string_view tag, int line, Names ends) {
    tokens_.SkipSign(":");
    CMF_CHECK(tokens_.Expect(TokenKind::kBlockEnd));
    open_.push_back(tag);
    CMF_CHECK(expressions_.Enter(line));
    CMF_TRY(Body body, Statements(ends));
    expressions_.Leave();
    if (tokens_.Is(TokenKind::kEnd)) {
      return SyntaxFault(tokens_.line(),
                         fmt::format("unexpected end of template: '{}' of line {} is not closed by '{}'", tag,
                                     line, *(ends.end() - 1)));
    }
    open_.pop_back();
    return body;
  }
  Result<Body> WholeBody(std::string_view tag, int line, std::string_view end) {
    CMF_TRY(Body body, BodyUntil(tag, line, {end}));
    tokens_.Take();
    return body;
  }

  Result<Statement*> OneStatement() {
    const Token& token = tokens_.current();
    if (token.kind != TokenKind::kName) return SyntaxFault(token.line, "tag name expected");
    const std::string_view name = token.text;
    struct Tag {
      std::string_view name;
      Result<Statement*> (Parser::*parse)();
    };
    static constexpr Tag kTags[] = {{"for", &Parser::For},
                                    {"if", &Parser::If},
                                    {"set", &Parser::Set},
                                    {"macro", &Parser::Macro},
                                    {"call", &Parser::CallBlock},
                                    {"filter", &Parser::FilterBlock},
                                    {"with", &Parser::With},
                                    {"block", &Parser::BlockTag},
                                    {"generation", &Parser::Generation},
                                    {"break", &Parser::Control},
                                    {"continue", &Parser::Control},
                                    {"print", &Parser::Print},
                                    {"autoescape", &Parser::Autoescape},
                                    {"include", &Parser::Include},
                                    {"import", &Parser::Import},
                                    {"from", &Parser::From},
                                    {"extends", &Parser::Extends}};
    for (const Tag& tag : kTags) {
      if (tag.name == name) return (this->*tag.parse)();
    }
    std::string fact = fmt::format("unknown tag '{}'", name);
    if (!open_.empty()) fact += fmt::format(": the innermost block to be closed is '{}'", open_.back());
    return SyntaxFault(token.line, fact);
  }

  Result<Statement*> Set() {
    Statement* s = New(StatementKind::kSet, tokens_.Take().line);
    CMF_TRY(s->target, expressions_.SetTarget());
    if (tokens_.SkipSign("=")) {
      CMF_TRY(s->value, expressions_.Tuple());
      return s;
    }
    s->kind = StatementKind::kSetBlock;
    CMF_TRY(s->value, expressions_.Filters(nullptr));
    CMF_TRY(s->body, WholeBody("set", s->line, "endset"));
    return s;
  }

  Result<Statement*> For() {
    Statement* s = New(StatementKind::kFor, tokens_.Take().line);
    ForNode& loop = program_.loops.emplace_back();
    s->loop = &loop;
    CMF_TRY(loop.target, expressions_.Target("in"));
    CMF_CHECK(tokens_.ExpectName("in"));
    CMF_TRY(loop.iterable, expressions_.Tuple(/*with_condition=*/false, "recursive"));
    if (tokens_.SkipName("if")) {
      CMF_TRY(loop.test, expressions_.Expression());
    }
    loop.is_recursive = tokens_.SkipName("recursive");
    CMF_TRY(loop.body, BodyUntil("for", s->line, {"else", "endfor"}));
    if (tokens_.Take().text == "else") {
      CMF_TRY(loop.otherwise, WholeBody("for", s->line, "endfor"));
    }
    return s;
  }

  Result<Statement*> If() {
    Statement* s = New(StatementKind::kIf, tokens_.Take().line);
    while (true) {
      Statement::Branch branch;
      CMF_TRY(branch.test, expressions_.Tuple(/*with_condition=*/false));
      CMF_TRY(branch.body, BodyUntil("if", s->line, {"elif", "else", "endif"}));
      s->branches.push_back(std::move(branch));
      const std::string_view end = tokens_.Take().text;
      if (end == "elif") continue;
      if (end == "else") {
        Statement::Branch otherwise;
        CMF_TRY(otherwise.body, WholeBody("if", s->line, "endif"));
        s->branches.push_back(std::move(otherwise));
      }
      return s;
    }
  }

  Result<Statement*> With() {
    Statement* s = New(StatementKind::kWith, tokens_.Take().line);
    while (!tokens_.Is(TokenKind::kBlockEnd)) {
      if (!s->targets.empty()) CMF_CHECK(tokens_.ExpectSign(","));
      CMF_TRY(const Expr* const target, expressions_.Target());
      CMF_CHECK(tokens_.ExpectSign("="));
      CMF_TRY(const Expr* const value, expressions_.Expression());
      s->targets.push_back(target);
      s->items.push_back(value);
    }
    CMF_TRY(s->body, WholeBody("with", s->line, "endwith"));
    return s;
  }

  Result<void> Signature(MacroSource* macro) {
    CMF_CHECK(tokens_.ExpectSign("("));
    while (!tokens_.IsSign(")")) {
      if (!macro->parameters.empty()) CMF_CHECK(tokens_.ExpectSign(","));
      MacroSource::Parameter p;
      const int line = tokens_.line();
      CMF_TRY(p.name, expressions_.TargetName());
      for (const MacroSource::Parameter& other : macro->parameters) {
        if (other.name == p.name) return SyntaxFault(line, fmt::format("duplicate argument '{}'", p.name));
      }
      if (tokens_.SkipSign("=")) {
        CMF_TRY(p.otherwise, expressions_.Expression());
      } else if (!macro->parameters.empty() && macro->parameters.back().otherwise != nullptr) {
        return SyntaxFault(line, "non-default argument follows default argument");
      }
      macro->parameters.push_back(p);
    }
    return tokens_.ExpectSign(")");
  }

  Result<Statement*> Macro() {
    Statement* s = New(StatementKind::kMacro, tokens_.Take().line);
    s->macro = &program_.macros.emplace_back();
    CMF_TRY(s->macro->name, expressions_.TargetName());
    Expr& target = program_.exprs.emplace_back();
    target.kind = ExprKind::kName;
    target.line = s->line;
    target.text = s->macro->name;
    s->target = &target;
    CMF_CHECK(Signature(s->macro));
    CMF_TRY(s->macro->body, WholeBody("macro", s->line, "endmacro"));
    return s;
  }

  Result<Statement*> CallBlock() {
    Statement* s = New(StatementKind::kCallBlock, tokens_.Take().line);
    s->macro = &program_.macros.emplace_back();
    if (tokens_.IsSign("(")) CMF_CHECK(Signature(s->macro));
    CMF_TRY(s->value, expressions_.Expression());
    if (s->value->kind != ExprKind::kCall) return SyntaxFault(s->line, "expected a call");
    CMF_TRY(s->macro->body, WholeBody("call", s->line, "endcall"));
    return s;
  }

  Result<Statement*> Generation() {
    Statement* s = New(StatementKind::kGeneration, tokens_.Take().line);
    s->macro = &program_.macros.emplace_back();
    CMF_TRY(s->macro->body, WholeBody("generation", s->line, "endgeneration"));
    return s;
  }

  Result<Statement*> FilterBlock() {
    Statement* s = New(StatementKind::kFilterBlock, tokens_.Take().line);
    CMF_TRY(s->value, expressions_.Filters(nullptr, /*first=*/true));
    CMF_TRY(s->body, WholeBody("filter", s->line, "endfilter"));
    return s;
  }

  Result<Statement*> BlockTag() {
    Statement* s = New(StatementKind::kBlock, tokens_.Take().line);
    CMF_TRY(const Token* const name, tokens_.Expect(TokenKind::kName));
    for (const Block& other : program_.blocks) {
      if (other.name == name->text)
        return SyntaxFault(s->line, fmt::format("block '{}' defined twice", name->text));
    }
    Block& block = program_.blocks.emplace_back();
    s->block = &block;
    block.name = program_.Keep(name->text);
    block.line = s->line;
    block.is_scoped = tokens_.SkipName("scoped");
    block.is_required = tokens_.SkipName("required");
    if (tokens_.IsSign("-"))
      return SyntaxFault(s->line, "block names may not contain hyphens: use an underscore");
    CMF_TRY(block.body, WholeBody("block", s->line, "endblock"));
    if (block.is_required && !IsBlank(block.body)) {
      return SyntaxFault(s->line, "required blocks can only contain comments or white space");
    }
    tokens_.SkipName(block.name);
    return s;
  }

  static bool IsBlank(const Body& body) {
    return std::all_of(body.begin(), body.end(), [](const Statement* s) {
      return s->kind == StatementKind::kOutput &&
             std::all_of(s->items.begin(), s->items.end(), [](const Expr* e) {
               if (e->kind != ExprKind::kConstant || !e->constant.is_string()) return false;
               for (uint64_t i = 0; i < e->constant.text().size();) {
                 if (!IsSpace(DecodeUtf8(e->constant.text(), &i))) return false;
               }
               return true;
             });
    });
  }

  Result<Statement*> Control() {
    const Token& token = tokens_.Take();
    return New(token.text == "break" ? StatementKind::kBreak : StatementKind::kContinue, token.line);
  }

  Result<Statement*> Print() {
    Statement* s = New(StatementKind::kOutput, tokens_.Take().line);
    while (!tokens_.Is(TokenKind::kBlockEnd)) {
      if (!s->items.empty()) CMF_CHECK(tokens_.ExpectSign(","));
      CMF_TRY(const Expr* const expr, expressions_.Expression());
      s->items.push_back(expr);
    }
    return s;
  }

  Result<Statement*> Autoescape() {
    Statement* s = New(StatementKind::kAutoescape, tokens_.Take().line);
    CMF_TRY(s->value, expressions_.Expression());
    CMF_TRY(s->body, WholeBody("autoescape", s->line, "endautoescape"));
    return s;
  }

  void SkipImportContext() {
    if ((tokens_.IsName("with") || tokens_.IsName("without")) && tokens_.NextIsName("context")) {
      tokens_.Take();
      tokens_.Take();
    }
  }

  Result<Statement*> Include() {
    Statement* s = New(StatementKind::kLoader, tokens_.Take().line);
    CMF_TRY(s->value, expressions_.Expression());
    if (tokens_.IsName("ignore") && tokens_.NextIsName("missing")) {
      tokens_.Take();
      tokens_.Take();
    }
    SkipImportContext();
    return s;
  }

  Result<Statement*> Import() {
    Statement* s = New(StatementKind::kLoader, tokens_.Take().line);
    CMF_TRY(s->value, expressions_.Expression());
    CMF_CHECK(tokens_.ExpectName("as"));
    CMF_TRY(const std::string_view name, expressions_.TargetName());
    s->names.push_back(name);
    SkipImportContext();
    return s;
  }

  Result<Statement*> From() {
    Statement* s = New(StatementKind::kLoader, tokens_.Take().line);
    CMF_TRY(s->value, expressions_.Expression());
    CMF_CHECK(tokens_.ExpectName("import"));
    const auto at_context = [this] {
      return (tokens_.IsName("with") || tokens_.IsName("without")) && tokens_.NextIsName("context");
    };
    do {
      if (at_context()) break;
      const int line = tokens_.line();
      CMF_TRY(std::string_view name, expressions_.TargetName());
      if (name.starts_with('_'))
        return SyntaxFault(line, "names starting with an underline can not be imported");
      if (tokens_.SkipName("as")) {
        CMF_TRY(name, expressions_.TargetName());
      }
      s->names.push_back(name);
    } while (!at_context() && tokens_.SkipSign(","));
    SkipImportContext();
    return s;
  }

  Result<Statement*> Extends() {
    Statement* s = New(StatementKind::kLoader, tokens_.Take().line);
    CMF_TRY(s->value, expressions_.Expression());
    return s;
  }

  Program& program_;
  TokenStream tokens_;
  ExpressionParser expressions_;
  std::vector<std::string_view> open_;
};

}  // namespace

Result<void> ParseTokens(const std::vector<Token>& tokens, Program* program) {
  return Parser(tokens, program).Run();
}

}  // namespace cmforge::jinja
