// Predicted devices, and the compute units that give wrong answers.
#include "coreml/device_plan.h"

#include <gmock/gmock.h>

#include "coreml/backend.h"
#include "coreml/package_fixture.h"
#include "mil/builder.h"

namespace cmforge::coreml {
namespace {

using mil::DataType;

const PlannedOperations* Find(const std::vector<PlannedOperations>& operations, const std::string& type) {
  for (const PlannedOperations& one : operations) {
    if (one.type == type) return &one;
  }
  return nullptr;
}

TEST(PredictDevices, SaysWhyNot) {
  mil::FunctionBuilder b;
  const mil::Var x = b.Input("x", {DataType::kFloat16, {1, 4, 1, 20000}});
  const mil::Var ids = b.Input("ids", {DataType::kInt32, {3}});
  const mil::Var table = b.Input("table", {DataType::kFloat16, {8, 16}});
  (void)b.Op("relu", {{"x", x}});
  (void)b.Op("add", {{"x", ids}, {"y", 1}});
  (void)b.Op("gather", {{"x", table}, {"indices", ids}, {"axis", 0}});
  b.Output(b.Op("tanh", {{"x", table}}), "y");
  const auto function = b.Finish();
  ASSERT_TRUE(function) << function.error().message;
  const auto operations = PredictDevices(*function);
  EXPECT_EQ(Find(operations, "tanh")->device, "ANE");
  EXPECT_EQ(Find(operations, "relu")->device, "CPU");
  EXPECT_THAT(Find(operations, "relu")->reason, testing::HasSubstr("20000"));
  EXPECT_THAT(Find(operations, "add")->reason, testing::HasSubstr("integers"));
  EXPECT_THAT(Find(operations, "gather")->reason, testing::HasSubstr("run time"));
}

TEST(PlanDevices, CoversEveryFunctionOfAPackage) {
  const auto folder = ScratchFolder() / "package";
  ASSERT_TRUE(WriteFixture("qwen3_5", {64, 8, 2, 4}, folder));
  const auto plan = PlanDevices(folder, MetaOf(folder));
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->size(), 1 + 2 * 2 + 1u);
  for (const PlannedFunction& function : *plan) {
    EXPECT_FALSE(function.kernels.empty()) << function.part;
    for (const PlannedOperations& ops : function.operations) {
      EXPECT_EQ(ops.device == "CPU", !ops.reason.empty());
      // All arithmetic of the layers runs on the Neural Engine; looking up and counting positions does not.
      if (function.function != "main" && ops.device == "CPU") {
        EXPECT_THAT(ops.type, testing::AnyOf("gather", "add", "concat")) << ops.reason;
      }
    }
  }
}

TEST(ComputeUnits, TheCpuAloneIsRefusedWithTheReason) {
  const auto cpu = ParseComputeUnits("cpu");
  ASSERT_TRUE(cpu);
  const auto backend = DefaultBackend({}, *cpu);
  ASSERT_FALSE(backend);
  EXPECT_EQ(backend.error().kind, ErrorKind::kUnsupported);
  EXPECT_THAT(backend.error().message, testing::HasSubstr("NaN"));
  for (const char* name : {"ne", "gpu", "all"})
    EXPECT_TRUE(DefaultBackend({}, *ParseComputeUnits(name))) << name;
  EXPECT_FALSE(ParseComputeUnits("tpu"));
}

}  // namespace
}  // namespace cmforge::coreml
