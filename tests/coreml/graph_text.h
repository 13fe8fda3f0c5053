// A function as text for golden files: one line an operation, constants written where they are used.
//
//   infer(hidden_states fp16[1,1,32], ...)
//     4: mul x=hidden_states y=-1 -> fp16[1,1,32]
#pragma once

#include <map>
#include <string>

#include "base/half.h"
#include "mil/model.h"

namespace cmforge::coreml {

inline std::string TypeWord(const mil::Type& type) {
  std::string text(mil::DataTypeName(type.tensor.dtype));
  text += '[';
  for (size_t i = 0; i < type.tensor.shape.size(); ++i) {
    if (i) text += ',';
    text += type.tensor.shape[i] == mil::kUnknownDim ? "?" : std::to_string(type.tensor.shape[i]);
  }
  text += ']';
  return type.is_state() ? "state " + text : text;
}

/// The contents of a small constant, or the name and shape of a large one.
inline std::string ConstantWord(const mil::Operation& op) {
  const mil::Value& value = op.attributes.at("val");
  const auto list = [&](const auto& numbers) {
    std::string text;
    for (const auto& n : numbers)
      text += (text.empty() ? "" : ",") + fmt::format("{:.6g}", static_cast<double>(n));
    return value.type.tensor.shape.empty() ? text : "[" + text + "]";
  };
  const bool is_small = value.tensor() && ElementCount(value.type.tensor.shape).value_or(99) <= 16;
  const bool is_weight = op.outputs[0].name.find("model_layers") != std::string::npos;
  if (is_small && !is_weight) {
    if (const std::string* text = mil::StringOf(value)) return '"' + *text + '"';
    if (const auto integers = mil::IntegersOf(value)) return list(*integers);
    if (const auto floats = mil::FloatsOf(value)) return list(*floats);
  }
  return op.outputs[0].name + ":" + TypeWord(op.outputs[0].type);
}

inline std::string GraphText(const std::string& name, const mil::Function& function) {
  std::map<std::string, std::string> words;  // of every value
  std::string out = name + "(";
  for (const mil::NamedType& input : function.inputs) {
    out += (&input == &function.inputs[0] ? "" : ", ") + input.name + " " + TypeWord(input.type);
    words[input.name] = input.name;
  }
  out += ")\n";
  int number = 0;
  for (const mil::Operation& op : function.body.operations) {
    if (op.type == "const") {
      words[op.outputs[0].name] = ConstantWord(op);
      continue;
    }
    out += fmt::format("  {}: {}", ++number, op.type);
    for (const auto& [parameter, arguments] : op.inputs) {
      out += " " + parameter + "=";
      for (size_t i = 0; i < arguments.size(); ++i)
        out += (i ? "+" : "") + words[std::get<std::string>(arguments[i])];
    }
    std::string types;
    for (size_t i = 0; i < op.outputs.size(); ++i) {
      const bool is_output =
          op.outputs[i].name == "output_hidden_states" || op.outputs[i].name == "hidden_states" ||
          op.outputs[i].name == "per_layer_inputs" || op.outputs[i].name.starts_with("logits");
      words[op.outputs[i].name] =
          is_output ? op.outputs[i].name
                    : fmt::format("%{}{}", number, op.outputs.size() > 1 ? fmt::format(".{}", i) : "");
      types += (i ? ", " : " -> ") + TypeWord(op.outputs[i].type);
      if (is_output) types += " = " + op.outputs[i].name;
    }
    out += types + "\n";
  }
  return out;
}

}  // namespace cmforge::coreml
