// Planning and running: shapes a model allows, errors only known when a program runs, and sizes nobody has.
#include "coreml/tensors.h"
#include "mil/text.h"

namespace cmforge::coreml {
namespace {

using mil::DataType;
using mil::Var;

Result<std::shared_ptr<const Interpreter>> InterpreterOf(Result<mil::Package> package,
                                                         const InterpreterOptions& options = {}) {
  CMF_TRY(mil::Package opened, std::move(package));
  return Interpreter::Create(std::move(opened), options);
}

/// A program given as its statements, with x: fp16 [2, 3] and i: int32 [2] as inputs and y as output.
Result<mil::Package> PackageOfText(
    const std::string& statements,
    const std::string& inputs = "tensor<fp16, [2, 3]> x, tensor<int32, [2]> i") {
  CMF_TRY(mil::Program program, mil::ParseProgramText("program(1.3)\n{ func main<ios18>(" + inputs + ") {\n" +
                                                      statements + "\n} -> (y); }"));
  mil::Model model;
  CMF_TRY(model.description, DescribeProgram(program));
  model.program = std::move(program);
  return PackageOf(std::move(model));
}

TEST(Plan, TakesEnumeratedShapesAndNamesThemInErrors) {
  mil::FunctionBuilder b;
  const Var ids = b.Input("ids", {DataType::kInt32, {1, mil::kUnknownDim}});
  const Var table = b.Const(mil::Floats(DataType::kFloat16, {4, 2}, {0, 1, 10, 11, 20, 21, 30, 31}), "table");
  b.Output(b.Op("gather", {{"x", table}, {"indices", ids}, {"axis", 0}}), "hidden");
  auto package = PackageOf(b);
  ASSERT_TRUE(package) << package.error().message;
  auto& array = std::get<mil::ArrayFeature>(package->model.description.inputs[0].type);
  array.shape_range.clear();
  array.enumerated_shapes = {{1, 1}, {1, 4}};
  const auto interpreter = InterpreterOf(*package);
  ASSERT_TRUE(interpreter) << interpreter.error().message;
  auto one = (*interpreter)->Plan("");  // the default shape
  ASSERT_TRUE(one) << one.error().message;
  SetInput(*one, 0, {2});
  ASSERT_TRUE(one->Run(nullptr));
  EXPECT_EQ(one->outputs()[0].type.shape, (Shape{1, 1, 2}));
  EXPECT_EQ(OutputOf(*one, 0), (std::vector<double>{20, 21}));
  auto four = (*interpreter)->Plan("", {{"ids", {1, 4}}});
  ASSERT_TRUE(four) << four.error().message;
  SetInput(*four, 0, {3, 0, 0, 1});
  ASSERT_TRUE(four->Run(nullptr));
  EXPECT_EQ(OutputOf(*four, 0), (std::vector<double>{30, 31, 0, 1, 0, 1, 10, 11}));
  const auto message = [&](const std::map<std::string, Shape>& shapes) {
    const auto runner = (*interpreter)->Plan("", shapes);
    return runner ? std::string() : runner.error().message;
  };
  EXPECT_EQ(message({{"ids", {1, 2}}}),
            "test: function 'main': input 'ids': shape [1, 2] is none of the allowed [1, 1], [1, 4]: give "
            "one of these");
  EXPECT_EQ(message({{"ids", {2, 1}}}),
            "test: function 'main': input 'ids': shape [2, 1] does not fit tensor<int32, [1, ?]>: give an "
            "array of that shape");
  EXPECT_EQ(message({{"ids", {4}}}),
            "test: function 'main': input 'ids': shape [4] does not fit tensor<int32, [1, ?]>: give an array "
            "of that shape");
  EXPECT_EQ(message({{"x", {1}}}), "test: function 'main': no input 'x': it has ids: name one of these");
  SetInput(*four, 0, {3, 0, 4, 1});
  const auto status = four->Run(nullptr);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "function 'main': gather 'hidden': index 4 of an axis of 4");
}

TEST(Plan, TakesRangesAndScalars) {
  mil::FunctionBuilder b;
  const Var x = b.Input("x", {DataType::kFloat32, {mil::kUnknownDim, 2}});
  const Var s = b.Input("scale", {DataType::kFloat32, {}});
  b.Output(b.Op("mul", {{"x", x}, {"y", s}}), "y");
  auto package = PackageOf(b);
  ASSERT_TRUE(package) << package.error().message;
  std::get<mil::ArrayFeature>(package->model.description.inputs[0].type).shape_range = {{1, 3}, {2, 2}};
  const auto interpreter = InterpreterOf(*package);
  ASSERT_TRUE(interpreter) << interpreter.error().message;
  // A scalar is described as [1], and may be given so.
  for (const Shape& scalar : {Shape{1}, Shape{}}) {
    auto runner = (*interpreter)->Plan("", {{"x", {3, 2}}, {"scale", scalar}});
    ASSERT_TRUE(runner) << runner.error().message;
    SetInput(*runner, runner->FindInput("x"), {1, 2, 3, 4, 5, 6});
    SetInput(*runner, runner->FindInput("scale"), {2});
    ASSERT_TRUE(runner->Run(nullptr));
    EXPECT_EQ(OutputOf(*runner, 0), (std::vector<double>{2, 4, 6, 8, 10, 12}));
  }
  const auto runner = (*interpreter)->Plan("", {{"x", {4, 2}}});
  ASSERT_FALSE(runner);
  EXPECT_EQ(runner.error().message,
            "test: function 'main': input 'x': shape [4, 2] has 4 where 1 to 3 is allowed: give an array of "
            "such a shape");
}

TEST(Run, NamesTheOperationAndTheNumberThatDoesNotFit) {
  struct Case {
    const char* statements;
    std::vector<double> i;
    const char* message;
  };
  const Case cases[] = {
      {"tensor<fp16, [2, 2]> y = gather(x = x, indices = i, axis = int32(1));",
       {0, 3},
       "gather 'y': index 3 of an axis of 3"},
      {"tensor<fp16, [2, 2]> y = gather(x = x, indices = i, axis = int32(1));",
       {0, -1},
       "gather 'y': index -1 of an axis of 3"},
      {"tensor<fp16, [1, 2]> y = slice_by_size(x = x, begin = i, size = tensor<int32, [2]>([1, 2]));",
       {1, 2},
       "slice_by_size 'y': 2 elements from 2 leave axis 1 of 3"},
      {"tensor<fp16, [2, 3]> y = slice_update(x = x, update = tensor<fp16, [1, 1]>([[5]]), begin = i, end = "
       "tensor<int32, [2]>([2, 3]));",
       {1, 1},
       "slice_update 'y': the slice 1 to 3 of axis 1 (3 elements) does not hold 1 elements"},
      {"tensor<fp16, [?, ?]> y = reshape(x = x, shape = i);",
       {4, 2},
       "reshape 'y': 6 elements of [2, 3] as [4, 2]"},
      {"tensor<fp16, [?, ?]> y = tile(x = x, reps = i);", {1, -1}, "tile 'y': -1 repetitions"},
      {"tensor<fp16, [?, ?]> y = tile(x = x, reps = i);", {1 << 30, 1 << 30}, "tile 'y': "},
      {"tensor<fp16, [?, ?]> y = fill(shape = i, value = fp16(0x1p+0));", {1 << 30, 1 << 30}, "fill 'y': "},
      {"tensor<fp16, [?, ?]> y = slice_by_index(x = x, begin = i, end = i, squeeze_mask = tensor<bool, "
       "[2]>([false, false]));",
       {0, 0},
       ""},
  };
  for (const Case& c : cases) {
    const auto interpreter = InterpreterOf(PackageOfText(c.statements));
    ASSERT_TRUE(interpreter) << interpreter.error().message;
    auto runner = (*interpreter)->Plan("");
    ASSERT_TRUE(runner) << c.statements << runner.error().message;
    SetInput(*runner, 0, {1, 2, 3, 4, 5, 6});
    SetInput(*runner, 1, c.i);
    const auto status = runner->Run(nullptr);
    if (!*c.message) {
      EXPECT_TRUE(status) << status.error().message;
      continue;
    }
    ASSERT_FALSE(status) << c.statements;
    EXPECT_EQ(status.error().message.rfind(std::string("function 'main': ") + c.message, 0), 0u)
        << status.error().message;
  }
}

/// Shapes of a few bytes that ask for all memory there is.
TEST(Plan, RefusesHostileSizes) {
  const char* const programs[] = {
      "tensor<fp16, [1073741824, 1073741824]> y = fill(shape = tensor<int32, [2]>([1073741824, 1073741824]), "
      "value = fp16(0x0p+0));",
      "tensor<fp16, [2000000000, 3]> y = tile(x = x, reps = tensor<int32, [2]>([1000000000, 1]));",
      "tensor<fp16, [2, 2000000003]> y = pad(x = x, pad = tensor<int32, [2]>([1000000000, 1000000000]));",
      "tensor<int32, [2, 2000000000]> y = one_hot(indices = i, one_hot_vector_size = int32(2000000000));",
      "tensor<int32, [2147483647]> y = range_1d(start = int32(0), end = int32(2147483647), step = int32(1));",
      "tensor<fp16, [1000000, 0, 1000000000]> y = fill(shape = tensor<int32, [3]>([1000000, 0, 1000000000]), "
      "value = fp16(0x0p+0));",
  };
  for (const char* statements : programs) {
    const auto interpreter = InterpreterOf(PackageOfText(statements), {.memory_limit_bytes = 64 << 20});
    ASSERT_TRUE(interpreter) << statements << interpreter.error().message;
    const auto runner = (*interpreter)->Plan("");
    ASSERT_FALSE(runner) << statements;
    EXPECT_EQ(runner.error().kind, ErrorKind::kLimit) << runner.error().message;
    EXPECT_NE(runner.error().message.find("needs more than the 67108864 bytes allowed"), std::string::npos)
        << runner.error().message;
  }
  const auto input =
      InterpreterOf(PackageOfText("tensor<fp16, [4000000000, 4000000000, 4000000000]> y = relu(x = x);",
                                  "tensor<fp16, [4000000000, 4000000000, 4000000000]> x"));
  if (input) {
    const auto runner = (*input)->Plan("");
    ASSERT_FALSE(runner);
    EXPECT_EQ(runner.error().kind, ErrorKind::kLimit) << runner.error().message;
  }
  // Many moderate buffers that live at the same time.
  std::string statements;
  for (int i = 0; i < 40; ++i)
    statements += fmt::format(
        "tensor<fp16, [2, 1048576]> t{0} = tile(x = c, reps = tensor<int32, [2]>([1, 1048576]));\n", i);
  statements =
      "tensor<fp16, [2, 1]> c = slice_by_size(x = x, begin = i, size = tensor<int32, [2]>([2, 1]));\n" +
      statements;
  std::string names = "t0";
  for (int i = 1; i < 40; ++i) names += fmt::format(", t{}", i);
  statements += "tensor<fp16, [2, 41943040]> y = concat(values = (" + names + "), axis = int32(1));";
  const auto many = InterpreterOf(PackageOfText(statements), {.memory_limit_bytes = uint64_t{336} << 20});
  ASSERT_TRUE(many) << many.error().message;
  const auto runner = (*many)->Plan("");
  ASSERT_FALSE(runner);
  EXPECT_EQ(runner.error().kind, ErrorKind::kLimit) << runner.error().message;
}

TEST(Run, StopsWhenItIsToldTo) {
  std::atomic<bool> cancelled{false};
  const auto interpreter =
      InterpreterOf(PackageOfText("tensor<fp16, [2, 3]> y = relu(x = x);"), {.cancelled = &cancelled});
  ASSERT_TRUE(interpreter);
  auto runner = (*interpreter)->Plan("");
  ASSERT_TRUE(runner);
  EXPECT_TRUE(runner->Run(nullptr));
  cancelled = true;
  const auto status = runner->Run(nullptr);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().kind, ErrorKind::kCancelled);
}

/// What negative indices of gather mean changed with iOS 17.
TEST(Run, CountsGatherIndicesFromTheEndInOlderPrograms) {
  for (const auto& [opset, is_old] :
       {std::pair("ios15", true), {"ios16", true}, {"ios17", false}, {"ios18", false}}) {
    const auto program = mil::ParseProgramText(
        fmt::format("program(1.3)\n{{ func main<{}>(tensor<fp16, [3]> x, tensor<int32, [2]> i) {{\n"
                    "tensor<fp16, [2]> y = gather(x = x, indices = i, axis = int32(0));\n}} -> (y); }}",
                    opset));
    ASSERT_TRUE(program) << program.error().message;
    mil::Model model;
    model.description = *DescribeProgram(*program);
    model.program = *program;
    const auto interpreter = InterpreterOf(PackageOf(std::move(model)));
    ASSERT_TRUE(interpreter) << interpreter.error().message;
    auto runner = (*interpreter)->Plan("");
    ASSERT_TRUE(runner);
    SetInput(*runner, 0, {1, 2, 3});
    SetInput(*runner, 1, {-1, 0});
    EXPECT_EQ(runner->Run(nullptr).has_value(), is_old) << opset;
    if (is_old) {
      EXPECT_EQ(OutputOf(*runner, 0), (std::vector<double>{3, 1}));
    }
    SetInput(*runner, 1, {-4, 0});
    EXPECT_FALSE(runner->Run(nullptr));
  }
}

/// With fp16 precision every result is one that fp16 can hold, inputs included; with f32 nothing is rounded.
TEST(Run, RoundsToTheDeclaredTypeOrNotAtAll) {
  for (const Precision precision : {Precision::kF16, Precision::kF32}) {
    const auto interpreter =
        InterpreterOf(PackageOfText("tensor<fp16, [2, 3]> t = add(x = x, y = fp16(0x1p-12));\n"
                                    "tensor<fp16, [2, 3]> y = sub(x = t, y = fp16(0x1p+0));"),
                      {precision});
    ASSERT_TRUE(interpreter) << interpreter.error().message;
    auto runner = (*interpreter)->Plan("");
    ASSERT_TRUE(runner);
    SetInput(*runner, 0, std::vector<double>(6, 1.0));
    ASSERT_TRUE(runner->Run(nullptr));
    EXPECT_EQ(OutputOf(*runner, 0), std::vector<double>(6, precision == Precision::kF16 ? 0 : 0x1p-12));
  }
}

TEST(Run, KeepsNothingFromAFailedRun) {
  const auto interpreter =
      InterpreterOf(PackageOfText("tensor<fp16, [2, 2]> y = gather(x = x, indices = i, axis = int32(1));"));
  ASSERT_TRUE(interpreter);
  auto runner = (*interpreter)->Plan("");
  ASSERT_TRUE(runner);
  SetInput(*runner, 0, {1, 2, 3, 4, 5, 6});
  SetInput(*runner, 1, {0, 9});
  EXPECT_FALSE(runner->Run(nullptr));
  SetInput(*runner, 1, {2, 0});
  ASSERT_TRUE(runner->Run(nullptr));
  EXPECT_EQ(OutputOf(*runner, 0), (std::vector<double>{3, 1, 6, 4}));
}

}  // namespace
}  // namespace cmforge::coreml
