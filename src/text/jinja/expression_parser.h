// The expression half of the grammar.
#pragma once

#include "base/result.h"
#include "text/jinja/program.h"
#include "text/jinja/token_stream.h"

namespace cmforge::jinja {

class ExpressionParser {
 public:
  ExpressionParser(TokenStream& tokens, Program* program) : tokens_(tokens), program_(*program) {}

  /// One expression, with `a if b else c` unless told otherwise.
  Result<Expr*> Expression(bool with_condition = true);
  /// One expression, or several with commas as a tuple. `end_name` ends it besides the closing tokens.
  Result<Expr*> Tuple(bool with_condition = true, std::string_view end_name = {});
  /// What stands left of `=` or between `for` and `in`: names, tuples of names.
  Result<Expr*> Target(std::string_view end_name = {});
  /// `name` or `namespace.name` or a tuple, for {% set %}.
  Result<Expr*> SetTarget();
  Result<std::string_view> TargetName();
  /// |name(…)|name… behind `node`; null: of a filter or set block. `first`: the first name comes without |.
  Result<Expr*> Filters(Expr* node, bool first = false);

  /// Counts nesting of blocks and brackets; fails beyond kMaxNesting.
  Result<void> Enter(int line);
  void Leave() { --nesting_; }

 private:
  Expr* New(ExprKind kind, int line);
  Result<Expr*> Done(Expr* expr);  // sets the height

  Result<Expr*> Condition();
  Result<Expr*> Or();
  Result<Expr*> And();
  Result<Expr*> Not();
  Result<Expr*> Compare();
  Result<Expr*> Sum();
  Result<Expr*> Concat();
  Result<Expr*> Product();
  Result<Expr*> Power();
  Result<Expr*> Unary(bool with_filter);
  Result<Expr*> Primary();
  Result<Expr*> ParenthesizedTuple();
  Result<Expr*> TupleOf(Result<Expr*> (ExpressionParser::*item)(), std::string_view end_name,
                        bool may_be_empty);
  Result<Expr*> NoCondition() { return Or(); }
  Result<Expr*> List();
  Result<Expr*> Dict();
  Result<Expr*> Postfix(Expr* node);
  Result<Expr*> FilterExpr(Expr* node);
  Result<Expr*> Subscript(Expr* node);
  Result<Expr*> Index(Expr* node);
  Result<Expr*> Call(Expr* node);
  Result<Expr*> Test(Expr* node);
  Result<CallArguments*> Arguments();
  Result<std::string> DottedName();
  Result<Expr*> Binary(Operator op, Expr* left, Expr* right, int line);
  Result<void> Store(Expr* target);
  Value String(std::string_view text);

  TokenStream& tokens_;
  Program& program_;
  int nesting_ = 0;
};

}  // namespace cmforge::jinja
