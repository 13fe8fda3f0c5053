// Tensors of the JSON files that hold expected values, programs made for one test, and comparing.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>

#include "base/json.h"
#include "coreml/interpreter.h"
#include "mil/builder.h"
#include "mil/test_files.h"

namespace cmforge::coreml {

using mil::FreshFolder;
using mil::ReadAll;
using mil::TestData;
using mil::WriteAll;

inline Json ReadJson(const std::filesystem::path& path) {
  auto json = ParseJson(ReadAll(path), path.string());
  EXPECT_TRUE(json) << json.error().message;
  return json ? *json : Json::object();
}

/// {"dtype", "shape", "data"}; infinities and NaN as strings.
struct JsonTensor {
  std::string dtype;
  Shape shape;
  std::vector<double> data;

  static JsonTensor From(const Json& json) {
    JsonTensor out{json.at("dtype"), json.at("shape"), {}};
    for (const Json& v : json.at("data")) {
      if (v.is_string()) {
        const std::string text = v;
        out.data.push_back(text == "nan"    ? std::nan("")
                           : text == "-inf" ? -std::numeric_limits<double>::infinity()
                                            : std::numeric_limits<double>::infinity());
      } else {
        out.data.push_back(v.is_boolean() ? static_cast<double>(v.get<bool>()) : v.get<double>());
      }
    }
    return out;
  }
};

inline void SetInput(Runner& runner, int index, const std::vector<double>& data) {
  ASSERT_GE(index, 0);
  const Port& port = runner.inputs()[static_cast<size_t>(index)];
  if (mil::IsFloat(port.type.dtype)) {
    const auto to = runner.InputFloats(index);
    ASSERT_EQ(to.size(), data.size()) << port.name;
    for (size_t i = 0; i < data.size(); ++i) to[i] = static_cast<float>(data[i]);
  } else {
    const auto to = runner.InputInts(index);
    ASSERT_EQ(to.size(), data.size()) << port.name;
    for (size_t i = 0; i < data.size(); ++i) to[i] = static_cast<int32_t>(data[i]);
  }
}

inline std::vector<double> OutputOf(const Runner& runner, int index) {
  if (mil::IsFloat(runner.outputs()[static_cast<size_t>(index)].type.dtype)) {
    const auto values = runner.OutputFloats(index);
    return {values.begin(), values.end()};
  }
  const auto values = runner.OutputInts(index);
  return {values.begin(), values.end()};
}

/// |got - wanted| <= absolute + relative * |wanted| for every element; NaN and infinities must be the same.
inline testing::AssertionResult Near(const std::vector<double>& got, const std::vector<double>& wanted,
                                     double absolute, double relative = 0) {
  if (got.size() != wanted.size())
    return testing::AssertionFailure() << got.size() << " elements, wanted are " << wanted.size();
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(wanted[i])) continue;
    if (got[i] == wanted[i]) continue;
    if (std::fabs(got[i] - wanted[i]) <= absolute + relative * std::fabs(wanted[i])) continue;
    return testing::AssertionFailure() << "element " << i << " is " << got[i] << ", wanted is " << wanted[i];
  }
  return testing::AssertionSuccess();
}

/// A package that exists only in memory.
inline mil::Package PackageOf(mil::Model model) {
  mil::Package package;
  package.path = "test";
  package.model = std::move(model);
  package.weights = std::make_shared<mil::Weights>("/nonexistent");
  return package;
}

/// The model of one function called main. Unknown dimensions of its inputs take any size from 1 on.
inline Result<mil::Package> PackageOf(mil::FunctionBuilder& builder) {
  mil::Model model;
  CMF_TRY(model.program.functions["main"], builder.Finish());
  CMF_TRY(model.description, DescribeProgram(model.program));
  for (mil::Feature& input : model.description.inputs) {
    for (const mil::NamedType& value : model.program.functions["main"].inputs) {
      if (value.name != input.name || value.type.tensor.is_static()) continue;
      auto& array = std::get<mil::ArrayFeature>(input.type);
      for (const int64_t dim : value.type.tensor.shape) {
        array.shape.push_back(dim == mil::kUnknownDim ? 1 : dim);
        array.shape_range.push_back(
            {static_cast<uint64_t>(array.shape.back()), dim == mil::kUnknownDim ? -1 : dim});
      }
    }
  }
  return PackageOf(std::move(model));
}

}  // namespace cmforge::coreml
