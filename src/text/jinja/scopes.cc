// Two passes for every scope: first which names it has and what they are on entry, then binding what is
// inside.
#include "text/jinja/scopes.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "text/jinja/lexer.h"
#include "text/jinja/walk.h"

namespace cmforge::jinja {

void UndeclaredNames::Visit(const Statement& s) {
  if (s.kind == StatementKind::kBlock) return;
  AssignTarget(s.target);
  for (const Expr* target : s.targets) AssignTarget(target);
  if (s.value != nullptr) Visit(*s.value);
  for (const Expr* item : s.items) Visit(*item);
  if (s.macro != nullptr) VisitMacro(*s.macro);
  for (const Statement::Branch& branch : s.branches) {
    if (branch.test != nullptr) Visit(*branch.test);
    Visit(branch.body);
  }
  Visit(s.body);
  if (s.loop != nullptr) {
    AssignTarget(s.loop->target);
    Visit(*s.loop->iterable);
    Visit(s.loop->body);
    Visit(s.loop->otherwise);
    if (s.loop->test != nullptr) Visit(*s.loop->test);
  }
}

void UndeclaredNames::VisitMacro(const MacroSource& macro) {
  for (const MacroSource::Parameter& p : macro.parameters) Assign(p.name);
  for (const MacroSource::Parameter& p : macro.parameters) {
    if (p.otherwise != nullptr) Visit(*p.otherwise);
  }
  Visit(macro.body);
}

namespace {

struct LoadPlan {
  ScopeLoad::How how = ScopeLoad::How::kUnset;
  bool is_parameter = false;
  uint32_t source = 0;       // kAlias: slot …
  Function* home = nullptr;  // … of this function
  std::string_view name = {};
};

// Symbols copied for branches and scoped blocks, all together: keeps hostile templates from taking forever.
constexpr int64_t kMaxCopies = 20'000'000;

// The names of one scope. A branch of an `if` works on a copy.
struct Symbols {
  Symbols* parent = nullptr;
  Function* function = nullptr;
  int64_t* copies_left = nullptr;
  std::map<std::string_view, uint32_t> refs;  // name -> slot
  std::map<uint32_t, LoadPlan> loads;
  std::set<std::string_view> stores;
  std::shared_ptr<std::map<std::string_view, uint32_t>> slots =
      std::make_shared<std::map<std::string_view, uint32_t>>();  // one a name, for all copies

  struct Found {
    uint32_t slot = 0;
    Function* function = nullptr;
    uint32_t hops = 0;
  };
  [[nodiscard]] std::optional<Found> Find(std::string_view name) const {
    uint32_t hops = 0;
    for (const Symbols* s = this; s != nullptr; s = s->parent) {
      if (const auto it = s->refs.find(name); it != s->refs.end())
        return Found{it->second, s->function, hops};
      if (s->parent != nullptr && s->parent->function != s->function) ++hops;
    }
    return std::nullopt;
  }

  uint32_t Define(std::string_view name, const LoadPlan& load) {
    const auto [it, is_new] = slots->try_emplace(name, function->slots);
    if (is_new) ++function->slots;
    refs[name] = it->second;
    loads[it->second] = load;
    return it->second;
  }

  uint32_t Declare(std::string_view name) {
    stores.insert(name);
    return Define(name, {.is_parameter = true});
  }

  void Load(std::string_view name) {
    if (!Find(name)) Define(name, {.how = ScopeLoad::How::kResolve, .name = name});
  }

  void Store(std::string_view name) {
    stores.insert(name);
    if (refs.contains(name)) return;
    Define(name, Outer(name).value_or(LoadPlan{}));
  }

  [[nodiscard]] std::optional<LoadPlan> Outer(std::string_view name) const {
    if (parent == nullptr) return std::nullopt;
    const std::optional<Found> outer = parent->Find(name);
    if (!outer) return std::nullopt;
    return LoadPlan{
        .how = ScopeLoad::How::kAlias, .source = outer->slot, .home = outer->function, .name = name};
  }

  // After an `if`: a name that not every branch set is, on entry, what it is outside.
  void Merge(const std::vector<Symbols>& branches) {
    std::map<std::string_view, size_t> counts;
    for (const Symbols& branch : branches) {
      for (const std::string_view name : branch.stores) {
        if (!stores.contains(name)) ++counts[name];
      }
    }
    for (const Symbols& branch : branches) {
      for (const auto& [name, slot] : branch.refs) refs[name] = slot;
      for (const auto& [slot, load] : branch.loads) loads[slot] = load;
      stores.insert(branch.stores.begin(), branch.stores.end());
    }
    for (const auto& [name, count] : counts) {
      if (count == branches.size()) continue;
      const uint32_t slot = Find(name)->slot;
      loads[slot] = Outer(name).value_or(LoadPlan{.how = ScopeLoad::How::kResolve, .name = name});
    }
  }

  // Hops from a scope of this function to the function `home`.
  [[nodiscard]] uint32_t HopsTo(const Function* home) const {
    uint32_t hops = 0;
    for (const Symbols* s = this; s != nullptr && s->function != home; s = s->parent) {
      if (s->parent != nullptr && s->parent->function != s->function) ++hops;
    }
    return hops;
  }

  [[nodiscard]] Scope Plan() const {
    Scope scope;
    for (const auto& [slot, load] : loads) {
      if (load.is_parameter) continue;
      ScopeLoad l{.how = load.how, .slot = slot, .source = {}, .name = load.name};
      if (load.how == ScopeLoad::How::kAlias) l.source = {HopsTo(load.home), load.source};
      scope.push_back(l);
    }
    return scope;
  }
};

class Binder {
 public:
  explicit Binder(Program* program) : program_(*program) {}

  Result<void> Run() {
    Symbols root;
    root.function = &program_.function;
    root.copies_left = &copies_left_;
    UndeclaredNames undeclared({"self"});
    undeclared.Visit(program_.body);
    program_.uses_self = undeclared.found("self");
    if (program_.uses_self) program_.self_slot = root.Declare("self");
    Collect(program_.body, &root);
    Frame frame{.symbols = &root, .is_top = true};
    CMF_CHECK(BindBody(program_.body, frame));
    program_.scope = root.Plan();
    for (Block& block : program_.blocks) CMF_CHECK(BindBlock(&block));
    if (copies_left_ >= 0) return {};
    return Fail(ErrorKind::kLimit, "1: too many branches and names", error_name::kLimitReached);
  }

 private:
  struct Frame {
    Symbols* symbols = nullptr;
    bool is_top = false;   // assignments are exported
    bool is_soft = false;  // inside a branch: unknown filters are said when reached
    bool in_loop = false;  // break and continue have a loop to act on

    [[nodiscard]] Frame Inner(Symbols* inner) const { return {.symbols = inner, .in_loop = in_loop}; }
    [[nodiscard]] Frame Soft() const {
      Frame f = *this;
      f.is_soft = true;
      return f;
    }
  };

  static Symbols Child(Symbols* parent) {
    Symbols s;
    s.parent = parent;
    s.function = parent->function;
    s.copies_left = parent->copies_left;
    return s;
  }
  static Symbols ChildFunction(Symbols* parent, Function* function) {
    Symbols s = Child(parent);
    s.function = function;
    parent->function->has_inner = true;
    return s;
  }

  // ---- first pass: the names of one scope, not looking into inner ones ----

  static void CollectExpr(const Expr& expr, Symbols* symbols) {
    if (expr.kind == ExprKind::kName) symbols->Load(expr.text);
    ForEachPart(expr, [symbols](const Expr& part) { CollectExpr(part, symbols); });
  }

  static void CollectTarget(const Expr& target, Symbols* symbols) {
    if (target.kind == ExprKind::kNamespaceTarget) symbols->Load(target.text);
    ForEachTargetName(target, [symbols](const Expr& name) { symbols->Store(name.text); });
  }

  static void Collect(const Body& body, Symbols* symbols) {
    for (const Statement* s : body) Collect(*s, symbols);
  }

  static void Collect(const Statement& s, Symbols* symbols) {
    switch (s.kind) {
      case StatementKind::kOutput:
      case StatementKind::kWith:
        for (const Expr* item : s.items) CollectExpr(*item, symbols);
        return;
      case StatementKind::kSet:
        CollectExpr(*s.value, symbols);
        CollectTarget(*s.target, symbols);
        return;
      case StatementKind::kSetBlock:
        CollectTarget(*s.target, symbols);
        return;
      case StatementKind::kFor:
        CollectExpr(*s.loop->iterable, symbols);
        return;
      case StatementKind::kIf:
        CollectIf(s, 0, symbols);
        return;
      case StatementKind::kMacro:
        symbols->Store(s.target->text);
        return;
      case StatementKind::kCallBlock:
      case StatementKind::kFilterBlock:
        CollectExpr(*s.value, symbols);
        return;
      case StatementKind::kLoader:
        CollectExpr(*s.value, symbols);
        for (const std::string_view name : s.names) symbols->Store(name);
        return;
      case StatementKind::kGeneration:
      case StatementKind::kBlock:
      case StatementKind::kAutoescape:
      case StatementKind::kBreak:
      case StatementKind::kContinue:
        return;
    }
  }

  // An elif counts as an `if` with neither elif nor else of its own: three branches, the body, all the
  // elifs together, the else.
  static void CollectIf(const Statement& s, size_t at, Symbols* symbols) {
    CollectExpr(*s.branches[at].test, symbols);
    *symbols->copies_left -= 3 * static_cast<int64_t>(symbols->refs.size() + 1);
    if (*symbols->copies_left < 0) return;
    std::vector<Symbols> branches(3, *symbols);
    Collect(s.branches[at].body, &branches[0]);
    if (at == 0) {
      for (size_t i = 1; i < s.branches.size(); ++i) {
        if (s.branches[i].test == nullptr) {
          Collect(s.branches[i].body, &branches[2]);
        } else {
          CollectIf(s, i, &branches[1]);
        }
      }
    }
    symbols->Merge(branches);
  }

  // ---- second pass: binding ----

  Result<void> BindExpr(const Expr& shared, const Frame& frame) {
    Expr& expr = const_cast<Expr&>(shared);  // owned by the program that is being made
    if (expr.kind == ExprKind::kName || expr.kind == ExprKind::kNamespaceTarget) {
      const std::optional<Symbols::Found> found = frame.symbols->Find(expr.text);
      if (!found) return SyntaxFault(expr.line, fmt::format("the name '{}' cannot be used here", expr.text));
      expr.variable = {found->hops, found->slot};
    }
    const bool names_function = expr.kind == ExprKind::kFilter || expr.kind == ExprKind::kTest;
    if (names_function && expr.builtin == nullptr && !frame.is_soft) {
      return SyntaxFault(
          expr.line,
          fmt::format("no {} named '{}'", expr.kind == ExprKind::kFilter ? "filter" : "test", expr.text));
    }
    const Frame inside = expr.kind == ExprKind::kCondition ? frame.Soft() : frame;
    Result<void> result;
    ForEachPart(expr, [&](const Expr& part) {
      if (result) result = BindExpr(part, inside);
    });
    return result;
  }

  Result<void> BindBody(const Body& body, const Frame& frame) {
    for (const Statement* s : body) CMF_CHECK(BindStatement(const_cast<Statement&>(*s), frame));
    return {};
  }

  // A construct with a scope of its own inside the same function.
  Result<void> BindScoped(Statement& s, const Frame& frame) {
    Symbols inner = Child(frame.symbols);
    for (const Expr* target : s.targets) {
      ForEachTargetName(*target, [&inner](const Expr& name) { inner.Declare(name.text); });
    }
    if (s.kind == StatementKind::kAutoescape) CollectExpr(*s.value, &inner);
    Collect(s.body, &inner);
    if (s.kind == StatementKind::kFilterBlock || (s.kind == StatementKind::kSetBlock && s.value != nullptr)) {
      CollectExpr(*s.value, &inner);
    }
    const Frame inside = frame.Inner(&inner);
    for (const Expr* target : s.targets) CMF_CHECK(BindExpr(*target, inside));
    for (const Expr* value : s.items) CMF_CHECK(BindExpr(*value, frame));
    CMF_CHECK(BindBody(s.body, inside));
    if (s.value != nullptr) CMF_CHECK(BindExpr(*s.value, inside));
    s.scope = inner.Plan();
    return {};
  }

  Result<void> BindStatement(Statement& s, const Frame& frame) {
    s.exports = frame.is_top;
    switch (s.kind) {
      case StatementKind::kOutput:
        for (const Expr* item : s.items) CMF_CHECK(BindExpr(*item, frame));
        return {};
      case StatementKind::kSet:
        CMF_CHECK(BindExpr(*s.target, frame));
        return BindExpr(*s.value, frame);
      case StatementKind::kSetBlock:
        CMF_CHECK(BindScoped(s, frame));
        return BindExpr(*s.target, frame);
      case StatementKind::kWith:
      case StatementKind::kFilterBlock:
      case StatementKind::kAutoescape:
        return BindScoped(s, frame);
      case StatementKind::kFor:
        return BindFor(s, frame);
      case StatementKind::kIf:
        for (const Statement::Branch& branch : s.branches) {
          if (branch.test != nullptr) CMF_CHECK(BindExpr(*branch.test, frame.Soft()));
          CMF_CHECK(BindBody(branch.body, frame.Soft()));
        }
        return {};
      case StatementKind::kMacro:
        CMF_CHECK(BindExpr(*s.target, frame));
        return BindMacro(s.macro, s.line, frame);
      case StatementKind::kCallBlock:
        CMF_CHECK(BindMacro(s.macro, s.line, frame));
        return BindExpr(*s.value, frame);
      case StatementKind::kGeneration:
        return BindMacro(s.macro, s.line, frame);
      case StatementKind::kBlock:
        if (s.block->is_scoped) NoteVisible(s.block, *frame.symbols);
        return {};
      case StatementKind::kLoader:
        return BindExpr(*s.value, frame);
      case StatementKind::kBreak:
      case StatementKind::kContinue:
        if (!frame.in_loop) {
          return SyntaxFault(s.line, s.kind == StatementKind::kBreak ? "'break' outside of a loop"
                                                                     : "'continue' outside of a loop");
        }
        return {};
    }
    return {};
  }

  static Result<void> RefuseLoopAssignment(const Body& body) {
    for (const Statement* s : body) {
      const Expr* bad = nullptr;
      const auto check = [&bad](const Expr& name) {
        if (name.text == "loop") bad = &name;
      };
      if (s->target != nullptr && s->kind != StatementKind::kMacro) ForEachTargetName(*s->target, check);
      if (s->loop != nullptr) ForEachTargetName(*s->loop->target, check);
      if (bad != nullptr)
        return SyntaxFault(bad->line, "can't assign to the special loop variable inside a for loop");
      CMF_CHECK(RefuseLoopAssignment(s->body));
      for (const Statement::Branch& branch : s->branches) CMF_CHECK(RefuseLoopAssignment(branch.body));
      if (s->macro != nullptr) CMF_CHECK(RefuseLoopAssignment(s->macro->body));
      if (s->block != nullptr) CMF_CHECK(RefuseLoopAssignment(s->block->body));
      if (s->loop != nullptr) {
        CMF_CHECK(RefuseLoopAssignment(s->loop->body));
        CMF_CHECK(RefuseLoopAssignment(s->loop->otherwise));
      }
    }
    return {};
  }

  static bool HasScopedBlock(const Body& body) {
    return std::any_of(body.begin(), body.end(), [](const Statement* s) {
      if (s->block != nullptr && (s->block->is_scoped || HasScopedBlock(s->block->body))) return true;
      if (s->macro != nullptr && HasScopedBlock(s->macro->body)) return true;
      if (s->loop != nullptr && (HasScopedBlock(s->loop->body) || HasScopedBlock(s->loop->otherwise)))
        return true;
      for (const Statement::Branch& branch : s->branches) {
        if (HasScopedBlock(branch.body)) return true;
      }
      return HasScopedBlock(s->body);
    });
  }

  Result<void> BindFor(Statement& s, const Frame& frame) {
    ForNode& loop = *s.loop;
    // A recursive body is a function of its own, its variables anew in every call.
    Symbols body = loop.is_recursive ? ChildFunction(frame.symbols, &loop.function) : Child(frame.symbols);
    UndeclaredNames undeclared({"loop"});
    undeclared.Visit(loop.body);
    loop.uses_loop = loop.is_recursive || undeclared.found("loop") || HasScopedBlock(loop.body) ||
                     HasScopedBlock(loop.otherwise);
    if (loop.uses_loop) loop.loop = {0, body.Declare("loop")};
    const auto declare = [](const Expr& target, Symbols* symbols) {
      ForEachTargetName(target, [symbols](const Expr& name) { symbols->Declare(name.text); });
    };
    declare(*loop.target, &body);
    Collect(loop.body, &body);
    bool assigns_loop = false;
    ForEachTargetName(*loop.target, [&](const Expr& name) { assigns_loop |= name.text == "loop"; });
    if (assigns_loop)
      return SyntaxFault(s.line, "can't assign to the special loop variable in a for loop target");
    CMF_CHECK(RefuseLoopAssignment(loop.body));
    CMF_CHECK(RefuseLoopAssignment(loop.otherwise));

    Frame inside = frame.Inner(&body);
    inside.in_loop = true;
    CMF_CHECK(BindExpr(*loop.target, inside));
    CMF_CHECK(BindBody(loop.body, inside));

    // The test and the else branch hang on the scope around the loop; in a recursive loop they run inside of
    // its function.
    Symbols around = loop.is_recursive ? ChildFunction(frame.symbols, &loop.function) : Child(frame.symbols);
    Symbols* const outside = loop.is_recursive ? &around : frame.symbols;
    if (loop.test != nullptr) {
      Symbols test = Child(outside);
      outside->function->has_inner = true;  // a loop object that got out still asks the test
      loop.test_target = CopyTarget(*loop.target);
      declare(*loop.test_target, &test);
      CollectExpr(*loop.test, &test);
      const Frame test_frame = frame.Inner(&test);
      CMF_CHECK(BindExpr(*loop.test_target, test_frame));
      CMF_CHECK(BindExpr(*loop.test, test_frame));
      loop.test_scope = test.Plan();
    }
    if (!loop.otherwise.empty()) {
      Symbols otherwise = Child(outside);
      Collect(loop.otherwise, &otherwise);
      Frame else_frame = frame.Inner(&otherwise);
      if (loop.is_recursive) else_frame.in_loop = false;
      CMF_CHECK(BindBody(loop.otherwise, else_frame));
      loop.otherwise_scope = otherwise.Plan();
    }
    loop.scope = body.Plan();
    return BindExpr(*loop.iterable, frame);
  }

  const Expr* CopyTarget(const Expr& target) {
    Expr& copy = program_.exprs.emplace_back(target);
    for (const Expr*& item : copy.items) item = CopyTarget(*item);
    return &copy;
  }

  Result<void> BindMacro(MacroSource* macro, int line, const Frame& frame) {
    Symbols inner = ChildFunction(frame.symbols, &macro->function);
    UndeclaredNames undeclared({"caller", "kwargs", "varargs"});
    undeclared.Visit(macro->body);
    for (MacroSource::Parameter& p : macro->parameters) p.slot = inner.Declare(p.name);
    const auto parameter = [macro](std::string_view name) {
      return std::find_if(macro->parameters.begin(), macro->parameters.end(),
                          [name](const MacroSource::Parameter& p) { return p.name == name; });
    };
    if (undeclared.found("caller")) {
      const auto given = parameter("caller");
      if (given == macro->parameters.end()) {
        macro->caller_slot = inner.Declare("caller");
      } else if (given->otherwise == nullptr) {
        return SyntaxFault(line,
                           "the special 'caller' argument of a macro must be omitted or be given a default");
      }
      macro->takes_caller = true;
    }
    if (undeclared.found("kwargs") && parameter("kwargs") == macro->parameters.end()) {
      macro->kwargs_slot = inner.Declare("kwargs");
      macro->takes_kwargs = true;
    }
    if (undeclared.found("varargs") && parameter("varargs") == macro->parameters.end()) {
      macro->varargs_slot = inner.Declare("varargs");
      macro->takes_varargs = true;
    }
    for (const MacroSource::Parameter& p : macro->parameters) {
      if (p.otherwise != nullptr) CollectExpr(*p.otherwise, &inner);
    }
    Collect(macro->body, &inner);
    const Frame inside{.symbols = &inner};
    for (const MacroSource::Parameter& p : macro->parameters) {
      if (p.otherwise != nullptr) CMF_CHECK(BindExpr(*p.otherwise, inside));
    }
    CMF_CHECK(BindBody(macro->body, inside));
    macro->scope = inner.Plan();
    return {};
  }

  static void NoteVisible(Block* block, const Symbols& place) {
    std::set<std::string_view> seen;
    for (const Symbols* s = &place; s != nullptr; s = s->parent) {
      for (const std::string_view name : s->stores) {
        if (!seen.insert(name).second || --*place.copies_left < 0) continue;
        const std::optional<Symbols::Found> found = place.Find(name);
        if (found) block->visible.push_back({name, {found->hops, found->slot}});
      }
    }
  }

  Result<void> BindBlock(Block* block) {
    Symbols symbols;
    symbols.function = &block->function;
    symbols.copies_left = &copies_left_;
    UndeclaredNames undeclared({"self", "super"});
    undeclared.Visit(block->body);
    block->uses_self = undeclared.found("self");
    block->uses_super = undeclared.found("super");
    if (block->uses_self) block->self_slot = symbols.Declare("self");
    if (block->uses_super) block->super_slot = symbols.Declare("super");
    Collect(block->body, &symbols);
    CMF_CHECK(BindBody(block->body, Frame{.symbols = &symbols}));
    block->scope = symbols.Plan();
    return {};
  }

  Program& program_;
  int64_t copies_left_ = kMaxCopies;
};

}  // namespace

Result<void> BindNames(Program* program) { return Binder(program).Run(); }

}  // namespace cmforge::jinja
