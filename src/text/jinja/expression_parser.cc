// Recursive descent, one function a level of precedence.
#include "text/jinja/expression_parser.h"

#include <algorithm>

#include "text/jinja/parser.h"
#include "text/jinja/walk.h"

namespace cmforge::jinja {

Expr* ExpressionParser::New(ExprKind kind, int line) {
  Expr& e = program_.exprs.emplace_back();
  e.kind = kind;
  e.line = line;
  return &e;
}

Result<Expr*> ExpressionParser::Done(Expr* expr) {
  int below = 0;
  const auto take = [&below](const Expr* e) {
    if (e != nullptr) below = std::max(below, e->height);
  };
  take(expr->a);
  take(expr->b);
  take(expr->c);
  for (const Expr* e : expr->items) take(e);
  if (expr->arguments != nullptr) {
    for (const Expr* e : expr->arguments->positional) take(e);
    for (const CallArguments::Named& named : expr->arguments->named) take(named.value);
    take(expr->arguments->more);
    take(expr->arguments->more_named);
  }
  expr->height = below + 1;
  if (expr->height > kMaxExprHeight) {
    return Fail(ErrorKind::kLimit,
                fmt::format("{}: an expression nested deeper than {} levels", expr->line, kMaxExprHeight),
                error_name::kLimitReached);
  }
  return expr;
}

Result<void> ExpressionParser::Enter(int line) {
  if (++nesting_ <= kMaxNesting) return {};
  return Fail(ErrorKind::kLimit, fmt::format("{}: nested deeper than {} levels", line, kMaxNesting),
              error_name::kLimitReached);
}

Value ExpressionParser::String(std::string_view text) {
  const std::string_view kept = program_.Keep(std::string(text));
  return Value::Of(program_.constants.New<Str>(kept.data(), kept.size()));
}

Result<Expr*> ExpressionParser::Expression(bool with_condition) {
  CMF_CHECK(Enter(tokens_.line()));
  Result<Expr*> expr = with_condition ? Condition() : Or();
  Leave();
  return expr;
}

Result<Expr*> ExpressionParser::Condition() {
  int line = tokens_.line();
  CMF_TRY(Expr * value, Or());
  while (tokens_.SkipName("if")) {
    Expr* condition = New(ExprKind::kCondition, line);
    condition->a = value;
    CMF_TRY(condition->b, Or());
    if (tokens_.SkipName("else")) {
      CMF_CHECK(Enter(line));
      CMF_TRY(condition->c, Condition());
      Leave();
    }
    CMF_TRY(value, Done(condition));
    line = tokens_.line();
  }
  return value;
}

Result<Expr*> ExpressionParser::Or() {
  int line = tokens_.line();
  CMF_TRY(Expr * left, And());
  while (tokens_.SkipName("or")) {
    CMF_TRY(Expr* const right, And());
    Expr* e = New(ExprKind::kOr, line);
    e->a = left;
    e->b = right;
    CMF_TRY(left, Done(e));
    line = tokens_.line();
  }
  return left;
}

Result<Expr*> ExpressionParser::And() {
  int line = tokens_.line();
  CMF_TRY(Expr * left, Not());
  while (tokens_.SkipName("and")) {
    CMF_TRY(Expr* const right, Not());
    Expr* e = New(ExprKind::kAnd, line);
    e->a = left;
    e->b = right;
    CMF_TRY(left, Done(e));
    line = tokens_.line();
  }
  return left;
}

Result<Expr*> ExpressionParser::Not() {
  const int line = tokens_.line();
  if (!tokens_.SkipName("not")) return Compare();
  CMF_CHECK(Enter(line));
  Expr* e = New(ExprKind::kNot, line);
  CMF_TRY(e->a, Not());
  Leave();
  return Done(e);
}

Result<Expr*> ExpressionParser::Compare() {
  const int line = tokens_.line();
  CMF_TRY(Expr* const first, Sum());
  Expr* chain = nullptr;
  while (true) {
    Comparison op = Comparison::kEqual;
    if (tokens_.SkipSign("==")) {
      op = Comparison::kEqual;
    } else if (tokens_.SkipSign("!=")) {
      op = Comparison::kNotEqual;
    } else if (tokens_.SkipSign("<")) {
      op = Comparison::kLess;
    } else if (tokens_.SkipSign("<=")) {
      op = Comparison::kLessEqual;
    } else if (tokens_.SkipSign(">")) {
      op = Comparison::kGreater;
    } else if (tokens_.SkipSign(">=")) {
      op = Comparison::kGreaterEqual;
    } else if (tokens_.SkipName("in")) {
      op = Comparison::kIn;
    } else if (tokens_.IsName("not") && tokens_.NextIsName("in")) {
      tokens_.Take();
      tokens_.Take();
      op = Comparison::kNotIn;
    } else {
      break;
    }
    if (chain == nullptr) {
      chain = New(ExprKind::kCompare, line);
      chain->items.push_back(first);
    }
    CMF_TRY(Expr* const operand, Sum());
    chain->comparisons.push_back(op);
    chain->items.push_back(operand);
  }
  if (chain == nullptr) return first;
  return Done(chain);
}

Result<Expr*> ExpressionParser::Binary(Operator op, Expr* left, Expr* right, int line) {
  Expr* e = New(ExprKind::kBinary, line);
  e->op = op;
  e->a = left;
  e->b = right;
  return Done(e);
}

Result<Expr*> ExpressionParser::Sum() {
  CMF_TRY(Expr * left, Concat());
  while (tokens_.IsSign("+") || tokens_.IsSign("-")) {
    const int line = tokens_.line();
    const Operator op = tokens_.Take().text == "+" ? Operator::kAdd : Operator::kSubtract;
    CMF_TRY(Expr* const right, Concat());
    CMF_TRY(left, Binary(op, left, right, line));
  }
  return left;
}

Result<Expr*> ExpressionParser::Concat() {
  const int line = tokens_.line();
  CMF_TRY(Expr* const first, Product());
  if (!tokens_.IsSign("~")) return first;
  Expr* e = New(ExprKind::kConcat, line);
  e->items.push_back(first);
  while (tokens_.SkipSign("~")) {
    CMF_TRY(Expr* const next, Product());
    e->items.push_back(next);
  }
  return Done(e);
}

Result<Expr*> ExpressionParser::Product() {
  CMF_TRY(Expr * left, Power());
  while (true) {
    const int line = tokens_.line();
    Operator op = Operator::kMultiply;
    if (tokens_.IsSign("*")) {
      op = Operator::kMultiply;
    } else if (tokens_.IsSign("/")) {
      op = Operator::kDivide;
    } else if (tokens_.IsSign("//")) {
      op = Operator::kFloorDivide;
    } else if (tokens_.IsSign("%")) {
      op = Operator::kModulo;
    } else {
      return left;
    }
    tokens_.Take();
    CMF_TRY(Expr* const right, Power());
    CMF_TRY(left, Binary(op, left, right, line));
  }
}

namespace {

// Without names and calls: the reference computes it when it compiles.
bool IsFixed(const Expr& expr) {
  if (expr.kind == ExprKind::kName || expr.kind == ExprKind::kCall) return false;
  bool is_fixed = true;
  ForEachPart(expr, [&is_fixed](const Expr& part) { is_fixed = is_fixed && IsFixed(part); });
  return is_fixed;
}

}  // namespace

Result<Expr*> ExpressionParser::Power() {
  CMF_TRY(Expr * left, Unary(true));
  while (tokens_.IsSign("**")) {
    const int line = tokens_.Take().line;
    CMF_TRY(Expr* const right, Unary(true));
    // The reference writes a folded -2 into Python code, where ** binds tighter: -2 ** x is -(2 ** x) there,
    // while -2 ** 2, folded as a whole, is 4.
    Expr* const negated = left;
    const bool is_literal = left->kind == ExprKind::kNegate && left->a->kind == ExprKind::kConstant;
    if (is_literal && !IsFixed(*right)) {
      CMF_TRY(negated->a, Binary(Operator::kPower, const_cast<Expr*>(left->a), right, line));
      CMF_TRY(left, Done(negated));
    } else {
      CMF_TRY(left, Binary(Operator::kPower, left, right, line));
    }
  }
  return left;
}

Result<Expr*> ExpressionParser::Unary(bool with_filter) {
  Expr* node = nullptr;
  const int line = tokens_.line();
  if (tokens_.IsSign("-") || tokens_.IsSign("+")) {
    node = New(tokens_.Take().text == "-" ? ExprKind::kNegate : ExprKind::kPlus, line);
    CMF_CHECK(Enter(line));
    CMF_TRY(node->a, Unary(false));
    Leave();
    CMF_TRY(node, Done(node));
  } else {
    CMF_TRY(node, Primary());
  }
  CMF_TRY(node, Postfix(node));
  if (with_filter) return FilterExpr(node);
  return node;
}

Result<Expr*> ExpressionParser::Primary() {
  const Token& token = tokens_.current();
  switch (token.kind) {
    case TokenKind::kName: {
      tokens_.Take();
      const std::string& name = token.text;
      Expr* e = New(ExprKind::kConstant, token.line);
      if (name == "true" || name == "True") {
        e->constant = Value::Bool(true);
      } else if (name == "false" || name == "False") {
        e->constant = Value::Bool(false);
      } else if (name == "none" || name == "None") {
        e->constant = Value::None();
      } else {
        e->kind = ExprKind::kName;
        e->text = program_.Keep(name);
      }
      return Done(e);
    }
    case TokenKind::kString: {
      std::string text;
      while (tokens_.Is(TokenKind::kString)) text += tokens_.Take().text;
      Expr* e = New(ExprKind::kConstant, token.line);
      e->constant = String(text);
      return Done(e);
    }
    case TokenKind::kInteger: {
      tokens_.Take();
      Expr* e = New(ExprKind::kConstant, token.line);
      const std::optional<BigInt> value = ParseInteger(token.text, 0);
      if (!value) return SyntaxFault(token.line, "an integer of too many digits");
      e->constant = value->FitsInt64() ? Value::Int(value->ToInt64())
                                       : Value::Of(Kind::kBigInt, program_.constants.Keep(*value));
      return Done(e);
    }
    case TokenKind::kFloat: {
      tokens_.Take();
      Expr* e = New(ExprKind::kConstant, token.line);
      e->constant = Value::Float(ParseFloat(token.text).value_or(0));
      return Done(e);
    }
    case TokenKind::kOperator:
      if (token.text == "(") return ParenthesizedTuple();
      if (token.text == "[") return List();
      if (token.text == "{") return Dict();
      break;
    default:
      break;
  }
  return SyntaxFault(token.line, fmt::format("unexpected '{}'", TokenStream::Shown(token)));
}

Result<Expr*> ExpressionParser::TupleOf(Result<Expr*> (ExpressionParser::*item)(), std::string_view end_name,
                                        bool may_be_empty) {
  const int line = tokens_.line();
  std::vector<const Expr*> items;
  Expr* only = nullptr;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) CMF_CHECK(tokens_.ExpectSign(","));
    if (tokens_.Is(TokenKind::kVariableEnd) || tokens_.Is(TokenKind::kBlockEnd) || tokens_.IsSign(")") ||
        (!end_name.empty() && tokens_.IsName(end_name))) {
      break;
    }
    CMF_TRY(only, (this->*item)());
    items.push_back(only);
    if (!tokens_.IsSign(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (only != nullptr) return only;
    if (!may_be_empty) {
      return SyntaxFault(tokens_.line(), fmt::format("expected an expression, got '{}'",
                                                     TokenStream::Shown(tokens_.current())));
    }
  }
  Expr* e = New(ExprKind::kTuple, line);
  e->items = std::move(items);
  return Done(e);
}

Result<Expr*> ExpressionParser::Tuple(bool with_condition, std::string_view end_name) {
  CMF_CHECK(Enter(tokens_.line()));
  Result<Expr*> expr =
      TupleOf(with_condition ? &ExpressionParser::Condition : &ExpressionParser::NoCondition, end_name,
              /*may_be_empty=*/false);
  Leave();
  return expr;
}

Result<Expr*> ExpressionParser::ParenthesizedTuple() {
  CMF_CHECK(Enter(tokens_.Take().line));
  CMF_TRY(Expr* const expr, TupleOf(&ExpressionParser::Condition, {}, /*may_be_empty=*/true));
  Leave();
  CMF_CHECK(tokens_.ExpectSign(")"));
  return expr;
}

Result<Expr*> ExpressionParser::List() {
  Expr* e = New(ExprKind::kList, tokens_.Take().line);
  while (!tokens_.IsSign("]")) {
    if (!e->items.empty()) CMF_CHECK(tokens_.ExpectSign(","));
    if (tokens_.IsSign("]")) break;
    CMF_TRY(Expr* const item, Expression());
    e->items.push_back(item);
  }
  CMF_CHECK(tokens_.ExpectSign("]"));
  return Done(e);
}

Result<Expr*> ExpressionParser::Dict() {
  Expr* e = New(ExprKind::kDict, tokens_.Take().line);
  while (!tokens_.IsSign("}")) {
    if (!e->items.empty()) CMF_CHECK(tokens_.ExpectSign(","));
    if (tokens_.IsSign("}")) break;
    CMF_TRY(Expr* const key, Expression());
    CMF_CHECK(tokens_.ExpectSign(":"));
    CMF_TRY(Expr* const value, Expression());
    e->items.push_back(key);
    e->items.push_back(value);
  }
  CMF_CHECK(tokens_.ExpectSign("}"));
  return Done(e);
}

Result<Expr*> ExpressionParser::Postfix(Expr* node) {
  while (true) {
    if (tokens_.IsSign(".") || tokens_.IsSign("[")) {
      CMF_TRY(node, Subscript(node));
    } else if (tokens_.IsSign("(")) {
      CMF_TRY(node, Call(node));
    } else {
      return node;
    }
  }
}

Result<Expr*> ExpressionParser::FilterExpr(Expr* node) {
  while (true) {
    if (tokens_.IsSign("|")) {
      CMF_TRY(node, Filters(node));
    } else if (tokens_.IsName("is")) {
      CMF_TRY(node, Test(node));
    } else if (tokens_.IsSign("(")) {
      CMF_TRY(node, Call(node));
    } else {
      return node;
    }
  }
}

Result<Expr*> ExpressionParser::Subscript(Expr* node) {
  if (tokens_.IsSign("[")) return Index(node);
  const int line = tokens_.Take().line;
  const Token& name = tokens_.Take();
  if (name.kind == TokenKind::kName) {
    Expr* e = New(ExprKind::kAttribute, line);
    e->a = node;
    e->text = program_.Keep(name.text);
    return Done(e);
  }
  if (name.kind != TokenKind::kInteger) return SyntaxFault(name.line, "expected name or number");
  const std::optional<BigInt> number = ParseInteger(name.text, 0);
  if (!number || !number->FitsInt64()) return SyntaxFault(name.line, "an integer of too many digits");
  Expr* key = New(ExprKind::kConstant, name.line);
  key->constant = Value::Int(number->ToInt64());
  Expr* e = New(ExprKind::kItem, line);
  e->a = node;
  e->b = key;
  return Done(e);
}

Result<Expr*> ExpressionParser::Index(Expr* node) {
  const int line = tokens_.Take().line;
  Expr* slice = nullptr;
  std::vector<const Expr*> keys;
  while (!tokens_.IsSign("]")) {
    if (!keys.empty() || slice != nullptr) CMF_CHECK(tokens_.ExpectSign(","));
    if (slice != nullptr) return SyntaxFault(line, "a slice among several keys");
    std::vector<const Expr*> parts;
    Expr* first = nullptr;
    if (!tokens_.IsSign(":")) {
      CMF_TRY(first, Expression());
      if (!tokens_.IsSign(":")) {
        keys.push_back(first);
        continue;
      }
    }
    if (!keys.empty()) return SyntaxFault(line, "a slice among several keys");
    parts.push_back(first);
    const auto ends = [this] { return tokens_.IsSign(":") || tokens_.IsSign("]") || tokens_.IsSign(","); };
    while (parts.size() < 3 && tokens_.SkipSign(":")) {
      Expr* part = nullptr;
      if (!ends()) {
        CMF_TRY(part, Expression());
      }
      parts.push_back(part);
    }
    parts.resize(3);
    slice = New(ExprKind::kSlice, line);
    slice->a = node;
    slice->items = std::move(parts);
  }
  CMF_CHECK(tokens_.ExpectSign("]"));
  if (slice != nullptr) return Done(slice);
  Expr* e = New(ExprKind::kItem, line);
  e->a = node;
  if (keys.size() == 1) {
    e->b = keys[0];
  } else {
    Expr* tuple = New(ExprKind::kTuple, line);
    tuple->items = std::move(keys);
    CMF_TRY(e->b, Done(tuple));
  }
  return Done(e);
}

Result<CallArguments*> ExpressionParser::Arguments() {
  const int line = tokens_.line();
  CMF_CHECK(tokens_.ExpectSign("("));
  CallArguments& arguments = program_.calls.emplace_back();
  const auto bad = [line] { return SyntaxFault(line, "invalid syntax for function call expression"); };
  bool needs_comma = false;
  while (!tokens_.IsSign(")")) {
    if (needs_comma) {
      CMF_CHECK(tokens_.ExpectSign(","));
      if (tokens_.IsSign(")")) break;
    }
    if (tokens_.SkipSign("*")) {
      if (arguments.more != nullptr || arguments.more_named != nullptr) return bad();
      CMF_TRY(arguments.more, Expression());
    } else if (tokens_.SkipSign("**")) {
      if (arguments.more_named != nullptr) return bad();
      CMF_TRY(arguments.more_named, Expression());
    } else if (tokens_.Is(TokenKind::kName) && tokens_.NextIsSign("=")) {
      if (arguments.more_named != nullptr) return bad();
      const std::string_view name = program_.Keep(tokens_.Take().text);
      tokens_.Take();
      for (const CallArguments::Named& other : arguments.named) {
        if (other.name == name) return SyntaxFault(line, fmt::format("keyword argument '{}' repeated", name));
      }
      CMF_TRY(Expr* const value, Expression());
      arguments.named.push_back({name, value});
    } else {
      if (arguments.more != nullptr || arguments.more_named != nullptr || !arguments.named.empty())
        return bad();
      CMF_TRY(Expr* const value, Expression());
      arguments.positional.push_back(value);
    }
    needs_comma = true;
  }
  CMF_CHECK(tokens_.ExpectSign(")"));
  return &arguments;
}

Result<Expr*> ExpressionParser::Call(Expr* node) {
  Expr* e = New(ExprKind::kCall, tokens_.line());
  e->a = node;
  CMF_TRY(e->arguments, Arguments());
  return Done(e);
}

Result<std::string> ExpressionParser::DottedName() {
  CMF_TRY(const Token* const first, tokens_.Expect(TokenKind::kName));
  std::string name = first->text;
  while (tokens_.SkipSign(".")) {
    CMF_TRY(const Token* const part, tokens_.Expect(TokenKind::kName));
    name += "." + part->text;
  }
  return name;
}

Result<Expr*> ExpressionParser::Filters(Expr* node, bool first) {
  while (first || tokens_.SkipSign("|")) {
    first = false;
    Expr* e = New(ExprKind::kFilter, tokens_.line());
    CMF_TRY(std::string name, DottedName());
    e->a = node;
    e->text = program_.Keep(std::move(name));
    e->builtin = FindFilter(e->text);
    if (tokens_.IsSign("(")) {
      CMF_TRY(e->arguments, Arguments());
    }
    CMF_TRY(node, Done(e));
  }
  return node;
}

Result<Expr*> ExpressionParser::Test(Expr* node) {
  const int line = tokens_.Take().line;
  const bool is_negated = tokens_.SkipName("not");
  Expr* e = New(ExprKind::kTest, line);
  CMF_TRY(std::string name, DottedName());
  e->a = node;
  e->text = program_.Keep(std::move(name));
  e->builtin = FindTest(e->text);
  const bool starts_operand = tokens_.Is(TokenKind::kName) || tokens_.Is(TokenKind::kString) ||
                              tokens_.Is(TokenKind::kInteger) || tokens_.Is(TokenKind::kFloat) ||
                              tokens_.IsSign("[") || tokens_.IsSign("{");
  if (tokens_.IsSign("(")) {
    CMF_TRY(e->arguments, Arguments());
  } else if (starts_operand && !tokens_.IsAnyName({"else", "or", "and"})) {
    if (tokens_.IsName("is")) return SyntaxFault(tokens_.line(), "tests cannot be chained with 'is'");
    e->arguments = &program_.calls.emplace_back();
    CMF_CHECK(Enter(line));
    CMF_TRY(Expr * operand, Primary());
    CMF_TRY(operand, Postfix(operand));
    Leave();
    e->arguments->positional.push_back(operand);
  }
  CMF_TRY(e, Done(e));
  if (!is_negated) return e;
  Expr* negation = New(ExprKind::kNot, line);
  negation->a = e;
  return Done(negation);
}

Result<void> ExpressionParser::Store(Expr* target) {
  if (target->kind == ExprKind::kName) return {};
  if (target->kind == ExprKind::kTuple) {
    for (const Expr* item : target->items) CMF_CHECK(Store(const_cast<Expr*>(item)));
    return {};
  }
  return SyntaxFault(target->line, "can't assign to this expression");
}

Result<Expr*> ExpressionParser::Target(std::string_view end_name) {
  CMF_CHECK(Enter(tokens_.line()));
  CMF_TRY(Expr* const target, TupleOf(&ExpressionParser::Primary, end_name, /*may_be_empty=*/false));
  Leave();
  CMF_CHECK(Store(target));
  return target;
}

Result<Expr*> ExpressionParser::SetTarget() {
  if (!tokens_.NextIsSign(".")) return Target();
  CMF_TRY(const Token* const name, tokens_.Expect(TokenKind::kName));
  tokens_.Take();
  CMF_TRY(const Token* const attribute, tokens_.Expect(TokenKind::kName));
  Expr* e = New(ExprKind::kNamespaceTarget, name->line);
  e->text = program_.Keep(name->text);
  e->attribute = program_.Keep(attribute->text);
  return Done(e);
}

Result<std::string_view> ExpressionParser::TargetName() {
  CMF_TRY(const Token* const name, tokens_.Expect(TokenKind::kName));
  for (const std::string_view reserved : {"true", "false", "none", "True", "False", "None"}) {
    if (name->text == reserved) return SyntaxFault(name->line, fmt::format("can't assign to '{}'", reserved));
  }
  return program_.Keep(name->text);
}

}  // namespace cmforge::jinja
