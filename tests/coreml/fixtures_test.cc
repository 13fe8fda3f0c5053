// Programs with recorded outputs, states and decoded weights, executed.
#include "coreml/interpreter/weight.h"
#include "coreml/tensors.h"

namespace cmforge::coreml {
namespace {

struct Setting {
  Precision precision;
  int threads;
  double tolerance;
};

constexpr Setting kSettings[] = {{Precision::kF32, 1, 4e-3},
                                 {Precision::kF32, 3, 4e-3},
                                 {Precision::kF16, 1, 3e-2},
                                 {Precision::kF16, 3, 3e-2}};

/// Every call of a JSON case, and the states afterwards.
void CheckCase(const std::filesystem::path& model, const Json& recorded) {
  std::map<std::string, std::vector<double>> first;  // one answer, whatever the threads
  for (const Setting& setting : kSettings) {
    auto package = mil::OpenPackage(model);
    ASSERT_TRUE(package) << package.error().message;
    const auto interpreter = Interpreter::Create(
        std::move(*package), {setting.precision, std::make_shared<ThreadPool>(setting.threads)});
    ASSERT_TRUE(interpreter) << interpreter.error().message;
    StateSet states;
    ASSERT_TRUE((*interpreter)->AddStates("", states));
    std::map<std::string, Runner> runners;
    int number = 0;
    for (const Json& call : recorded.at("calls")) {
      const std::string function = call.at("function");
      if (!runners.contains(function)) {
        auto runner = (*interpreter)->Plan(function);
        ASSERT_TRUE(runner) << runner.error().message;
        runners.emplace(function, std::move(*runner));
      }
      Runner& runner = runners.at(function);
      for (const auto& [name, json] : call.at("inputs").items())
        SetInput(runner, runner.FindInput(name), JsonTensor::From(json).data);
      const auto status = runner.Run(&states);
      ASSERT_TRUE(status) << status.error().message;
      for (const auto& [name, json] : call.at("outputs").items()) {
        const int index = runner.FindOutput(name);
        ASSERT_GE(index, 0) << name;
        const JsonTensor wanted = JsonTensor::From(json);
        EXPECT_EQ(runner.outputs()[static_cast<size_t>(index)].type.shape, wanted.shape) << name;
        const std::vector<double> got = OutputOf(runner, index);
        EXPECT_TRUE(Near(got, wanted.data, setting.tolerance))
            << "call " << number << ", " << name << ", precision " << static_cast<int>(setting.precision);
        const std::string key = fmt::format("{} {} {}", number, name, static_cast<int>(setting.precision));
        if (!first.contains(key)) first[key] = got;
        EXPECT_EQ(got, first[key]) << "depends on the number of threads: " << key;
      }
      ++number;
    }
    if (!recorded.contains("final_state")) continue;
    for (const auto& [name, json] : recorded.at("final_state").items()) {
      const StateSet::State* state = states.Find(name);
      ASSERT_TRUE(state) << name;
      const JsonTensor wanted = JsonTensor::From(json);
      EXPECT_EQ(state->type.shape, wanted.shape);
      EXPECT_TRUE(Near({state->values.begin(), state->values.end()}, wanted.data, setting.tolerance)) << name;
    }
  }
}

TEST(Fixtures, GiveTheRecordedOutputsAndStates) {
  for (const std::string name : {"lut_widths", "kv_two_functions"}) {
    SCOPED_TRACE(name);
    const Json recorded = ReadJson(TestData("coreml/" + name + ".json"));
    CheckCase(TestData("coreml/" + name + ".mlpackage"), recorded);
    // The compiled form we write means the same.
    const auto package = mil::OpenPackage(TestData("coreml/" + name + ".mlpackage"));
    ASSERT_TRUE(package);
    const auto compiled = FreshFolder() / (name + ".mlmodelc");
    const auto written = WriteCompiled(*package, compiled);
    ASSERT_TRUE(written) << written.error().message;
    CheckCase(compiled, recorded);
  }
}

TEST(Fixtures, OfTheCompilerGiveTheValuesItsProjectStates) {
  // Values of SOURCE.md: input 0.
  const std::pair<const char*, std::vector<double>> kCases[] = {
      {"quantized_constexpr", {-63.5, 0, 0.5, 64}},
      {"fp16_subnormal",
       {1 / 16777216.0, 168 / 16777216.0, 1023 / 16777216.0, 1024 / 16777216.0, -168 / 16777216.0}}};
  for (const auto& [name, wanted] : kCases) {
    for (const char* form : {"input.mlmodel", "expected.mlmodelc"}) {
      for (const Precision precision : {Precision::kF16, Precision::kF32}) {
        auto package = mil::OpenPackage(TestData(fmt::format("mil/{}/{}", name, form)));
        ASSERT_TRUE(package) << package.error().message;
        const auto interpreter = Interpreter::Create(std::move(*package), {precision});
        ASSERT_TRUE(interpreter) << interpreter.error().message;
        auto runner = (*interpreter)->Plan("");
        ASSERT_TRUE(runner) << runner.error().message;
        for (size_t i = 0; i < runner->inputs().size(); ++i) {
          const int index = static_cast<int>(i);
          SetInput(
              *runner, index,
              std::vector<double>(static_cast<size_t>(*ElementCount(runner->inputs()[i].type.shape)), 0));
        }
        const auto status = runner->Run(nullptr);
        ASSERT_TRUE(status) << status.error().message;
        ASSERT_EQ(runner->outputs().size(), 1u);
        EXPECT_TRUE(Near(OutputOf(*runner, 0), wanted, 0)) << name << " " << form;
      }
    }
  }
}

/// Every weight form of the fixture, decoded: equal to the recorded numbers to the last bit of fp16.
TEST(Fixtures, DecodeEveryCompressedWeightToTheRecordedNumbers) {
  const Json recorded = ReadJson(TestData("coreml/lut_widths.json"));
  auto package = mil::OpenPackage(TestData("coreml/lut_widths.mlpackage"));
  ASSERT_TRUE(package);
  // The same program with the weights as its outputs.
  mil::Function& main = package->model.program.functions.at("main");
  std::map<std::string, mil::TensorType> types;
  for (const mil::Operation& op : main.body.operations)
    for (const mil::NamedType& output : op.outputs) types[output.name] = output.type.tensor;
  std::vector<std::string> names;
  for (const auto& [name, json] : recorded.at("decoded_weights").items()) names.push_back(name);
  main.body.outputs = names;
  auto description = DescribeProgram(package->model.program);
  ASSERT_TRUE(description) << description.error().message;
  package->model.description = *description;
  const auto interpreter = Interpreter::Create(std::move(*package), {Precision::kF16});
  ASSERT_TRUE(interpreter) << interpreter.error().message;
  auto runner = (*interpreter)->Plan("");
  ASSERT_TRUE(runner) << runner.error().message;
  ASSERT_TRUE(runner->Run(nullptr));
  for (const std::string& name : names) {
    const JsonTensor wanted = JsonTensor::From(recorded.at("decoded_weights").at(name));
    EXPECT_EQ(types.at(name).shape, wanted.shape);
    EXPECT_TRUE(Near(OutputOf(*runner, runner->FindOutput(name)), wanted.data, 0)) << name;
  }
}

/// The cache is written where it lies: a step copies nothing but the new keys and values.
TEST(Fixtures, UpdateTheirCacheInPlace) {
  auto package = mil::OpenPackage(TestData("coreml/kv_two_functions.mlpackage"));
  ASSERT_TRUE(package);
  const auto interpreter = Interpreter::Create(std::move(*package));
  ASSERT_TRUE(interpreter);
  for (const char* function : {"infer", "prefill"}) {
    auto runner = (*interpreter)->Plan(function);
    ASSERT_TRUE(runner);
    const auto steps = runner->StepHistogram();
    EXPECT_EQ(steps.count("slice_update"), 0u);
    EXPECT_EQ(steps.at("slice_update (in place)"), 4);  // keys and values of two layers
    EXPECT_EQ(steps.count("write_state"), 0u);
    EXPECT_EQ(steps.count("read_state"), 0u);
    EXPECT_EQ(steps.count("reshape"), 0u) << "views cost nothing";
  }
}

TEST(StateSet, RefusesTheSameNameWithAnotherType) {
  StateSet states;
  ASSERT_TRUE(states.Add("cache", {mil::DataType::kFloat16, {2, 3}}));
  EXPECT_TRUE(states.Add("cache", {mil::DataType::kFloat16, {2, 3}}));
  EXPECT_EQ(states.bytes(), 24u);
  const auto other = states.Add("cache", {mil::DataType::kFloat16, {2, 4}});
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().message,
            "state 'cache' is tensor<fp16, [2, 4]> here, tensor<fp16, [2, 3]> elsewhere");
  EXPECT_FALSE(states.Add("open", {mil::DataType::kFloat16, {mil::kUnknownDim}}));
}

}  // namespace
}  // namespace cmforge::coreml
