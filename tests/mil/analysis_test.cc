// What the checker refuses, statement by statement.
#include "mil/analysis.h"

#include <gtest/gtest.h>

#include "mil/builder.h"
#include "mil/text.h"

namespace cmforge::mil {
namespace {

/// What is wrong with a function of these statements over some inputs and a state, or "".
std::string Complaint(const std::string& statements, const std::string& outputs = "x") {
  const auto program = ParseProgramText(
      "program(1.3)\n{ func main<ios18>(tensor<fp16, [2, 3]> x, tensor<fp32, [2, 3]> w, tensor<int32, [2]> "
      "i, "
      "tensor<fp16, [?, 4]> u, state<tensor<fp16, [2, 3]>> s) {\n" +
      statements + "\n} -> (" + outputs + "); }");
  if (!program) return "PARSE " + program.error().message;
  const auto status = CheckFunction("main", program->functions.at("main"), nullptr);
  return status ? "" : status.error().message;
}

TEST(CheckFunction, AcceptsWhatIsRight) {
  EXPECT_EQ(
      Complaint("tensor<fp16, [2, 3]> y = add(x = x, y = x);\n"
                "tensor<fp16, [2, 3]> r = read_state(input = s);\n"
                "tensor<fp16, [2, 3]> z = mul(x = y, y = r);\n"
                "write_state(data = z, input = s);\n"
                "tensor<fp16, [?, 2]> t = slice_by_index(x = u, begin = tensor<int32, [2]>([0, 1]), end = "
                "tensor<int32, [2]>([0, 3]), end_mask = tensor<bool, [2]>([true, false]));",
                "y, t"),
      "");
}

TEST(CheckFunction, NamesTheOperationAndTheFact) {
  struct Case {
    const char* statements;
    const char* message;
  };
  const Case cases[] = {
      {"tensor<fp16, [2, 3]> y = relu(x = nothing);", "relu 'y': 'nothing' is not defined (parameter 'x')"},
      {"tensor<fp16, [2, 3]> y = relu(x = y);", "relu 'y': 'y' is not defined (parameter 'x')"},  // a circle
      {"tensor<fp16, [2, 3]> y = relu(x = z);\ntensor<fp16, [2, 3]> z = relu(x = y);",
       "relu 'y': 'z' is not defined"},
      {"tensor<fp16, [2, 3]> x = relu(x = x);", "relu 'x': 'x' is defined twice"},
      {"tensor<fp16, [2, 3]> y = relu(x = x);\ntensor<fp16, [2, 3]> y = relu(x = x);",
       "relu 'y': 'y' is defined twice"},
      {"tensor<fp16, [2, 3]> y = warp(x = x);", "warp 'y': operation 'warp' is not known"},
      {"tensor<fp16, [2, 3]> y = relu(x = x, z = x);", "relu 'y': no parameter 'z'"},
      {"tensor<fp16, [2, 3]> y = add(x = x);", "add 'y': parameter 'y' is missing"},
      {"tensor<fp16, [2, 3]> y = relu(x = (x, x));", "relu 'y': parameter 'x' has 2 values, one is wanted"},
      {"tensor<fp16, [2, 3]> y = add(x = x, y = w);",
       "add 'y': parameter 'y' is tensor<fp32, [2, 3]>, but 'x' is tensor<fp16, [2, 3]>"},
      {"tensor<int32, [2]> y = relu(x = i);",
       "relu 'y': parameter 'x' is tensor<int32, [2]>, wanted is fp16 or fp32"},
      {"tensor<fp16, [2, 3]> y = relu(x = s);",
       "relu 'y': parameter 'x' is state<tensor<fp16, [2, 3]>>, wanted is fp16 or fp32"},
      {"tensor<fp16, [2, 3]> y = read_state(input = x);",
       "read_state 'y': parameter 'input' is tensor<fp16, [2, 3]>, wanted is a state"},
      {"write_state(data = w, input = s)[name = string(\"put\")];",
       "write_state 'put': tensor<fp32, [2, 3]> written to a state of tensor<fp16, [2, 3]>"},
      {"tensor<fp16, [3, 2]> y = relu(x = x);",
       "relu 'y': 'y' is declared tensor<fp16, [3, 2]>, its inputs give tensor<fp16, [2, 3]>"},
      {"tensor<fp32, [2, 3]> y = relu(x = x);",
       "relu 'y': 'y' is declared tensor<fp32, [2, 3]>, its inputs give tensor<fp16, [2, 3]>"},
      {"tensor<fp16, [2, 3]> y, tensor<fp16, [2, 3]> z = relu(x = x);",
       "relu 'y': 2 outputs declared, 1 are made"},
      {"tensor<fp16, [2, 3]> y = softmax(x = x, axis = int32(2));",
       "softmax 'y': axis 2 of a tensor of rank 2"},
      {"tensor<fp16, [2, 3]> y = softmax(x = x, axis = int32(-3));",
       "softmax 'y': axis -3 of a tensor of rank 2"},
      {"tensor<fp16, [3, 2]> y = transpose(x = x, perm = i);",
       "transpose 'y': parameter 'perm' must be a constant"},
      {"tensor<fp16, [3, 2]> y = transpose(x = x, perm = tensor<int32, [2]>([1, 1]));",
       "transpose 'y': axis 1 occurs twice in 'perm'"},
      {"tensor<fp16, [2, 2]> y = matmul(x = x, y = x);", "matmul 'y': [2, 3] times [2, 3]"},
      {"tensor<fp16, [2, 4]> y = add(x = x, y = u);", "add 'y': shapes [2, 3] and [?, 4] do not broadcast"},
      {"tensor<fp16, [4, 3]> y = concat(values = (x, u), axis = int32(0));",
       "concat 'y': [2, 3] and [?, 4] along axis 0"},
      {"tensor<fp16, [2, 4]> y = reshape(x = x, shape = tensor<int32, [2]>([2, 4]));",
       "reshape 'y': 6 elements of [2, 3] as [2, 4]"},
      {"tensor<fp16, [2, 3]> y = reshape(x = x, shape = tensor<int32, [2]>([-1, -1]));",
       "reshape 'y': reshape to [?, ?]"},
      {"tensor<fp16, [2, 1]> y, tensor<fp16, [2, 1]> z = split(x = x, axis = int32(1), num_splits = "
       "int32(2));",
       "split 'y': an axis of 3 in 2 equal parts"},
      {"tensor<fp16, [2, 3]> y = slice_update(x = x, update = w, begin = i, end = i);",
       "slice_update 'y': parameter 'update' is tensor<fp32, [2, 3]>, but 'x' is"},
      {"tensor<fp16, [2, 3]> y = clip(x = x, alpha = fp16(0x1p+0), beta = fp16(-0x1p+0));",
       "clip 'y': clip from 1 to -1"},
      {"tensor<fp16, [2, 3]> y = gelu(x = x, mode = string(\"FAST\"));",
       "gelu 'y': gelu mode 'FAST' is not known"},
      {"tensor<fp16, [2, 3]> y = cast(x = x, dtype = string(\"uint4\"));",
       "cast 'y': cast to 'uint4' is not possible"},
      {"tensor<fp16, [2, 3]> y = cast(x = x, dtype = i);",
       "cast 'y': parameter 'dtype' is tensor<int32, [2]>, wanted is string"},
      {"tensor<fp16, [4]> y = constexpr_lut_to_dense(indices = tensor<uint2, [4]>([0, 1, 2, 3]), lut = "
       "tensor<fp16, [1, 2, 1]>([[[0], [1]]]));",
       "constexpr_lut_to_dense 'y': lut is [1, 2, 1] for indices tensor<uint2, [4]>"},
      {"tensor<fp16, [4]> y = constexpr_lut_to_dense(indices = tensor<uint1, [4]>([0, 1, 1, 1]), lut = "
       "tensor<fp16, [3, 2, 1]>([[[0], [1]], [[0], [1]], [[0], [1]]]));",
       "constexpr_lut_to_dense 'y': lut [3] does not divide [4]"},
      {"tensor<fp16, [4]> y = constexpr_blockwise_shift_scale(data = tensor<int4, [4]>([0, 1, 1, 1]), scale "
       "= tensor<fp16, [3]>([1, 1, 1]));",
       "constexpr_blockwise_shift_scale 'y': scale [3] does not divide [4]"},
      {"tensor<fp16, [2, 3]> y = constexpr_cast(source_val = x, output_dtype = string(\"fp16\"));",
       "constexpr_cast 'y': parameter 'source_val' must be a constant"},
  };
  for (const Case& c : cases) {
    const std::string message = Complaint(c.statements);
    EXPECT_EQ(message.rfind(std::string("function 'main': ") + c.message, 0), 0u)
        << message << "\n  wanted " << c.message;
  }
  EXPECT_EQ(Complaint("", "y"), "function 'main': output 'y' is not defined");
  EXPECT_EQ(Complaint("tensor<fp16, [2, 3]> y = relu(x = x);", "y, y"),
            "function 'main': output 'y' occurs twice");
}

/// A description against a program that says otherwise.
TEST(CheckModel, ComparesTheDescriptionWithTheProgram) {
  const auto program = ParseProgramText(
      "program(1.3)\n{ func main<ios18>(tensor<fp16, [2, ?]> x, state<tensor<fp16, [2]>> s) {\n"
      "tensor<fp16, [2, ?]> y = relu(x = x);\n} -> (y); }");
  ASSERT_TRUE(program) << program.error().message;
  Model good;
  good.program = *program;
  good.description = *DescribeProgram(*program);
  auto array = [](Feature& feature) -> ArrayFeature& { return std::get<ArrayFeature>(feature.type); };
  array(good.description.inputs[0]).shape = {2, 4};
  array(good.description.inputs[0]).enumerated_shapes = {{2, 4}, {2, 8}};
  ASSERT_TRUE(CheckModel(good, nullptr)) << CheckModel(good, nullptr).error().message;
  const auto complaint = [&](auto&& change) {
    Model bad = good;
    change(bad);
    const auto status = CheckModel(bad, nullptr);
    return status ? std::string() : status.error().message;
  };
  const std::string at = "function 'main': description: ";
  EXPECT_EQ(complaint([&](Model& m) { m.description.inputs.clear(); }),
            at + "1 inputs and states are described, the program has 2");
  EXPECT_EQ(complaint([&](Model& m) { m.description.outputs.push_back(m.description.outputs[0]); }),
            at + "'y' is described twice");
  EXPECT_EQ(complaint([&](Model& m) {
              m.description.default_function = "main";
              for (int i = 0; i < 2; ++i)
                m.description.functions.push_back(
                    {"main", m.description.inputs, m.description.outputs, m.description.states});
            }),
            at + "described twice");
  EXPECT_EQ(complaint([&](Model& m) { m.description.inputs[0].name = "z"; }),
            at + "input 'z' is described, the program has none");
  EXPECT_EQ(complaint([&](Model& m) { array(m.description.inputs[0]).dtype = ArrayDataType::kFloat32; }),
            at + "input 'x': described as fp32, the program has tensor<fp16, [2, ?]>");
  EXPECT_EQ(complaint([&](Model& m) {
              array(m.description.inputs[0]).shape = {3, 4};
            }),
            at + "input 'x': described as [3, 4], the program has tensor<fp16, [2, ?]>");
  EXPECT_EQ(complaint([&](Model& m) {
              array(m.description.inputs[0]).shape = {2, 5};
            }),
            at + "input 'x': its default shape [2, 5] is none of the allowed ones");
  EXPECT_EQ(complaint([&](Model& m) {
              array(m.description.inputs[0]).enumerated_shapes.push_back({4, 2});
            }),
            at + "input 'x': shape [4, 2] is allowed, the program has tensor<fp16, [2, ?]>");
  EXPECT_EQ(complaint([&](Model& m) { m.description.states[0].is_state = false; }),
            at + "input 's': a state on one side only");
  EXPECT_EQ(complaint([&](Model& m) { m.description.outputs[0].name = "x"; }),
            at + "output 'x' is described, the program has none");
  EXPECT_EQ(complaint([&](Model& m) { m.description.default_function = "infer"; }),
            "default function 'infer' is not in the program");
  EXPECT_EQ(complaint([&](Model& m) {
              m.program.functions["main"].inputs[0].type = Type::List(Type(DataType::kFloat16, {}));
              m.program.functions["main"].body.operations.clear();
              m.program.functions["main"].body.outputs = {"s"};
            }),
            at + "input 'x': the program has list<fp16, ?>");
}

/// Every operation with its operands missing, of every type, and of absurd shapes: an error or types, no crash.
TEST(CheckFunction, SurvivesAnyOperandAnywhere) {
  const char* const operands[] = {"x",
                                  "w",
                                  "i",
                                  "u",
                                  "s",
                                  "int32(-1)",
                                  "int32(2147483647)",
                                  "tensor<int32, [0]>([])",
                                  "tensor<int32, [2]>([-2147483648, 2147483647])",
                                  "string(\"int32\")",
                                  "bool(true)",
                                  "tensor<bool, [2]>([true, false])",
                                  "fp16(nan)",
                                  "(x, w)",
                                  "tensor<uint1, [2, 3]>([[0, 1, 0], [1, 1, 1]])",
                                  "tensor<fp16, [1, 1, 2, 1]>([[[[1], [2]]]])",
                                  "int64(-9223372036854775808)"};
  int64_t accepted = 0, refused = 0;
  for (const OpInfo& op : AllOps()) {
    for (const char* first : operands) {
      for (const char* rest : operands) {
        std::string arguments;
        for (const Parameter& parameter : op.parameters)
          arguments += fmt::format("{}{} = {}", arguments.empty() ? "" : ", ", parameter.name,
                                   arguments.empty() ? first : rest);
        const std::string message =
            Complaint(fmt::format("tensor<fp16, [?]> y = {}({});", op.name, arguments));
        ++(message.empty() ? accepted : refused);
        const bool names_it = message.starts_with(fmt::format("function 'main': {} 'y': ", op.name));
        ASSERT_TRUE(message.empty() || names_it) << message;
      }
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_GT(refused, 100 * accepted);
}

TEST(FunctionBuilder, KeepsTheFirstErrorAndGoesOnQuietly) {
  FunctionBuilder b;
  const Var x = b.Input("x", {DataType::kFloat16, {2, 3}});
  const Var bad = b.Op("matmul", {{"x", x}, {"y", x}}, "product");
  const Var more = b.Op("relu", {{"x", bad}});
  b.Output(more, "y");
  const auto function = b.Finish();
  ASSERT_FALSE(function);
  EXPECT_EQ(function.error().message, "matmul 'product': [2, 3] times [2, 3]");
}

TEST(FunctionBuilder, NamesAreUniqueIdentifiersAndConstantsShared) {
  FunctionBuilder b;
  const Var x = b.Input("model.x-1", {DataType::kFloat16, {2, 3}});
  EXPECT_EQ(x.name, "model_x_1");
  const Var p = b.Op("softmax", {{"x", x}, {"axis", -1}}, "p");
  const Var q = b.Op("softmax", {{"x", p}, {"axis", -1}}, "p");
  EXPECT_EQ(p.name, "p");
  EXPECT_EQ(q.name, "p_1");
  b.Output(q, "result");
  const auto function = b.Finish();
  ASSERT_TRUE(function) << function.error().message;
  int64_t constants = 0;
  for (const Operation& op : function->body.operations) constants += op.type == "const";
  EXPECT_EQ(constants, 1);
  EXPECT_EQ(function->body.operations.back().outputs[0].name, "result");
}

}  // namespace
}  // namespace cmforge::mil
