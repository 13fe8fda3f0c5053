// Binding: operations against types, constants folded, views recognised.
#include "coreml/interpreter/plan.h"

#include <algorithm>

#include "base/half.h"
#include "coreml/interpreter/plan_context.h"
#include "coreml/interpreter/strided.h"
#include "mil/infer.h"

namespace cmforge::coreml {
namespace {

using mil::DataType;
using mil::OpCall;
using mil::TensorType;

constexpr int64_t kKnownElements = 4096;    // integers that inference may ask for
constexpr int64_t kFoldElements = 1 << 20;  // results computed when planning

/// A constant under another shape.
class ReshapedWeight final : public Weight {
 public:
  ReshapedWeight(TensorType type, WeightPtr data) : Weight(std::move(type)), data_(std::move(data)) {}
  void Decode(int64_t begin, int64_t count, float* out) const override { data_->Decode(begin, count, out); }
  [[nodiscard]] Bytes stored() const override { return data_->stored(); }
  [[nodiscard]] std::optional<StoredMatrix> Matrix(int64_t rows, int64_t cols) const override {
    return data_->Matrix(rows, cols);
  }

 private:
  WeightPtr data_;
};

bool IsIntegerLike(DataType dtype) { return mil::IsInteger(dtype) || dtype == DataType::kBool; }

int32_t Saturate(int64_t v) { return static_cast<int32_t>(std::clamp<int64_t>(v, INT32_MIN, INT32_MAX)); }

/// Where the results of an operation lie inside its input x, when they are contiguous pieces of it.
std::optional<std::vector<int64_t>> ViewOffsets(const OpCall& call, const std::vector<TensorType>& outputs,
                                                bool rounds) {
  const std::string_view op = call.info().name;
  auto whole = std::optional(std::vector<int64_t>{0});
  if (op == "reshape" || op == "expand_dims" || op == "squeeze" || op == "identity") return whole;
  if (op == "concat") return call.All("values").size() == 1 ? whole : std::nullopt;
  if (!call.Has("x")) return std::nullopt;
  const TensorType& x = call.Tensor("x");
  if (op == "cast") {
    const DataType from = x.dtype, to = outputs[0].dtype;
    const bool is_float =
        mil::IsFloat(from) && mil::IsFloat(to) && (!rounds || to != DataType::kFloat16 || from == to);
    return is_float || from == to || (from == DataType::kBool && to == DataType::kInt32) ? whole
                                                                                         : std::nullopt;
  }
  if (op == "tile") return outputs[0] == x ? whole : std::nullopt;
  if (op == "transpose") {
    const auto perm = call.Axes("perm", x.rank());
    int64_t last = -1;
    for (const int64_t axis : *perm) {
      if (x.shape[static_cast<size_t>(axis)] == 1) continue;
      if (axis < last) return std::nullopt;
      last = axis;
    }
    return whole;
  }
  const std::vector<int64_t> strides = StridesOf(x.shape);
  // A piece is contiguous when, from the first axis of more than one element on, it has all of every further
  // axis.
  const auto is_contiguous = [&](const std::vector<int64_t>& extents) {
    bool has_begun = false;
    for (size_t i = 0; i < extents.size(); ++i) {
      if (has_begun && extents[i] != x.shape[i]) return false;
      has_begun = has_begun || extents[i] != 1;
    }
    return true;
  };
  if (op == "slice_by_index") {
    const auto plan = mil::PlanSlice(call, x.shape);
    if (!plan || !is_contiguous(plan->extent)) return std::nullopt;
    int64_t offset = 0;
    for (size_t i = 0; i < x.shape.size(); ++i) {
      if (plan->begin[i] == mil::kUnknownBegin || (plan->stride[i] != 1 && plan->extent[i] != 1))
        return std::nullopt;
      offset += plan->begin[i] * strides[i];
    }
    return *ElementCount(outputs[0].shape) == 0 ? std::vector<int64_t>{0} : std::vector{offset};
  }
  if (op == "slice_by_size") {
    const auto begin = call.Integers("begin");
    if (!begin || !is_contiguous(outputs[0].shape)) return std::nullopt;
    int64_t offset = 0;
    for (size_t i = 0; i < x.shape.size(); ++i) {
      offset += ((*begin)[i] < 0 ? (*begin)[i] + x.shape[i] : (*begin)[i]) * strides[i];
    }
    return *ElementCount(outputs[0].shape) == 0 ? std::vector<int64_t>{0} : std::vector{offset};
  }
  if (op == "split") {
    std::vector<int64_t> offsets;
    int64_t offset = 0;
    for (const TensorType& part : outputs) {
      if (!is_contiguous(part.shape)) return std::nullopt;
      offsets.push_back(offset);
      offset += *ElementCount(part.shape);
    }
    return offsets;
  }
  return std::nullopt;
}

}  // namespace

FunctionPlan::FunctionPlan(const mil::Package& package, const std::string& name,
                           const mil::Function& function, const InterpreterOptions& options,
                           std::shared_ptr<ThreadPool> pool)
    : package_(package),
      name_(name),
      function_(function),
      options_(options),
      pool_(std::move(pool)),
      frame_(*pool_) {}

ValueId FunctionPlan::NewValue(std::string name, mil::Type type) {
  const auto id = static_cast<ValueId>(values_.size());
  PlanValue& value = values_.emplace_back();
  value.name = std::move(name);
  value.type = std::move(type);
  value.root = id;
  value.defined_at = static_cast<int32_t>(steps_.size());
  frame_.Resize(values_.size());
  return id;
}

Result<void> FunctionPlan::CheckSize(const TensorType& type) const {
  if (!type.is_static()) return {};
  // Empty axes count as one: loops over the others must stay within bounds too.
  uint64_t bytes = 4;
  for (const int64_t dim : type.shape) {
    const auto product = CheckedMul(bytes, static_cast<uint64_t>(std::max<int64_t>(dim, 1)));
    if (!product || *product > options_.memory_limit_bytes) {
      return Fail(ErrorKind::kLimit, fmt::format("{} needs more than the {} bytes allowed", TypeText(type),
                                                 options_.memory_limit_bytes));
    }
    bytes = *product;
  }
  return {};
}

Result<void> FunctionPlan::Make(const std::map<std::string, Shape>& input_shapes) {
  const auto make = [&]() -> Result<void> {
    CMF_CHECK(BindInputs(input_shapes));
    for (const mil::Operation& op : function_.body.operations) {
      if (auto status = BindOperation(op); !status)
        return Fail(std::move(status).error().In(mil::OperationLabel(op)));
    }
    CMF_CHECK(BindOutputs());
    CMF_CHECK(FuseSteps());
    CountUses();
    PlaceStates();
    CMF_CHECK(PlaceBuffers());
    return MakeKernels();
  };
  if (auto status = make(); !status)
    return Fail(std::move(status).error().In(fmt::format("function '{}'", name_)));
  return {};
}

Result<void> FunctionPlan::BindInputs(const std::map<std::string, Shape>& input_shapes) {
  for (const auto& [name, shape] : input_shapes) {
    const bool is_input = std::any_of(
        function_.inputs.begin(), function_.inputs.end(),
        [&](const mil::NamedType& input) { return input.name == name && input.type.is_tensor(); });
    if (is_input) continue;
    std::vector<std::string_view> names;
    for (const mil::NamedType& input : function_.inputs) {
      if (input.type.is_tensor()) names.push_back(input.name);
    }
    return Fail(ErrorKind::kNotFound,
                fmt::format("no input '{}': it has {}: name one of these", name, fmt::join(names, ", ")));
  }
  const auto view = package_.model.description.Find(name_);
  for (const mil::NamedType& input : function_.inputs) {
    mil::Type type = input.type;
    if (type.is_state()) {
      const ValueId id = NewValue(input.name, type);
      At(id).state = static_cast<int>(plan_states_.size());
      At(id).defined_at = -1;
      by_name_[input.name] = id;
      plan_states_.push_back({input.name, type.tensor, id});
      states.push_back({input.name, type.tensor});
      CMF_CHECK(CheckSize(type.tensor));
      continue;
    }
    const mil::ArrayFeature* array = nullptr;
    if (view) {
      for (const mil::Feature& feature : *view->inputs) {
        if (feature.name == input.name) array = feature.array();
      }
    }
    const auto given = input_shapes.find(input.name);
    Shape shape = given != input_shapes.end() ? given->second : type.tensor.shape;
    if (type.tensor.shape.empty() && shape == Shape{1}) shape.clear();  // how descriptions write a scalar
    if (given == input_shapes.end() && !type.tensor.is_static() && array) shape = array->shape;
    const auto fail = [&](std::string what) {
      return Fail(ErrorKind::kUsage,
                  fmt::format("input '{}': shape {} {}", input.name, ShapeText(shape), what));
    };
    if (!TensorType{type.tensor.dtype, shape}.is_static() ||
        !AreCompatible(type.tensor, {type.tensor.dtype, shape})) {
      return fail(fmt::format("does not fit {}: give an array of that shape", TypeText(type)));
    }
    if (array && !array->enumerated_shapes.empty()) {
      const auto& allowed = array->enumerated_shapes;
      if (std::find(allowed.begin(), allowed.end(), shape) == allowed.end()) {
        std::vector<std::string> texts;
        for (const Shape& one : allowed) texts.push_back(ShapeText(one));
        return fail(fmt::format("is none of the allowed {}: give one of these", fmt::join(texts, ", ")));
      }
    } else if (array && array->shape_range.size() == shape.size()) {
      for (size_t i = 0; i < shape.size(); ++i) {
        const mil::SizeRange& range = array->shape_range[i];
        if (static_cast<uint64_t>(shape[i]) < range.lower || (range.upper >= 0 && shape[i] > range.upper)) {
          return fail(fmt::format("has {} where {} {} is allowed: give an array of such a shape", shape[i],
                                  range.lower,
                                  range.upper < 0 ? "or more" : fmt::format("to {}", range.upper)));
        }
      }
    }
    type.tensor.shape = shape;
    CMF_CHECK(CheckSize(type.tensor));
    const ValueId id = NewValue(input.name, type);
    At(id).defined_at = -1;
    by_name_[input.name] = id;
    input_ids_.push_back(id);
    inputs.push_back({input.name, type.tensor});
  }
  return {};
}

Result<void> FunctionPlan::BindConstant(ValueId id, const mil::Value& value) {
  PlanValue& v = At(id);
  v.is_constant = true;
  const TensorType& type = value.type.tensor;
  if (value.tensor()) v.known = &value;
  if (!value.type.is_tensor() || type.dtype == DataType::kString) return {};
  CMF_TRY(const Bytes bytes, package_.weights->Data(value));
  CMF_TRY(v.constant, MakeDenseWeight(type, bytes));
  if (value.blob() && IsIntegerLike(type.dtype) && v.count() <= kKnownElements) {
    CMF_TRY(mil::Value contents, package_.weights->Immediate(value));
    v.known = &kept_.emplace_back(std::move(contents));
  }
  return {};
}

Result<ValueId> FunctionPlan::BindLiteral(const mil::Value& value) {
  const ValueId id = NewValue("", value.type);
  CMF_CHECK(BindConstant(id, value));
  return id;
}

Result<OpCall> FunctionPlan::CallOf(const mil::Operation& op,
                                    const mil::NameMap<std::vector<ValueId>>& operands) const {
  mil::NameMap<std::vector<mil::Operand>> bound;
  for (const auto& [parameter, ids] : operands) {
    for (const ValueId id : ids) {
      const PlanValue& v = value(id);
      bound[parameter].push_back({&v.type, v.known, v.is_constant});
    }
  }
  return OpCall::Bind(op.type, std::move(bound));
}

Result<void> FunctionPlan::BindOperation(const mil::Operation& op) {
  PlanStep step;
  step.op = &op;
  for (const auto& [parameter, arguments] : op.inputs) {
    for (const mil::Argument& argument : arguments) {
      if (const auto* literal = std::get_if<mil::Value>(&argument)) {
        CMF_TRY(const ValueId id, BindLiteral(*literal));
        step.operands[parameter].push_back(id);
        continue;
      }
      const auto it = by_name_.find(std::get<std::string>(argument));
      if (it == by_name_.end()) {
        return Fail(ErrorKind::kCorrupt, fmt::format("'{}' is not defined", std::get<std::string>(argument)));
      }
      step.operands[parameter].push_back(it->second);
    }
  }
  if (op.type == "const" || op.type.starts_with("constexpr_")) {
    for (const auto& [name, attribute] : op.attributes) {
      if (name == "name") continue;
      CMF_TRY(const ValueId id, BindLiteral(attribute));
      step.operands[name] = {id};
    }
  }
  CMF_TRY(const OpCall call, CallOf(op, step.operands));
  CMF_TRY(const std::vector<TensorType> types, InferTypes(call));
  if (types.size() != op.outputs.size()) {
    return Fail(ErrorKind::kCorrupt,
                fmt::format("{} outputs declared, {} are made", op.outputs.size(), types.size()));
  }
  for (size_t i = 0; i < types.size(); ++i) {
    if (!op.outputs[i].type.is_tensor() || !AreCompatible(types[i], op.outputs[i].type.tensor)) {
      return Fail(ErrorKind::kCorrupt,
                  fmt::format("'{}' is declared {}, its inputs give {}", op.outputs[i].name,
                              TypeText(op.outputs[i].type), TypeText(types[i])));
    }
    const auto define = [&](ValueId id) { by_name_[op.outputs[i].name] = id; };
    if (op.type == "const") {  // the literal is the value
      define(step.operands.at("val")[0]);
      At(by_name_[op.outputs[i].name]).name = op.outputs[i].name;
      continue;
    }
    TensorType type = types[i];
    // A slice checks its own extents when it runs: what the program declares need not be found out every time.
    if (op.type == "slice_by_index" && op.outputs[i].type.tensor.is_static())
      type = op.outputs[i].type.tensor;
    const ValueId id = NewValue(op.outputs[i].name, std::move(type));
    step.outputs.push_back(id);
    define(id);
  }
  if (op.type == "const") return {};
  if (call.info().is_constexpr()) return DefineConstexpr(call, step, types);
  for (const ValueId id : step.outputs) CMF_CHECK(CheckSize(At(id).type.tensor));
  CMF_TRY(const bool is_folded, TryFold(call, step));
  if (is_folded) return {};
  if (op.type == "read_state" || op.type == "write_state")
    step.state = At(step.operands.at("input")[0]).state;
  for (const ValueId id : step.outputs) step.is_dynamic |= At(id).is_dynamic();
  for (const auto& [parameter, ids] : step.operands) {
    for (const ValueId id : ids) step.is_dynamic |= At(id).is_dynamic();
  }
  if (!step.is_dynamic) TryView(call, step);
  step.is_rounded = rounds() && DoesArithmetic(op.type) && step.state < 0;
  steps_.push_back(std::move(step));
  return {};
}

Result<void> FunctionPlan::DefineConstexpr(const OpCall& call, PlanStep& step,
                                           const std::vector<TensorType>& types) {
  const auto constant = [&](std::string_view parameter) -> Result<WeightPtr> {
    WeightPtr weight = At(step.operands.find(parameter)->second[0]).constant;
    if (weight) return weight;
    return Fail(ErrorKind::kUnsupported, fmt::format("parameter '{}' is no stored constant", parameter));
  };
  const auto bytes = [&](std::string_view parameter) -> Result<Bytes> {
    CMF_TRY(const WeightPtr weight, constant(parameter));
    if (!weight->stored().empty() || weight->count() == 0) return weight->stored();
    return Fail(ErrorKind::kUnsupported, fmt::format("parameter '{}' is compressed itself", parameter));
  };
  for (const TensorType& type : types) CMF_CHECK(CheckSize(type));
  CMF_TRY(std::vector<WeightPtr> weights, MakeConstexpr(call, types, constant, bytes));
  for (size_t i = 0; i < step.outputs.size(); ++i) {
    At(step.outputs[i]).is_constant = true;
    At(step.outputs[i]).constant = std::move(weights[i]);
  }
  return {};
}

Result<void> FunctionPlan::Materialize(ValueId id) {
  PlanValue& v = At(id);
  if (v.has_owned) return {};
  if (!v.constant)
    return Fail(ErrorKind::kUnsupported, fmt::format("'{}' ({}) has no numbers", v.name, TypeText(v.type)));
  CMF_CHECK(CheckSize(v.type.tensor));
  constant_bytes_ += 4 * static_cast<uint64_t>(v.count());
  if (constant_bytes_ > options_.memory_limit_bytes) {
    return Fail(ErrorKind::kLimit, fmt::format("decoded constants need more than the {} bytes allowed",
                                               options_.memory_limit_bytes));
  }
  v.owned.resize(static_cast<size_t>(std::max<int64_t>(v.count(), 1)));
  const DataType dtype = v.type.tensor.dtype;
  const Bytes stored = v.constant->stored();
  if (IsIntegerLike(dtype) && mil::BitsOf(dtype) >= 32) {  // wider than a float's 24 bits
    auto* out = reinterpret_cast<int32_t*>(v.owned.data());
    for (int64_t i = 0; i < v.count(); ++i) {
      switch (dtype) {
        case DataType::kInt32:
          out[i] = LoadLe<int32_t>(stored.data() + 4 * i);
          break;
        case DataType::kUInt32:
          out[i] = Saturate(LoadLe<uint32_t>(stored.data() + 4 * i));
          break;
        case DataType::kInt64:
          out[i] = Saturate(LoadLe<int64_t>(stored.data() + 8 * i));
          break;
        default:
          out[i] =
              static_cast<int32_t>(std::min<uint64_t>(LoadLe<uint64_t>(stored.data() + 8 * i), INT32_MAX));
          break;
      }
    }
  } else {
    v.constant->Decode(0, v.count(), v.owned.data());
    if (IsIntegerLike(dtype)) {
      auto* out = reinterpret_cast<int32_t*>(v.owned.data());
      for (int64_t i = 0; i < v.count(); ++i) out[i] = static_cast<int32_t>(v.owned[static_cast<size_t>(i)]);
    }
  }
  v.has_owned = true;
  frame_.SetData(id, v.owned.data());
  return {};
}

Result<bool> FunctionPlan::TryFold(const OpCall& call, PlanStep& step) {
  if (step.outputs.empty() || call.info().name == "read_state") return false;
  const bool is_shape = call.info().name == "shape";  // needs no contents, only dimensions
  for (const auto& [parameter, ids] : step.operands) {
    for (const ValueId id : ids) {
      const PlanValue& v = At(id);
      if (v.is_dynamic()) return false;
      if (!is_shape && (!v.is_constant || v.count() > kFoldElements)) {
        // A constant under another shape stays a constant in its stored form.
        const auto offsets = v.constant && parameter == "x" && !v.has_owned
                                 ? ViewOffsets(call, {At(step.outputs[0]).type.tensor}, rounds())
                                 : std::nullopt;
        const std::string_view op = call.info().name;
        if (!offsets || op == "cast" || op.starts_with("slice") || op == "split") return false;
        PlanValue& out = At(step.outputs[0]);
        out.constant = std::make_shared<const ReshapedWeight>(out.type.tensor, v.constant);
        out.is_constant = true;
        return true;
      }
    }
  }
  for (const ValueId id : step.outputs) {
    if (At(id).is_dynamic() || At(id).count() > kFoldElements) return false;
  }
  for (const ValueId id : step.outputs) {
    PlanValue& out = At(id);
    out.owned.resize(static_cast<size_t>(std::max<int64_t>(out.count(), 1)));
    out.has_owned = true;
    frame_.SetData(id, out.owned.data());
  }
  CMF_TRY(const Kernel kernel, KernelOf(step, call));
  CMF_CHECK(kernel(frame_));
  for (const ValueId id : step.outputs) {
    PlanValue& out = At(id);
    const DataType dtype = out.type.tensor.dtype;
    out.is_constant = true;
    if (rounds() && dtype == DataType::kFloat16) RoundToHalves(out.owned.data(), out.count());
    if (out.count() > kKnownElements) continue;
    // Contents that inference or a parameter may ask for.
    std::vector<std::byte> bytes(static_cast<size_t>(out.count()) * 4);
    std::memcpy(bytes.data(), out.owned.data(), bytes.size());
    const DataType wide = mil::IsFloat(dtype) ? DataType::kFloat32 : DataType::kInt32;
    out.known = &kept_.emplace_back(mil::Raw({wide, out.type.tensor.shape}, std::move(bytes)));
  }
  return true;
}

void FunctionPlan::TryView(const OpCall& call, PlanStep& step) {
  std::vector<TensorType> types;
  for (const ValueId id : step.outputs) types.push_back(At(id).type.tensor);
  const auto offsets = ViewOffsets(call, types, rounds());
  if (!offsets) return;
  const ValueId source = step.operands.at(call.Has("x") ? "x" : "values")[0];
  if (At(source).is_constant) return;
  for (size_t i = 0; i < step.outputs.size(); ++i) {
    PlanValue& out = At(step.outputs[i]);
    out.root = At(source).root;
    out.offset = At(source).offset + (*offsets)[i];
  }
  step.is_view = true;
}

Result<void> FunctionPlan::BindOutputs() {
  for (const std::string& name : function_.body.outputs) {
    const auto it = by_name_.find(name);
    if (it == by_name_.end())
      return Fail(ErrorKind::kCorrupt, fmt::format("output '{}' is not defined", name));
    if (At(it->second).type.is_state())
      return Fail(ErrorKind::kCorrupt, fmt::format("output '{}' is a state", name));
    if (At(it->second).is_constant) CMF_CHECK(Materialize(it->second));
    output_ids_.push_back(it->second);
    outputs.push_back({name, At(it->second).type.tensor});
  }
  return {};
}

}  // namespace cmforge::coreml
