// Visits the parts of expressions and statements in Jinja's order, for passes over a parsed template.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <vector>

#include "text/jinja/program.h"

namespace cmforge::jinja {

/// Calls visit(const Expr&) for every direct part of `expr`.
template <class Visit>
void ForEachPart(const Expr& expr, Visit&& visit) {
  const auto take = [&visit](const Expr* part) {
    if (part != nullptr) visit(*part);
  };
  take(expr.a);
  take(expr.b);
  take(expr.c);
  for (const Expr* part : expr.items) take(part);
  if (expr.arguments == nullptr) return;
  for (const Expr* part : expr.arguments->positional) take(part);
  for (const CallArguments::Named& named : expr.arguments->named) take(named.value);
  take(expr.arguments->more);
  take(expr.arguments->more_named);
}

/// The names a target assigns.
template <class Visit>
void ForEachTargetName(const Expr& target, Visit&& visit) {
  if (target.kind == ExprKind::kName) visit(target);
  if (target.kind == ExprKind::kTuple) {
    for (const Expr* item : target.items) ForEachTargetName(*item, visit);
  }
}

/// Which of `wanted` (at most a few) are read before they are assigned, anywhere inside but in blocks.
class UndeclaredNames {
 public:
  explicit UndeclaredNames(std::initializer_list<std::string_view> wanted) : open_(wanted) {}

  [[nodiscard]] bool found(std::string_view name) const {
    return std::find(found_.begin(), found_.end(), name) != found_.end();
  }

  void Visit(const Body& body) {
    for (const Statement* s : body) Visit(*s);
  }
  void Visit(const Statement& s);
  void Visit(const Expr& expr) {
    if (expr.kind == ExprKind::kName && IsOpen(expr.text)) found_.push_back(expr.text);
    ForEachPart(expr, [this](const Expr& part) { Visit(part); });
  }

 private:
  [[nodiscard]] bool IsOpen(std::string_view name) const {
    return std::find(open_.begin(), open_.end(), name) != open_.end();
  }
  void Assign(std::string_view name) { std::erase(open_, name); }
  void AssignTarget(const Expr* target) {
    if (target != nullptr) ForEachTargetName(*target, [this](const Expr& name) { Assign(name.text); });
  }
  void VisitMacro(const MacroSource& macro);

  std::vector<std::string_view> open_;
  std::vector<std::string_view> found_;
};

}  // namespace cmforge::jinja
