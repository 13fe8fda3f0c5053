// Budget and faults of one rendering.
#include "text/jinja/runtime.h"

namespace cmforge::jinja {

Result<void> Runtime::Reserve(uint64_t bytes) {
  const auto limit = static_cast<uint64_t>(options.limits.memory_bytes);
  const auto used = static_cast<uint64_t>(heap.used_bytes());
  if (used > limit || bytes > limit - used) return LimitFault();
  if (!Spend(static_cast<int64_t>(bytes / 16))) return LimitFault();
  return {};
}

tl::unexpected<Error> Runtime::LimitFault() const {
  std::string message =
      heap.used_bytes() > options.limits.memory_bytes || steps_left_ >= 0
          ? fmt::format("the template needs more than {} bytes of memory", options.limits.memory_bytes)
          : fmt::format("the template takes more than {} steps", options.limits.steps);
  return Fail(ErrorKind::kLimit, std::move(message), error_name::kLimitReached);
}

Result<Value> Runtime::Text(std::string_view text) {
  CMF_CHECK(Reserve(text.size()));
  return View(heap.CopyText(text));
}

Result<Value> Runtime::NewList(std::span<const Value> items, Kind kind) {
  CMF_CHECK(Reserve(items.size_bytes()));
  List* list = heap.New<List>();
  const std::span<Value> copy = heap.NewArray<Value>(items.size());
  for (size_t i = 0; i < items.size(); ++i) copy[i] = items[i];
  *list = {copy.data(), copy.size(), copy.size()};
  return Value::Of(kind, list);
}

Value Runtime::NoAttribute(const Value& owner, std::string_view name) {
  std::string_view object = "None";
  if (!owner.is_none()) object = heap.CopyText(fmt::format("'{} object'", TypeName(owner)));
  return NewUndefined({.owner = object, .name = heap.CopyText(name)});
}

tl::unexpected<Error> Fault(std::string_view name, std::string message) {
  return Fail(ErrorKind::kCorrupt, std::move(message), name);
}

tl::unexpected<Error> UndefinedFault(const Value& value) {
  const Undefined& u = *value.undefined;
  const std::string_view name = u.is_security ? error_name::kSecurity : error_name::kUndefined;
  if (!u.hint.empty()) return Fault(name, std::string(u.hint));
  if (u.owner.empty()) return Fault(name, fmt::format("'{}' is undefined", u.name));
  if (u.name_is_string) return Fault(name, fmt::format("{} has no attribute '{}'", u.owner, u.name));
  return Fault(name, fmt::format("{} has no element {}", u.owner, u.name));
}

tl::unexpected<Error> DepthFault() {
  return Fail(ErrorKind::kLimit, "nested too deep", error_name::kLimitReached);
}

std::string_view TypeName(const Value& value) {
  switch (value.kind) {
    case Kind::kMissing:
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
    case Kind::kBigInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return value.special ? "Markup" : "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kDictView:
      switch (value.view->what) {
        case DictView::What::kKeys:
          return "dict_keys";
        case DictView::What::kValues:
          return "dict_values";
        case DictView::What::kItems:
          return "dict_items";
      }
      return "dict_items";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kRange:
      return "range";
    case Kind::kIterator:
      return "generator";
    case Kind::kBuiltin:
      return "function";
    case Kind::kMethod:
      return "builtin_function_or_method";
    case Kind::kMacro:
      return "Macro";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kCycler:
      return "Cycler";
    case Kind::kJoiner:
      return "Joiner";
    case Kind::kBlock:
      return "BlockReference";
    case Kind::kSelf:
      return "TemplateReference";
  }
  return "object";
}

}  // namespace cmforge::jinja
