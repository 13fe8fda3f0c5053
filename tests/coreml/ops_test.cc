// Every operation of the iOS 18 set against numpy (tests/oracle/coreml_ops.py): inferred types, numbers in f32
// and fp16, the same folded into constants and with shapes that are only known when a function is planned, and
// the program through both of its file forms.
#include <set>

#include "coreml/case_program.h"
#include "mil/proto.h"
#include "mil/text.h"

namespace cmforge::coreml {
namespace {

std::vector<std::vector<double>> Execute(const mil::Package& package, const Json& json,
                                         const CaseVariant& variant, int threads) {
  std::vector<std::vector<double>> out;
  const Precision precision = variant.is_half ? Precision::kF16 : Precision::kF32;
  const auto interpreter = Interpreter::Create(package, {precision, std::make_shared<ThreadPool>(threads)});
  EXPECT_TRUE(interpreter) << interpreter.error().message;
  if (!interpreter) return out;
  std::map<std::string, Shape> shapes;
  if (!variant.is_folded)
    for (const auto& [name, tensor] : json.at("inputs").items())
      shapes[name] = tensor.at("shape").get<Shape>();
  auto runner = (*interpreter)->Plan("", shapes);
  EXPECT_TRUE(runner) << runner.error().message;
  if (!runner) return out;
  for (int round = 0; round < 2; ++round) {  // the second run finds the memory as the first one left it
    out.clear();
    for (const auto& [name, shape] : shapes)
      SetInput(*runner, runner->FindInput(name), JsonTensor::From(json.at("inputs").at(name)).data);
    const auto status = runner->Run(nullptr);
    EXPECT_TRUE(status) << status.error().message;
    if (!status) return {};
    for (const auto& [name, tensor] : json.at("outputs").items()) {
      const int index = runner->FindOutput("out_" + name);
      const Port& port = runner->outputs()[static_cast<size_t>(index)];
      EXPECT_EQ(port.type.shape, tensor.at("shape").get<Shape>()) << name;
      const bool is_float = tensor.at("dtype") == "fp32";
      EXPECT_EQ(mil::IsFloat(port.type.dtype), is_float) << name << " " << TypeText(port.type);
      out.push_back(OutputOf(*runner, index));
    }
  }
  return out;
}

class EveryOperation : public testing::TestWithParam<CaseVariant> {};

TEST_P(EveryOperation, GivesWhatNumpySays) {
  const CaseVariant& variant = GetParam();
  for (const Json& json : OperationCases()) {
    SCOPED_TRACE(json.at("name").get<std::string>());
    if (!IsMeant(json, variant)) continue;
    const auto package = BuildCase(json, variant);
    ASSERT_TRUE(package) << package.error().message;
    const auto got = Execute(*package, json, variant, 1);
    const auto threaded = Execute(*package, json, variant, 3);
    ASSERT_EQ(got.size(), threaded.size());
    for (size_t k = 0; k < got.size(); ++k)
      EXPECT_TRUE(Near(got[k], threaded[k], 0)) << "depends on the number of threads";
    size_t i = 0;
    for (const auto& [name, tensor] : json.at("outputs").items()) {
      if (i >= got.size()) break;
      const double exact = json.value("tolerance", 2e-6);
      // fp16 rounds every result once: half a unit in the last place, more where a graph rounds in between.
      const double tolerance = variant.is_half ? 2 * exact + 1e-3 : exact;
      EXPECT_TRUE(Near(got[i++], JsonTensor::From(tensor).data, tolerance, variant.is_half ? 1e-3 : exact))
          << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(As, EveryOperation, testing::ValuesIn(kCaseVariants),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(EveryOperation, SurvivesBothFileForms) {
  for (const Json& json : OperationCases()) {
    for (const CaseVariant& variant : kCaseVariants) {
      if (!IsMeant(json, variant)) continue;
      SCOPED_TRACE(json.at("name").get<std::string>() + " " + variant.name);
      const auto package = BuildCase(json, variant);
      ASSERT_TRUE(package) << package.error().message;
      const mil::Model& model = package->model;
      const auto parsed = mil::ParseModel(AsBytes(SerializeModel(model)));
      ASSERT_TRUE(parsed) << parsed.error().message;
      EXPECT_TRUE(parsed->program == model.program);
      const std::string text = PrintProgram(model.program);
      const auto read = mil::ParseProgramText(text);
      ASSERT_TRUE(read) << read.error().message << "\n" << text;
      EXPECT_TRUE(*read == model.program) << text;
    }
  }
}

/// The operations the format documents for iOS 18 (docs/formats/coreml.md).
const char* const kDocumented[] = {"add",
                                   "sub",
                                   "mul",
                                   "maximum",
                                   "minimum",
                                   "pow",
                                   "real_div",
                                   "floor_div",
                                   "mod",
                                   "equal",
                                   "not_equal",
                                   "greater",
                                   "greater_equal",
                                   "less",
                                   "less_equal",
                                   "logical_and",
                                   "logical_or",
                                   "tanh",
                                   "exp",
                                   "sqrt",
                                   "erf",
                                   "sigmoid",
                                   "silu",
                                   "relu",
                                   "softplus",
                                   "floor",
                                   "ceil",
                                   "round",
                                   "sin",
                                   "cos",
                                   "abs",
                                   "square",
                                   "sign",
                                   "exp2",
                                   "logical_not",
                                   "rsqrt",
                                   "log",
                                   "inverse",
                                   "clip",
                                   "gelu",
                                   "cast",
                                   "softmax",
                                   "layer_norm",
                                   "l2_norm",
                                   "instance_norm",
                                   "batch_norm",
                                   "reduce_sum",
                                   "reduce_mean",
                                   "reduce_max",
                                   "reduce_min",
                                   "reduce_sum_square",
                                   "reduce_l2_norm",
                                   "reduce_log_sum_exp",
                                   "reduce_argmax",
                                   "matmul",
                                   "linear",
                                   "einsum",
                                   "conv",
                                   "concat",
                                   "stack",
                                   "split",
                                   "slice_by_index",
                                   "slice_by_size",
                                   "slice_update",
                                   "gather",
                                   "gather_along_axis",
                                   "gather_nd",
                                   "expand_dims",
                                   "squeeze",
                                   "reshape",
                                   "transpose",
                                   "tile",
                                   "select",
                                   "cumsum",
                                   "band_part",
                                   "fill",
                                   "range_1d",
                                   "shape",
                                   "pad",
                                   "topk",
                                   "argsort",
                                   "one_hot",
                                   "scaled_dot_product_attention",
                                   "read_state",
                                   "write_state",
                                   "const",
                                   "constexpr_lut_to_dense",
                                   "constexpr_blockwise_shift_scale",
                                   "constexpr_sparse_to_dense",
                                   "constexpr_lut_to_sparse",
                                   "constexpr_sparse_blockwise_shift_scale",
                                   "constexpr_cast"};

TEST(EveryOperation, IsKnownAndHasACase) {
  std::set<std::string> tested = {"const", "read_state", "write_state"};  // in every program; states_test.cc
  for (const Json& json : OperationCases())
    for (const Json& step : json.at("steps")) tested.insert(step.at("op").get<std::string>());
  for (const char* name : kDocumented) EXPECT_TRUE(mil::FindOp(name)) << name;
  for (const mil::OpInfo& op : mil::AllOps()) EXPECT_TRUE(tested.contains(std::string(op.name))) << op.name;
}

}  // namespace
}  // namespace cmforge::coreml
