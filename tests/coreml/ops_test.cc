// Every operation of the iOS 18 set against numpy (tests/oracle/coreml_ops.py): inferred types, numbers in f32
// and fp16, the same folded into constants and with shapes that are only known when a function is planned, and
// the program through both of its file forms.
#include <set>

#include "coreml/tensors.h"
#include "mil/packed_bits.h"
#include "mil/proto.h"
#include "mil/text.h"

namespace cmforge::coreml {
namespace {

using mil::DataType;
using mil::Value;

/// What one case is built as.
struct Variant {
  const char* name;
  bool is_half = false;    // fp32 becomes fp16
  bool is_folded = false;  // inputs become constants
  bool is_open = false;    // dimensions of float inputs are not known to the program
};

constexpr Variant kVariants[] = {{"f32"}, {"fp16", true}, {"folded", false, true}, {"open", false, false, true}};

Value ValueOf(const Json& json, bool is_half) {
  if (json.contains("text")) return mil::String(json.at("text"));
  const JsonTensor tensor = JsonTensor::From(json);
  DataType dtype = *mil::DataTypeFromName(tensor.dtype);
  if (is_half && dtype == DataType::kFloat32) dtype = DataType::kFloat16;
  if (mil::IsFloat(dtype)) {
    return mil::Floats(dtype, tensor.shape, {tensor.data.begin(), tensor.data.end()});
  }
  const int bits = mil::BitsOf(dtype);
  std::vector<std::byte> bytes;
  if (bits < 8) {
    std::vector<uint8_t> codes;
    for (const double v : tensor.data) codes.push_back(static_cast<uint8_t>(static_cast<int>(v)));
    bytes = mil::PackBits(codes, bits);
  } else {
    for (const double v : tensor.data) {
      const auto whole = static_cast<int64_t>(v);
      for (int i = 0; i < bits / 8; ++i) bytes.push_back(static_cast<std::byte>(whole >> (8 * i)));
    }
  }
  return mil::Raw({dtype, tensor.shape}, std::move(bytes));
}

/// A description has no bool and no small integers: such outputs are converted.
mil::Var Describable(mil::FunctionBuilder& b, const mil::Var& var) {
  const DataType dtype = var.type.dtype;
  if (mil::IsFloat(dtype) || dtype == DataType::kInt32) return var;
  return b.Op("cast", {{"x", var}, {"dtype", "int32"}});
}

Result<mil::Package> Build(const Json& json, const Variant& variant) {
  mil::FunctionBuilder b;
  std::map<std::string, mil::Var> values;
  b.Input("unused", {DataType::kFloat32, {1}});  // a folded program has an input too
  for (const auto& [name, tensor] : json.at("inputs").items()) {
    const Value value = ValueOf(tensor, variant.is_half);
    mil::TensorType type = value.type.tensor;
    if (variant.is_open && mil::IsFloat(type.dtype))
      for (int64_t& dim : type.shape) dim = mil::kUnknownDim;
    values[name] = variant.is_folded ? b.Const(value, name) : b.Input(name, type);
  }
  for (const Json& step : json.at("steps")) {
    const std::string op = step.at("op");
    mil::Args args;
    std::vector<std::string> names;  // the views in `args` point into these
    names.reserve(step.at("args").size());
    for (const auto& [parameter, argument] : step.at("args").items()) {
      names.push_back(parameter);
      if (argument.is_string()) {
        args.emplace_back(names.back(), values.at(argument));
      } else if (argument.is_array()) {
        std::vector<mil::Var> vars;
        for (const Json& one : argument) vars.push_back(values.at(one));
        args.emplace_back(names.back(), std::move(vars));
      } else {
        args.emplace_back(names.back(), ValueOf(argument.at("const"), variant.is_half));
      }
    }
    const std::vector<mil::Var> made =
        op.starts_with("constexpr_") ? b.Constexprs(op, args, "") : b.Ops(op, args);
    for (size_t i = 0; i < made.size(); ++i) values[step.at("out").at(i)] = made[i];
    if (b.ok() && made.size() != step.at("out").size())
      return Fail(ErrorKind::kInternal, fmt::format("{} results", made.size()));
  }
  for (const auto& [name, tensor] : json.at("outputs").items()) {
    if (!b.ok()) break;
    // Outputs must be results of operations of their own.
    b.Output(b.Op("identity", {{"x", Describable(b, values.at(name))}}), "out_" + name);
  }
  return PackageOf(b);
}

std::vector<std::vector<double>> Execute(const mil::Package& package, const Json& json, const Variant& variant,
                                         int threads) {
  std::vector<std::vector<double>> out;
  const Precision precision = variant.is_half ? Precision::kF16 : Precision::kF32;
  const auto interpreter = Interpreter::Create(package, {precision, std::make_shared<ThreadPool>(threads)});
  EXPECT_TRUE(interpreter) << interpreter.error().message;
  if (!interpreter) return out;
  std::map<std::string, Shape> shapes;
  if (!variant.is_folded)
    for (const auto& [name, tensor] : json.at("inputs").items()) shapes[name] = tensor.at("shape").get<Shape>();
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

const Json& Cases() {
  static const Json json = ReadJson(TestData("coreml/ops.json"));
  return json.at("cases");
}

class EveryOperation : public testing::TestWithParam<Variant> {};

TEST_P(EveryOperation, GivesWhatNumpySays) {
  const Variant& variant = GetParam();
  for (const Json& json : Cases()) {
    SCOPED_TRACE(json.at("name").get<std::string>());
    if ((variant.is_half && json.value("no16", false)) || (variant.is_open && json.value("fixed", false))) continue;
    const auto package = Build(json, variant);
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
      EXPECT_TRUE(Near(got[i++], JsonTensor::From(tensor).data, tolerance, variant.is_half ? 1e-3 : exact)) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(As, EveryOperation, testing::ValuesIn(kVariants),
                         [](const auto& info) { return std::string(info.param.name); });




TEST(EveryOperation, SurvivesBothFileForms) {
  for (const Json& json : Cases()) {
    for (const Variant& variant : kVariants) {
      if ((variant.is_half && json.value("no16", false)) || (variant.is_open && json.value("fixed", false))) continue;
      SCOPED_TRACE(json.at("name").get<std::string>() + " " + variant.name);
      const auto package = Build(json, variant);
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
const char* const kDocumented[] = {
    "add", "sub", "mul", "maximum", "minimum", "pow", "real_div", "floor_div", "mod", "equal", "not_equal", "greater",
    "greater_equal", "less", "less_equal", "logical_and", "logical_or", "tanh", "exp", "sqrt", "erf", "sigmoid", "silu",
    "relu", "softplus", "floor", "ceil", "round", "sin", "cos", "abs", "square", "sign", "exp2", "logical_not", "rsqrt",
    "log", "inverse", "clip", "gelu", "cast", "softmax", "layer_norm", "l2_norm", "instance_norm", "batch_norm",
    "reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_sum_square", "reduce_l2_norm", "reduce_log_sum_exp",
    "reduce_argmax", "matmul", "linear", "einsum", "conv", "concat", "stack", "split", "slice_by_index", "slice_by_size",
    "slice_update", "gather", "gather_along_axis", "gather_nd", "expand_dims", "squeeze", "reshape", "transpose", "tile",
    "select", "cumsum", "band_part", "fill", "range_1d", "shape", "pad", "topk", "argsort", "one_hot",
    "scaled_dot_product_attention", "read_state", "write_state", "const", "constexpr_lut_to_dense",
    "constexpr_blockwise_shift_scale", "constexpr_sparse_to_dense", "constexpr_lut_to_sparse",
    "constexpr_sparse_blockwise_shift_scale", "constexpr_cast"};

TEST(EveryOperation, IsKnownAndHasACase) {
  std::set<std::string> tested = {"const", "read_state", "write_state"};  // in every program; states_test.cc
  for (const Json& json : Cases())
    for (const Json& step : json.at("steps")) tested.insert(step.at("op").get<std::string>());
  for (const char* name : kDocumented) EXPECT_TRUE(mil::FindOp(name)) << name;
  for (const mil::OpInfo& op : mil::AllOps()) EXPECT_TRUE(tested.contains(std::string(op.name))) << op.name;
}

}  // namespace
}  // namespace cmforge::coreml
