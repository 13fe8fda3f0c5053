// Models with a fault planted in them, inspected.
#pragma once

#include <gmock/gmock.h>

#include "coreml/lint/rules.h"
#include "coreml/package_fixture.h"
#include "mil/builder.h"
#include "mil/proto.h"

namespace cmforge::coreml::lint {

using mil::DataType;
using mil::FunctionBuilder;
using mil::Var;

inline mil::Value Half(float value) { return mil::Float(DataType::kFloat16, value); }

/// Numbers of one value, fp16.
inline mil::Value Filled(const Shape& shape, float value = 0.5f) {
  return mil::Floats(DataType::kFloat16, shape,
                     std::vector<float>(static_cast<size_t>(*ElementCount(shape)), value));
}

inline mil::Value Zeros(DataType dtype, const Shape& shape) {
  return mil::Raw({dtype, shape}, std::vector<std::byte>(*mil::StorageBytes(dtype, *ElementCount(shape))));
}

/// A palette of `bits` for [out, in, 1, 1], a table for every `channels` (0: one for all).
inline Var Palette(FunctionBuilder& b, const Shape& shape, int bits, int64_t channels,
                   const char* name = "weight") {
  const std::map<int, DataType> types = {{1, DataType::kUInt1}, {2, DataType::kUInt2}, {3, DataType::kUInt3},
                                         {4, DataType::kUInt4}, {6, DataType::kUInt6}, {8, DataType::kUInt8}};
  Shape lut(shape.size(), 1);
  lut[0] = channels > 0 ? shape[0] / channels : 1;
  lut.push_back(int64_t{1} << bits);
  lut.push_back(1);
  return b.Constexpr("constexpr_lut_to_dense",
                     {{"indices", Zeros(types.at(bits), shape)}, {"lut", Filled(lut)}}, name);
}

inline Var Conv(FunctionBuilder& b, const Var& x, const Var& weight) {
  return b.Op("conv", {{"x", x}, {"weight", weight}});
}

/// A model of these functions, "main" alone or several.
inline mil::Model ModelOf(std::map<std::string, mil::Function> functions) {
  mil::Model model;
  const std::string first = functions.begin()->first;
  for (auto& [name, function] : functions) model.program.functions[name] = std::move(function);
  auto description =
      DescribeProgram(model.program, model.program.functions.contains("main") ? "main" : first);
  EXPECT_TRUE(description) << description.error().message;
  if (description) model.description = std::move(*description);
  return model;
}

inline mil::Function Finished(FunctionBuilder& b) {
  auto function = b.Finish();
  EXPECT_TRUE(function) << function.error().message;
  return function ? std::move(*function) : mil::Function();
}

inline Report InspectModel(const mil::Model& model) {
  const auto file = ScratchFolder() / "model.mlmodel";
  std::ofstream(file, std::ios::binary) << mil::SerializeModel(model);
  auto report = Inspect(file);
  EXPECT_TRUE(report) << report.error().message;
  return report ? std::move(*report) : Report();
}

/// `body` makes the value that becomes the output of main.
inline Report InspectMain(const std::function<Var(FunctionBuilder&)>& body) {
  FunctionBuilder b;
  b.Output(b.Op("identity", {{"x", body(b)}}), "y");
  return InspectModel(ModelOf({{"main", Finished(b)}}));
}

inline std::set<std::string> RulesOf(const Report& report, Severity at_least = Severity::kNote) {
  std::set<std::string> rules;
  for (const Finding& finding : report.findings) {
    if (finding.severity <= at_least) rules.insert(finding.rule);
  }
  return rules;
}

/// The first finding of a rule; an empty one when there is none.
inline Finding Of(const Report& report, std::string_view rule) {
  for (const Finding& finding : report.findings) {
    if (finding.rule == rule) return finding;
  }
  return {};
}

inline std::string TextOf(const Report& report) {
  std::string text;
  for (const Finding& f : report.findings) {
    text += fmt::format("{} {} [{} {} {}] {}\n", SeverityName(f.severity), f.rule, f.part, f.function,
                        f.operation, f.reason);
  }
  return text;
}

}  // namespace cmforge::coreml::lint
