// A planned function runs without asking for memory.
#include "coreml/allocation_counter.h"

#include "coreml/tensors.h"

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
  y = b.Op("conv", {{"x", y}, {"weight", mil::Floats(mil::DataType::kFloat16, {4, 6, 3}, std::vector<float>(72, 0.1f))}});
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

}  // namespace
}  // namespace cmforge::coreml
