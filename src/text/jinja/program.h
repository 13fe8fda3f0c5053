// A parsed template: expressions and statements whose names are already bound to variables. Immutable once
// parsed; any number of renderings share it.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/callables.h"
#include "text/jinja/heap.h"
#include "text/jinja/numbers.h"
#include "text/jinja/value.h"

namespace cmforge::jinja {

/// Where a name lives: `hops` functions outwards, then the slot of that activation.
struct Variable {
  uint32_t hops = 0;
  uint32_t slot = 0;
};

/// What the variables of a scope are when it is entered.
struct ScopeLoad {
  enum class How : uint8_t {
    kUnset,    // no value yet
    kAlias,    // the value of the same name outside
    kResolve,  // from the context
  };
  How how = How::kUnset;
  uint32_t slot = 0;
  Variable source;        // kAlias
  std::string_view name;  // kResolve
};
using Scope = std::vector<ScopeLoad>;

/// What runs with variables of its own: the template, a block, a macro, a recursive loop.
struct Function {
  uint32_t slots = 0;
  bool has_inner = false;  // functions inside may keep its variables alive
};

enum class ExprKind : uint8_t {
  kConstant,
  kName,
  kNamespaceTarget,  // {% set text.attribute = … %}; `variable` is the namespace, `attribute` the member
  kTuple,
  kList,
  kDict,  // items: key, value, key, value, …
  kNegate,
  kPlus,
  kNot,
  kBinary,
  kAnd,
  kOr,
  kConcat,     // items
  kCompare,    // items[0] op[0] items[1] op[1] …
  kCondition,  // a if b else c; c may be null
  kAttribute,  // a.text
  kItem,       // a[b]
  kSlice,      // a[items[0]:items[1]:items[2]], null for what is left out
  kCall,       // a(…)
  kFilter,     // a|text(…); a is null in a filter block
  kTest,       // a is text(…)
};

enum class Comparison : uint8_t {
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn
};

struct Expr;

struct CallArguments {
  struct Named {
    std::string_view name;
    const Expr* value = nullptr;
  };
  std::vector<const Expr*> positional;
  std::vector<Named> named;
  const Expr* more = nullptr;        // *more
  const Expr* more_named = nullptr;  // **more_named
};

struct Expr {
  ExprKind kind = ExprKind::kConstant;
  Operator op = Operator::kAdd;  // kBinary
  int line = 0;
  int height = 0;  // nesting below: bounded by the parser
  std::string_view text;
  std::string_view attribute;
  Value constant;
  Variable variable;
  const Expr* a = nullptr;
  const Expr* b = nullptr;
  const Expr* c = nullptr;
  std::vector<const Expr*> items;
  std::vector<Comparison> comparisons;
  CallArguments* arguments = nullptr;
  const Builtin* builtin = nullptr;  // kFilter, kTest; null: no such, said when reached
};

struct Statement;
using Body = std::vector<const Statement*>;

struct ForNode {
  const Expr* target = nullptr;
  const Expr* iterable = nullptr;
  const Expr* test = nullptr;         // for … if test
  const Expr* test_target = nullptr;  // the target again, bound to the test's own variables
  bool is_recursive = false;
  bool uses_loop = false;
  Variable loop;  // when uses_loop
  Body body;
  Body otherwise;
  Scope scope, test_scope, otherwise_scope;
  Function function;  // when recursive
};

struct MacroSource {
  struct Parameter {
    std::string_view name;
    uint32_t slot = 0;
    const Expr* otherwise = nullptr;
  };
  std::string_view name;  // empty: a call block
  std::vector<Parameter> parameters;
  bool takes_caller = false, takes_kwargs = false, takes_varargs = false;
  uint32_t caller_slot = 0, kwargs_slot = 0, varargs_slot = 0;
  Body body;
  Scope scope;
  Function function;
};

struct Block {
  std::string_view name;
  bool is_scoped = false;
  bool is_required = false;
  int line = 0;
  Body body;
  Scope scope;
  Function function;
  /// Of a scoped block: the variables around it, by name.
  std::vector<std::pair<std::string_view, Variable>> visible;
  bool uses_self = false, uses_super = false;
  uint32_t self_slot = 0, super_slot = 0;
};

enum class StatementKind : uint8_t {
  kOutput,    // items
  kSet,       // target = value
  kSetBlock,  // target = body, through `value` (a chain of filters) if there is one
  kFor,
  kIf,    // branches in order; the last may have no test
  kWith,  // targets, values
  kMacro,
  kCallBlock,   // value is the call
  kGeneration,  // body in a scope of its own
  kFilterBlock,
  kBlock,
  kAutoescape,  // value
  kLoader,      // include, import, extends: there is nothing to load from
  kBreak,
  kContinue,
};

struct Statement {
  StatementKind kind = StatementKind::kOutput;
  int line = 0;
  bool exports = false;  // at the template's top: assigned names are seen by blocks
  const Expr* target = nullptr;
  const Expr* value = nullptr;
  std::vector<const Expr*> items;  // kOutput; values of kWith
  std::vector<const Expr*> targets;
  std::vector<std::string_view> names;  // what a kLoader would define
  struct Branch {
    const Expr* test = nullptr;
    Body body;
  };
  std::vector<Branch> branches;
  Body body;
  Scope scope;
  ForNode* loop = nullptr;
  MacroSource* macro = nullptr;
  Block* block = nullptr;
};

struct Program {
  std::string name;
  std::deque<std::string> texts;  // what views below point to
  Heap constants;
  std::deque<Expr> exprs;
  std::deque<CallArguments> calls;
  std::deque<Statement> statements;
  std::deque<ForNode> loops;
  std::deque<MacroSource> macros;
  std::deque<Block> blocks;
  Body body;
  Scope scope;
  Function function;
  bool uses_self = false;
  uint32_t self_slot = 0;
  bool has_surrogates = false;  // escapes made some: the output has to be checked

  std::string_view Keep(std::string text) { return texts.emplace_back(std::move(text)); }
};

const Block* FindBlock(const Program& program, std::string_view name);

/// Lexes, parses and binds.
Result<std::shared_ptr<const Program>> ParseProgram(std::string_view source, std::string_view name,
                                                    const TemplateOptions& options);

}  // namespace cmforge::jinja
