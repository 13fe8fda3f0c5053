// The programs of tests/data/coreml/ops.json (made by tests/oracle/coreml_ops.py): each a few operations with
// inputs and the outputs numpy gives.
#pragma once

#include "coreml/tensors.h"
#include "mil/packed_bits.h"

namespace cmforge::coreml {

inline const Json& OperationCases() {
  static const Json json = ReadJson(TestData("coreml/ops.json"));
  return json.at("cases");
}

/// What one case is built as.
struct CaseVariant {
  const char* name;
  bool is_half = false;    // fp32 becomes fp16
  bool is_folded = false;  // inputs become constants
  bool is_open = false;    // dimensions of float inputs are not known to the program
};

inline constexpr CaseVariant kCaseVariants[] = {
    {"f32"}, {"fp16", true}, {"folded", false, true}, {"open", false, false, true}};

inline mil::Value CaseValue(const Json& json, bool is_half) {
  if (json.contains("text")) return mil::String(json.at("text"));
  const JsonTensor tensor = JsonTensor::From(json);
  mil::DataType dtype = *mil::DataTypeFromName(tensor.dtype);
  if (is_half && dtype == mil::DataType::kFloat32) dtype = mil::DataType::kFloat16;
  if (mil::IsFloat(dtype)) {
    return mil::Floats(dtype, tensor.shape, {tensor.data.begin(), tensor.data.end()});
  }
  const int bits = mil::BitsOf(dtype);
  std::vector<std::byte> bytes;
  if (bits < 8) {
    std::vector<uint8_t> codes;
    for (const double v : tensor.data) codes.push_back(static_cast<uint8_t>(static_cast<int>(v)));
    bytes = mil::PackBits(codes, bits);
  } else {
    for (const double v : tensor.data) {
      const auto whole = static_cast<int64_t>(v);
      for (int i = 0; i < bits / 8; ++i) bytes.push_back(static_cast<std::byte>(whole >> (8 * i)));
    }
  }
  return mil::Raw({dtype, tensor.shape}, std::move(bytes));
}

/// A description has no bool and no small integers: such outputs are converted.
inline mil::Var Describable(mil::FunctionBuilder& b, const mil::Var& var) {
  const mil::DataType dtype = var.type.dtype;
  if (mil::IsFloat(dtype) || dtype == mil::DataType::kInt32) return var;
  return b.Op("cast", {{"x", var}, {"dtype", "int32"}});
}

inline Result<mil::Package> BuildCase(const Json& json, const CaseVariant& variant) {
  mil::FunctionBuilder b;
  std::map<std::string, mil::Var> values;
  b.Input("unused", {mil::DataType::kFloat32, {1}});  // a folded program has an input too
  for (const auto& [name, tensor] : json.at("inputs").items()) {
    const mil::Value value = CaseValue(tensor, variant.is_half);
    mil::TensorType type = value.type.tensor;
    if (variant.is_open && mil::IsFloat(type.dtype))
      for (int64_t& dim : type.shape) dim = mil::kUnknownDim;
    values[name] = variant.is_folded ? b.Const(value, name) : b.Input(name, type);
  }
  for (const Json& step : json.at("steps")) {
    const std::string op = step.at("op");
    mil::Args args;
    std::vector<std::string> names;  // the views in `args` point into these
    names.reserve(step.at("args").size());
    for (const auto& [parameter, argument] : step.at("args").items()) {
      names.push_back(parameter);
      if (argument.is_string()) {
        args.emplace_back(names.back(), values.at(argument));
      } else if (argument.is_array()) {
        std::vector<mil::Var> vars;
        for (const Json& one : argument) vars.push_back(values.at(one));
        args.emplace_back(names.back(), std::move(vars));
      } else {
        args.emplace_back(names.back(), CaseValue(argument.at("const"), variant.is_half));
      }
    }
    const std::vector<mil::Var> made =
        op.starts_with("constexpr_") ? b.Constexprs(op, args, "") : b.Ops(op, args);
    for (size_t i = 0; i < made.size(); ++i) values[step.at("out").at(i)] = made[i];
    if (b.ok() && made.size() != step.at("out").size())
      return Fail(ErrorKind::kInternal, fmt::format("{} results", made.size()));
  }
  for (const auto& [name, tensor] : json.at("outputs").items()) {
    if (!b.ok()) break;
    // Outputs must be results of operations of their own.
    b.Output(b.Op("identity", {{"x", Describable(b, values.at(name))}}), "out_" + name);
  }
  return PackageOf(b);
}

/// Some cases are no fp16 programs, some need their dimensions.
inline bool IsMeant(const Json& json, const CaseVariant& variant) {
  return !(variant.is_half && json.value("no16", false)) && !(variant.is_open && json.value("fixed", false));
}

}  // namespace cmforge::coreml
