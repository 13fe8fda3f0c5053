// A planned function runs without asking for memory.
#include "coreml/allocation_counter.h"
#include "coreml/tensors.h"
#include "mil/text.h"

namespace cmforge::coreml {
namespace {

TEST(Allocation, TheCounterCounts) {
  const int64_t before = Allocations();
  ::operator delete(::operator new(4));
  EXPECT_EQ(Allocations() - before, kCountsAllocations ? 1 : 0);
}

TEST(Allocation, NoneInAStepOfADecoder) {
  const Json recorded = ReadJson(TestData("coreml/kv_two_functions.json"));
  for (const Precision precision : {Precision::kF16, Precision::kF32}) {
    for (const int threads : {1, 2}) {
      auto package = mil::OpenPackage(TestData("coreml/kv_two_functions.mlpackage"));
      ASSERT_TRUE(package);
      const auto interpreter =
          Interpreter::Create(std::move(*package), {precision, std::make_shared<ThreadPool>(threads)});
      ASSERT_TRUE(interpreter);
      StateSet states;
      ASSERT_TRUE((*interpreter)->AddStates("", states));
      for (const char* function : {"prefill", "infer"}) {
        auto runner = (*interpreter)->Plan(function);
        ASSERT_TRUE(runner);
        for (const Json& call : recorded.at("calls")) {
          if (call.at("function") != function) continue;
          for (const auto& [name, json] : call.at("inputs").items())
            SetInput(*runner, runner->FindInput(name), JsonTensor::From(json).data);
          const int64_t before = Allocations();
          const auto status = runner->Run(&states);
          EXPECT_EQ(Allocations() - before, 0) << function << ", " << threads << " threads";
          ASSERT_TRUE(status) << status.error().message;
        }
      }
    }
  }
}

/// Every operation with static shapes, not only those of one decoder.
TEST(Allocation, NoneInAnyKindOfStep) {
  mil::FunctionBuilder b;
  const mil::Var x = b.Input("x", {mil::DataType::kFloat16, {2, 6, 8}});
  const mil::Var i = b.Input("i", {mil::DataType::kInt32, {3}});
  mil::Var y = b.Op("softmax", {{"x", x}, {"axis", -1}});
  y = b.Op("layer_norm", {{"x", y}, {"axes", std::vector<int32_t>{-1}}});
  y = b.Op("matmul", {{"x", y}, {"y", x}, {"transpose_y", true}});
  y = b.Op("transpose", {{"x", y}, {"perm", std::vector<int32_t>{0, 2, 1}}});
  y = b.Op("pad", {{"x", y}, {"pad", std::vector<int32_t>{1, 1}}});
  y = b.Op(
      "conv",
      {{"x", y}, {"weight", mil::Floats(mil::DataType::kFloat16, {4, 6, 3}, std::vector<float>(72, 0.1f))}});
  const mil::Var sorted = b.Ops("topk", {{"x", y}, {"k", 2}})[0];
  y = b.Op("cumsum", {{"x", sorted}, {"axis", 1}});
  y = b.Op("gather", {{"x", y}, {"indices", i}, {"axis", 1}});
  y = b.Op("tile", {{"x", y}, {"reps", std::vector<int32_t>{1, 2, 1}}});
  y = b.Op("reduce_log_sum_exp", {{"x", y}, {"axes", std::vector<int32_t>{2}}, {"keep_dims", true}});
  y = b.Op("scaled_dot_product_attention", {{"query", y}, {"key", y}, {"value", y}});
  b.Output(y, "y");
  const auto package = PackageOf(b);
  ASSERT_TRUE(package) << package.error().message;
  const auto interpreter = Interpreter::Create(*package);
  ASSERT_TRUE(interpreter) << interpreter.error().message;
  auto runner = (*interpreter)->Plan("");
  ASSERT_TRUE(runner) << runner.error().message;
  for (int round = 0; round < 2; ++round) {
    SetInput(*runner, 0, std::vector<double>(96, 0.5));
    SetInput(*runner, 1, {0, 2, 1});
    const int64_t before = Allocations();
    const auto status = runner->Run(nullptr);
    EXPECT_EQ(Allocations() - before, 0);
    ASSERT_TRUE(status) << status.error().message;
  }
}

/// A slice at a place that is only known when it runs, of a size the program declares.
TEST(Allocation, NoneInASliceOfDeclaredSize) {
  const auto program = mil::ParseProgramText(
      "program(1.3)\n{ func main<ios18>(tensor<fp16, [4, 2]> x, tensor<int32, [2]> i, tensor<int32, [2]> e) "
      "{\n"
      "tensor<fp16, [2, 2]> y = slice_by_index(x = x, begin = i, end = e, end_mask = tensor<bool, "
      "[2]>([false, true]));\n"
      "} -> (y); }");
  ASSERT_TRUE(program) << program.error().message;
  mil::Model model;
  model.description = *DescribeProgram(*program);
  model.program = *program;
  const auto interpreter = Interpreter::Create(PackageOf(std::move(model)));
  ASSERT_TRUE(interpreter) << interpreter.error().message;
  auto runner = (*interpreter)->Plan("");
  ASSERT_TRUE(runner) << runner.error().message;
  SetInput(*runner, 0, {0, 1, 2, 3, 4, 5, 6, 7});
  for (const int begin : {0, 1, 2}) {
    SetInput(*runner, 1, {double(begin), 0});
    SetInput(*runner, 2, {double(begin + 2), 0});
    const int64_t before = Allocations();
    const auto status = runner->Run(nullptr);
    EXPECT_EQ(Allocations() - before, 0);
    ASSERT_TRUE(status) << status.error().message;
    EXPECT_EQ(OutputOf(*runner, 0)[0], 2 * begin);
  }
  SetInput(*runner, 1, {0, 0});
  SetInput(*runner, 2, {3, 0});
  const auto status = runner->Run(nullptr);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message,
            "function 'main': slice_by_index 'y': the slice 0 to 3 of axis 0 (4 elements) does not hold 2 "
            "elements");
}

}  // namespace
}  // namespace cmforge::coreml
