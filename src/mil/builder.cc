// Building functions.
#include "mil/builder.h"

namespace cmforge::mil {
namespace {

constexpr size_t kSharedConstantBytes = 256;

/// Type and contents as a key, or nothing for values that are not worth sharing.
std::string ShareKey(const Value& value) {
  const TensorData* data = value.tensor();
  if (!data || data->bytes.size() > kSharedConstantBytes) return "";
  std::string key = TypeText(value.type) + '\n';
  key += AsText(data->bytes);
  for (const std::string& text : data->strings) key += text + '\n';
  return key;
}

}  // namespace

std::string FunctionBuilder::UniqueName(std::string_view wanted) {
  const std::string base = MakeIdentifier(wanted);
  std::string name = base;
  for (int64_t i = 1; !names_.insert(name).second; ++i) name = fmt::format("{}_{}", base, i);
  return name;
}

Var FunctionBuilder::Input(std::string_view name, TensorType type) {
  Var var{UniqueName(name), type};
  function_.inputs.push_back({var.name, Type(type)});
  if (auto status = scope_.Define(var.name, std::move(type)); !status) Fail(std::move(status).error());
  return var;
}

Var FunctionBuilder::State(std::string_view name, TensorType type) {
  Var var{UniqueName(name), type};
  function_.inputs.push_back({var.name, Type::State(type)});
  if (auto status = scope_.Define(var.name, Type::State(std::move(type))); !status)
    Fail(std::move(status).error());
  return var;
}

std::vector<Var> FunctionBuilder::Append(Operation op, std::string_view name) {
  if (!status_) return {};
  const std::string base = name.empty() ? fmt::format("{}_{}", op.type, next_++) : std::string(name);
  const auto infer = [&]() -> Result<std::vector<Var>> {
    CMF_TRY(const OpCall call, scope_.Bind(op, nullptr));
    CMF_TRY(const std::vector<TensorType> types, InferTypes(call));
    std::vector<Var> vars;
    const Value* value =
        op.type == "const" && call.Get("val").value ? scope_.Keep(*call.Get("val").value) : nullptr;
    const bool is_constant = op.type == "const" || call.info().is_constexpr();
    for (size_t i = 0; i < types.size(); ++i) {
      Var var{UniqueName(types.size() > 1 ? fmt::format("{}_{}", base, i) : base), types[i]};
      CMF_CHECK(scope_.Define(var.name, types[i], value, is_constant));
      op.outputs.push_back({var.name, types[i]});
      vars.push_back(std::move(var));
    }
    return vars;
  };
  auto vars = infer();
  if (!vars) {
    Fail(std::move(vars).error().In(fmt::format("{} '{}'", op.type, base)));
    return {};
  }
  op.attributes["name"] = String(vars->empty() ? base : (*vars)[0].name);
  function_.body.operations.push_back(std::move(op));
  return std::move(*vars);
}

std::vector<Var> FunctionBuilder::Add(std::string_view type, const Args& args, std::string_view name,
                                      bool literals) {
  Operation op;
  op.type = type;
  for (const auto& [parameter, arg] : args) {
    std::vector<Argument>& bound = op.inputs[std::string(parameter)];
    if (const auto* value = std::get_if<Value>(&arg.data())) {
      literals ? bound.emplace_back(*value) : bound.emplace_back(Const(*value).name);
    } else {
      for (const Var& var : std::get<std::vector<Var>>(arg.data())) bound.emplace_back(var.name);
    }
  }
  return Append(std::move(op), name);
}

Var FunctionBuilder::Single(std::vector<Var> vars, std::string_view type) {
  if (vars.size() == 1) return std::move(vars[0]);
  if (status_)
    Fail({ErrorKind::kInternal, fmt::format("{} has {} results, one is expected", type, vars.size()), {}});
  return {};
}

std::vector<Var> FunctionBuilder::Ops(std::string_view type, const Args& args, std::string_view name) {
  return Add(type, args, name, false);
}

Var FunctionBuilder::Op(std::string_view type, const Args& args, std::string_view name) {
  return Single(Ops(type, args, name), type);
}

Var FunctionBuilder::Const(const Value& value, std::string_view name) {
  if (!status_) return {};
  const std::string key = name.empty() ? ShareKey(value) : "";
  if (const auto it = constants_.find(key); !key.empty() && it != constants_.end()) return it->second;
  Operation op;
  op.type = "const";
  op.attributes["val"] = value;
  std::vector<Var> vars = Append(std::move(op), name);
  if (vars.empty()) return {};
  if (!key.empty()) constants_[key] = vars[0];
  return std::move(vars[0]);
}

std::vector<Var> FunctionBuilder::Constexprs(std::string_view type, const Args& parameters,
                                             std::string_view name) {
  return Add(type, parameters, name, true);
}

Var FunctionBuilder::Constexpr(std::string_view type, const Args& parameters, std::string_view name) {
  return Single(Constexprs(type, parameters, name), type);
}

Var FunctionBuilder::Read(const Var& state) {
  return Op("read_state", {{"input", state}}, state.name + "_read");
}

void FunctionBuilder::Write(const Var& state, const Var& data) {
  (void)Ops("write_state", {{"input", state}, {"data", data}}, state.name + "_write_state");
}

void FunctionBuilder::Output(const Var& var, std::string_view name) {
  if (!status_) return;
  const auto fail = [&](std::string_view what) {
    Fail({ErrorKind::kUsage, fmt::format("output '{}': {}", name, what), {}});
  };
  if (!IsIdentifier(name)) return fail("not a valid name");
  if (var.name != name) {
    if (!names_.insert(std::string(name)).second) return fail("the name is taken");
    // Renamed in place where it is made and used: outputs carry their own names in the program.
    bool found = false;
    for (Operation& op : function_.body.operations) {
      for (auto& [parameter, arguments] : op.inputs) {
        for (Argument& argument : arguments) {
          if (auto* used = std::get_if<std::string>(&argument); used && *used == var.name) *used = name;
        }
      }
      for (NamedType& output : op.outputs) {
        if (output.name != var.name) continue;
        output.name = name;
        op.attributes["name"] = String(std::string(name));
        found = true;
      }
    }
    if (!found) return fail("no result of an operation");
    if (auto status = scope_.Define(std::string(name), var.type); !status) Fail(std::move(status).error());
  }
  function_.body.outputs.emplace_back(name);
}

Result<Function> FunctionBuilder::Finish() {
  CMF_CHECK(std::move(status_));
  if (auto status = CheckFunction("new", function_, nullptr); !status)
    return cmforge::Fail(std::move(status).error());
  return std::move(function_);
}

}  // namespace cmforge::mil
