// Formulas that fp16 or the Neural Engine get wrong.
#include <cmath>
#include <set>

#include "coreml/lint/subject.h"

namespace cmforge::coreml::lint {
namespace {

using mil::DataType;
using mil::Operation;

constexpr double kLeastHalf = 0x1p-24;  // the smallest fp16 number above 0

bool IsHalf(const FunctionView& function, const Operation& op, std::string_view parameter) {
  const mil::TensorType* type = function.TypeOf(op, parameter);
  return type && type->dtype == DataType::kFloat16;
}

// ---- epsilons

void CheckEpsilon(const ModelSubject& model, const FunctionView& function, const Operation& op,
                  Findings& findings) {
  struct Default {
    std::string_view op, value, effect;
  };
  static constexpr Default kDefaults[] = {{"rsqrt", "1e-12", "nothing in fp16: 1 / sqrt(0) is infinite"},
                                          {"log", "1e-45", "nothing in fp16: log(0) is infinite"},
                                          {"l2_norm", "1e-6", "a subnormal in fp16"},
                                          {"inverse", "1e-4", "large enough to be seen in the result"}};
  const bool is_norm = op.type == "layer_norm" || op.type == "instance_norm" || op.type == "batch_norm";
  const Default* known = nullptr;
  for (const Default& one : kDefaults) {
    if (one.op == op.type) known = &one;
  }
  if (!known && !is_norm) return;
  if (!op.inputs.contains("epsilon")) {
    if (is_norm) {
      findings.Add(rules::kNormEpsilon, model, function, op, "epsilon is left out: it becomes 1e-5");
    } else if (IsHalf(function, op, "x") || op.type == "inverse") {
      findings.Add(rules::kOmittedEpsilon, model, function, op,
                   fmt::format("epsilon is left out: the default {} is {}", known->value, known->effect));
    }
    return;
  }
  const auto epsilon = function.Number(op, "epsilon");
  // A logarithm of what is known to be above 0 may well have none.
  if (epsilon && *epsilon < kLeastHalf / 2 && op.type != "log" && IsHalf(function, op, "x")) {
    findings.Add(rules::kVanishingEpsilon, model, function, op,
                 fmt::format("epsilon {:g} is 0 in fp16", *epsilon));
  }
}

// ---- GELU

/// The value that `name` is the cube of, or nothing.
bool IsCube(const FunctionView& function, const std::string& name) {
  const Operation* op = function.Maker(name);
  if (!op) return false;
  if (op->type == "pow") return function.Number(*op, "y") == 3.0;
  if (op->type != "mul") return false;
  const std::string* x = FunctionView::Name(*op, "x");
  const std::string* y = FunctionView::Name(*op, "y");
  if (!x || !y) return false;
  const auto is_square_of = [&](const std::string& square, const std::string& base) {
    const Operation* maker = function.Maker(square);
    if (!maker) return false;
    const std::string* a = FunctionView::Name(*maker, "x");
    if (!a || *a != base) return false;
    if (maker->type == "square") return true;
    if (maker->type == "pow") return function.Number(*maker, "y") == 2.0;
    const std::string* b = FunctionView::Name(*maker, "y");
    return maker->type == "mul" && b && *b == base;
  };
  return is_square_of(*x, *y) || is_square_of(*y, *x);
}

void CheckGelu(const ModelSubject& model, const FunctionView& function, const Operation& op,
               Findings& findings) {
  if (op.type != "mul" || !IsHalf(function, op, "x")) return;
  for (const auto& [constant, other] : {std::pair{"x", "y"}, std::pair{"y", "x"}}) {
    const auto factor = function.Number(op, constant);
    const std::string* name = FunctionView::Name(op, other);
    if (factor && std::fabs(*factor - 0.044715) < 5e-5 && name && IsCube(function, *name)) {
      findings.Add(rules::kGeluOverflow, model, function, op,
                   "GELU cubes its argument: fp16 overflows above 40");
    }
  }
}

// ---- recurrent states

/// The constant factor of a product, 1 for everything else.
double FactorOf(const FunctionView& function, const Operation& op) {
  if (op.type == "mul") {
    for (const char* parameter : {"x", "y"}) {
      if (const auto factor = function.Number(op, parameter)) return *factor;
    }
  }
  const auto divisor = op.type == "real_div" ? function.Number(op, "y") : std::nullopt;
  return divisor && *divisor != 0 ? 1 / *divisor : 1;
}

/// Values that hold a recurrent state: a matrix per row, stored whole at places known beforehand, as it was read or
/// after elementwise operations.
std::set<std::string_view> RecurrentValues(const FunctionView& function) {
  std::set<std::string_view> whole, out;  // states stored whole; values
  for (const Operation& op : function.operations()) {
    if (op.type != "slice_update" || !function.Integers(op, "begin")) continue;
    const Operation* read = function.MakerOf(op, "x");
    if (!read || read->type != "read_state") continue;
    const std::string* state = FunctionView::Name(*read, "input");
    const mil::TensorType *type = state ? function.TypeOf(*state) : nullptr,
                          *update = function.TypeOf(op, "update");
    if (type && update && type->rank() == 3 && update->rank() == 3 && update->shape[1] == type->shape[1] &&
        update->shape[2] == type->shape[2] && type->shape[1] > 1)
      whole.insert(*state);
  }
  Shape matrix;
  for (const Operation& op : function.operations()) {
    if (op.outputs.size() != 1) continue;
    const Shape& shape = op.outputs[0].type.tensor.shape;
    if (op.type == "read_state") {
      const std::string* state = FunctionView::Name(op, "input");
      if (state && whole.contains(*state)) {
        out.insert(op.outputs[0].name);
        matrix = shape;
      }
      continue;
    }
    const bool keeps = op.type == "mul" || op.type == "add" || op.type == "sub" ||
                       op.type == "slice_by_index" || op.type == "slice_by_size" || IsViewOperation(op);
    if (!keeps || matrix.size() != 3 || shape.size() < 2 || shape.end()[-1] != matrix[2] ||
        shape.end()[-2] != matrix[1])
      continue;
    for (const char* parameter : {"x", "y"}) {
      const std::string* from = FunctionView::Name(op, parameter);
      if (from && out.contains(*from)) out.insert(op.outputs[0].name);
    }
  }
  return out;
}

/// q^T S / sqrt(d_k): the state is stored unscaled. With the unit keys of the reference its products are tiny.
void CheckRecurrence(const ModelSubject& model, const FunctionView& function, Findings& findings) {
  const std::set<std::string_view> states = RecurrentValues(function);
  if (states.empty()) return;
  for (const Operation& op : function.operations()) {
    if (op.type != "matmul" || op.outputs.empty()) continue;
    const std::string* y = FunctionView::Name(op, "y");
    const mil::TensorType* type = y && states.contains(*y) ? function.TypeOf(*y) : nullptr;
    if (!type || type->rank() < 2) continue;
    const auto width = static_cast<double>(type->shape.end()[-2]);
    const std::string* x = FunctionView::Name(op, "x");
    double factor = 1;
    if (const Operation* maker = x ? MakerBehindViews(function, *x) : nullptr)
      factor *= FactorOf(function, *maker);
    const auto users = UsersBehindViews(function, op.outputs[0].name);
    if (users.size() == 1) factor *= FactorOf(function, *users[0].op);
    if (width >= 4 && std::fabs(factor * std::sqrt(width) - 1) < 0.01) {
      findings.Add(
          rules::kSubnormalState, model, function, op,
          fmt::format(
              "the recurrent state is stored unscaled (read out with 1 / sqrt({})): products with unit "
              "queries fall into fp16's subnormals, which the Neural Engine flushes to 0",
              type->shape.end()[-2]));
    }
  }
}

}  // namespace

void CheckArithmetic(const ModelSubject& model, Findings& findings) {
  for (const FunctionView& function : model.functions) {
    if (!function.is_ordered()) continue;
    for (const Operation& op : function.operations()) {
      if (op.type == "sigmoid" || op.type == "silu") {
        findings.Add(rules::kNativeSigmoid, model, function, op,
                     fmt::format("the Neural Engine's own {} is off by up to 0.015", op.type));
      }
      const mil::TensorType* x = op.type == "real_div" ? function.TypeOf(op, "x") : nullptr;
      if (x && mil::IsInteger(x->dtype)) {
        findings.Add(rules::kIntegerDivision, model, function, op,
                     fmt::format("real_div of {}: its result is not defined", DataTypeName(x->dtype)));
      }
      if (op.type == "einsum") {
        findings.Add(rules::kEinsum, model, function, op, "devices take few equations of rank 3 and 4 only");
      }
      CheckEpsilon(model, function, op, findings);
      CheckGelu(model, function, op, findings);
    }
    CheckRecurrence(model, function, findings);
  }
}

}  // namespace cmforge::coreml::lint
