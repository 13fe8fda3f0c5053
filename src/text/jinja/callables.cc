// Binding arguments to parameters.
#include "text/jinja/callables.h"

namespace cmforge::jinja {
namespace {

struct Parameter {
  std::string_view name;
  bool is_optional = false;
  bool is_positional_only = false;
};

// Takes the next word off the list.
std::string_view NextWord(std::string_view* list) {
  const size_t begin = std::min(list->find_first_not_of(' '), list->size());
  list->remove_prefix(begin);
  const size_t end = std::min(list->find(' '), list->size());
  const std::string_view word = list->substr(0, end);
  list->remove_prefix(end);
  return word;
}

Result<void> Bind(const Builtin& builtin, const Arguments& arguments, Bound* bound) {
  size_t count = 0;
  bool takes_rest = false;
  bool takes_named_rest = false;
  std::array<Parameter, kMaxParameters> parameters;
  for (std::string_view list = builtin.parameters; !list.empty();) {
    std::string_view word = NextWord(&list);
    if (word.empty()) break;
    if (word == "*") {
      takes_rest = true;
    } else if (word == "**") {
      takes_named_rest = true;
    } else {
      Parameter p;
      if (word.front() == '/') {
        p.is_positional_only = true;
        word.remove_prefix(1);
      }
      if (word.back() == '?') {
        p.is_optional = true;
        word.remove_suffix(1);
      }
      p.name = word;
      parameters[count++] = p;
    }
  }
  const size_t given = arguments.positional.size();
  for (size_t i = 0; i < std::min(count, given); ++i) bound->values[i] = arguments.positional[i];
  if (given > count) {
    if (!takes_rest) {
      return RuntimeFault("TypeError: {}() takes at most {} arguments ({} given)", builtin.name, count,
                          given);
    }
    bound->rest = arguments.positional.subspan(count);
  }
  for (const NamedValue& named : arguments.named) {
    size_t i = 0;
    while (i < count && (parameters[i].name != named.name || parameters[i].is_positional_only)) ++i;
    if (i == count) {
      if (takes_named_rest) continue;
      return RuntimeFault("TypeError: {}() got an unexpected keyword argument '{}'", builtin.name,
                          named.name);
    }
    if (bound->has(i)) {
      return RuntimeFault("TypeError: {}() got multiple values for argument '{}'", builtin.name, named.name);
    }
    bound->values[i] = named.value;
  }
  if (takes_named_rest) bound->named_rest = arguments.named;
  for (size_t i = 0; i < count; ++i) {
    if (!bound->has(i) && !parameters[i].is_optional) {
      return RuntimeFault("TypeError: {}() missing a required argument: '{}'", builtin.name,
                          parameters[i].name);
    }
  }
  return {};
}

}  // namespace

Result<Value> CallBuiltin(Runtime& rt, const Builtin& builtin, const Value& self,
                          const Arguments& arguments) {
  if (!rt.Spend()) return rt.LimitFault();
  Bound bound;
  bound.self = self;
  CMF_CHECK(Bind(builtin, arguments, &bound));
  return builtin.call(rt, bound);
}

Result<Value> ApplyBuiltin(Runtime& rt, const Builtin& builtin, const Value& value,
                           const Arguments& arguments) {
  std::array<Value, 1 + kMaxParameters> few;
  std::vector<Value> many;
  std::span<Value> all(few.data(), 1 + arguments.positional.size());
  if (arguments.positional.size() > kMaxParameters) {
    many.resize(all.size());
    all = many;
  }
  all[0] = value;
  std::copy(arguments.positional.begin(), arguments.positional.end(), all.begin() + 1);
  return CallBuiltin(rt, builtin, Value(), {all, arguments.named});
}

const MethodEntry* FindMethod(const Value& self, std::string_view name) {
  switch (self.kind) {
    case Kind::kString:
      return FindStringMethod(name);
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
      return FindListMethod(self.kind, name);
    case Kind::kDict:
      return FindDictMethod(name);
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kBigInt:
    case Kind::kFloat:
      return FindNumberMethod(self.kind, name);
    case Kind::kCycler:
      return FindCyclerMethod(name);
    default:
      return nullptr;
  }
}

Result<const Str*> AsString(const Value& value, std::string_view what) {
  if (value.is_string()) return value.string;
  return RuntimeFault("TypeError: {} must be str, not {}", what, TypeName(value));
}

}  // namespace cmforge::jinja
